//! [`View`]: read-only access to a session as it was after one of its records. Needs no lease.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Content;
use crate::body::{Assistant, Block, Branch, Merged, Rejected, Role, StepEntered, StepLeft};
use crate::context::{ContextFold, Item, ItemKind, items_at_point};
use crate::divergence::{Divergence, Tip};
use crate::error;
use crate::history::{History, Reachable};
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::message::Message;
use crate::reader::{Reader, tampered};
use crate::record::{Record, RecordError};
use crate::session::{self, PendingTail};
use crate::state::{Pending, State};
use crate::store::{Error, Result, SessionFilter, SessionInfo, Store};
use crate::usage::Usage;

/// A session as it was after one of its records, read-only.
pub struct View {
    pub(crate) reader: Reader,
    at: Record,
    state: State,
    /// The state including foreign authority, if `state` leaves some out.
    recorded: Option<Box<State>>,
    /// Set if the record is foreign.
    pub(crate) arrival: Option<Arrival>,
    /// The unpublished records that a fork from here depends on.
    pub(crate) unpublished: List<PendingTail>,
}

impl View {
    /// Views a stored session at record `seq`, or at its head if `seq` is `None`. Needs no lease.
    pub async fn of(store: &Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> error::Result<Self> {
        let seq = match seq {
            Some(seq) => seq,
            None => row(store, session).await?.seq,
        };
        let view = Self::at(Reader::new(store.clone()), Point { session, seq }).await?;
        let arrival = Arrivals::of(store).await?.at(&view.reader, view.at.point()).await?;
        Ok(view.arrived(arrival))
    }

    pub(crate) async fn at(reader: Reader, point: Point) -> Result<Self> {
        let at = reader.record(point).await?;
        let state = reader.state_at(point).await?;
        Ok(Self { reader, at, state, recorded: None, arrival: None, unpublished: List::new() })
    }

    /// If the record is foreign, removes authority that does not apply here from the state.
    pub(crate) fn arrived(mut self, arrival: Option<Arrival>) -> Self {
        if arrival.is_some() && self.state.has_authority() {
            self.recorded = Some(Box::new(self.state.clone()));
            self.state.revoke_authority();
        }
        Self { arrival, ..self }
    }

    /// The record that the view is at.
    pub fn record(&self) -> &Record {
        &self.at
    }

    /// A reference to the record that the view is at.
    pub fn reference(&self) -> Reference {
        self.at.reference()
    }

    /// The folded state. Placement, grants and open questions of foreign records (written on another machine, by
    /// another user or in another store) are left out.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The folded state, including what foreign records decided.
    pub fn recorded_state(&self) -> &State {
        self.recorded.as_deref().unwrap_or(&self.state)
    }

    /// Whether the record is foreign: written on another machine, by another user or in another store.
    pub fn is_from_elsewhere(&self) -> bool {
        self.arrival.is_some()
    }

    /// The usage of all records that this one descends from. Each record counts once.
    pub fn usage(&self) -> Usage {
        self.state.usage
    }

    /// What is open at this record.
    pub fn pending(&self) -> Pending {
        self.state.pending()
    }

    /// This record and all that it descends from, parents before children.
    pub async fn history(&self) -> error::Result<History> {
        let reachable = Reachable::of(&self.reader, &[self.at.point()]).await?;
        Ok(History::new(self.reader.clone(), &reachable, &[]))
    }

    /// The records of this session without its ancestors, in order. Fails if a record does not name its predecessor as
    /// its parent.
    pub async fn own_records(&self) -> error::Result<Vec<Record>> {
        let records = self.own_records_unchecked().await?;
        match records.windows(2).find(|two| two[1].first_parent() != Some(two[0].id())) {
            Some(two) => Err(tampered(&two[0], RecordError::Chain).into()),
            None => Ok(records),
        }
    }

    /// The records of this session without its ancestors, in order. Does not check that they are linked, so that broken
    /// sessions can be removed.
    pub async fn own_records_unchecked(&self) -> error::Result<Vec<Record>> {
        let (session, to) = (self.at.session(), self.at.seq());
        let mut records = Vec::new();
        let mut from = 0;
        loop {
            let page = self.reader.page(session, from, to, &[]).await?;
            records.extend(page.records);
            if !page.more {
                return Ok(records);
            }
            from = page.position;
        }
    }

    /// The messages that a model is shown at this record.
    pub async fn context(&self) -> error::Result<Vec<Message>> {
        Ok(ContextFold::run(&self.reader, self.at.point(), true).await?.messages()?)
    }

    /// The context items, oldest first, each with its message.
    pub async fn items(&self) -> error::Result<Vec<(Item, Message)>> {
        let fold = ContextFold::run(&self.reader, self.at.point(), true).await?;
        let items = fold.items();
        Ok(items.into_iter().zip(fold.messages()?).collect())
    }

    /// A view of the same session at an earlier record.
    pub async fn earlier(&self, seq: u64) -> error::Result<View> {
        let mut view = Self::at(self.reader.clone(), Point { seq, ..self.at.point() }).await?;
        view.unpublished = self.unpublished.clone();
        Ok(view)
    }

    /// A view of the last record of this kind at or before this one, in this session or in those it was forked from.
    pub async fn last_of(&self, kind: &Kind) -> error::Result<Option<View>> {
        let mut at = self.at.point();
        loop {
            if let Some(found) = self.reader.last_of(at, kind).await? {
                return Ok(Some(Self::at(self.reader.clone(), found.point()).await?));
            }
            match self.reader.session_start(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => return Ok(None),
            }
        }
    }

    /// The record with this id. Fails if there is none.
    pub async fn record_of(&self, id: RecordId) -> error::Result<Record> {
        Ok(self.reader.record_of(id).await?)
    }

    /// The bytes of a blob; `None` if the store does not have it.
    pub async fn blob(&self, digest: Digest) -> error::Result<Option<Arc<[u8]>>> {
        match self.reader.blob(digest).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The text of the last model turn that has any.
    pub async fn text(&self) -> error::Result<Option<String>> {
        let items = items_at_point(&self.reader, self.at.point()).await?;
        for item in items.newest_first().filter(|item| matches!(item.kind, ItemKind::Turn(_))) {
            let record = self.reader.record(item.origin).await?;
            let Ok(turn) = record.body::<Assistant>() else { continue };
            let mut text = String::new();
            for block in &turn.blocks {
                if let Block::Text { text: content } = block {
                    text.push_str(&self.reader.text(content).await?);
                }
            }
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// The value of the last step called `name` in this session, or else in the branches merged into it, or else, before
    /// its fork point, in the session it was forked from. Of the branches of one merge, later ones count as newer.
    /// Rejected branches are not searched.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> error::Result<Option<T>> {
        let mut seen = HashSet::new();
        let mut at = self.at.point();
        // Forged fork points may form a cycle.
        while !seen.contains(&at.session) {
            if let Some((point, value)) = self.value_within(at, name, &mut seen).await? {
                return session::typed(point, &self.reader.text(&value).await?).map(Some);
            }
            match self.reader.session_start(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => break,
            }
        }
        Ok(None)
    }

    /// The value of the last step called `name` in the records up to `at`, or else in the branches merged into them, and
    /// the point of its `step_left`. Marks the searched sessions as seen.
    async fn value_within(
        &self,
        at: Point,
        name: &str,
        seen: &mut HashSet<SessionId>,
    ) -> error::Result<Option<(Point, Content)>> {
        let kinds = [Kind::StepLeft, Kind::Merged, Kind::Rejected];
        // Branches may have merged branches. The last session is searched next.
        let mut sessions = vec![at];
        seen.insert(at.session);
        while let Some(Point { session, seq }) = sessions.pop() {
            let (mut rejected, mut branches) = (HashSet::new(), Vec::new());
            let mut to = Some(seq);
            while let Some(until) = to {
                let page = self.reader.newest_first(session, until, &kinds).await?;
                for record in &page.records {
                    if let Ok(Rejected { branch, .. }) = record.body() {
                        rejected.insert(branch.session);
                    } else if let Ok(merged) = record.body::<Merged>() {
                        let heads = merged.branches.iter().rev().map(Branch::head);
                        branches.extend(heads.filter(|head| !rejected.contains(&head.session)));
                    } else if let Ok(StepLeft { step, value: Some(value), .. }) = record.body()
                        && self.entered(step).await?.is_some_and(|step| step.name == name)
                    {
                        return Ok(Some((record.point(), value)));
                    }
                }
                to = page.more.then_some(page.position);
            }
            // Newest first so far.
            let new = branches.into_iter().rev().filter(|head| seen.insert(head.session));
            sessions.extend(new);
        }
        Ok(None)
    }

    /// The value of the last step that returned one, in this session or, before its fork point, in the session it was
    /// forked from. Verdicts of validators do not count.
    pub async fn output<T: DeserializeOwned>(&self) -> error::Result<Option<T>> {
        let mut seen = HashSet::new();
        let mut at = self.at.point();
        // Forged fork points may form a cycle.
        while seen.insert(at.session) {
            let mut to = Some(at.seq);
            while let Some(until) = to {
                let page = self.reader.newest_first(at.session, until, &[Kind::StepLeft]).await?;
                for record in &page.records {
                    let Ok(StepLeft { step, value: Some(value), .. }) = record.body() else { continue };
                    if self.entered(step).await?.is_some_and(|step| step.role == Some(Role::Validator)) {
                        continue;
                    }
                    let text = self.reader.text(&value).await?;
                    if text != "null" {
                        return session::typed(record.point(), &text).map(Some);
                    }
                }
                to = page.more.then_some(page.position);
            }
            match self.reader.session_start(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => break,
            }
        }
        Ok(None)
    }

    /// A step, given the id of its `step_entered` record. `None` if the record is missing or erased.
    async fn entered(&self, step: RecordId) -> error::Result<Option<StepEntered>> {
        let entered = self.reader.record_by_id(step).await?;
        Ok(entered.and_then(|record| record.body().ok()))
    }

    /// The text of some content, read from its blob if it is in one.
    pub async fn content(&self, content: &Content) -> error::Result<String> {
        Ok(self.reader.text(content).await?)
    }

    /// The session's ancestors, parents before children, and the session itself as the last.
    pub async fn lineage(&self) -> error::Result<Vec<Ancestor>> {
        let reachable = Reachable::of(&self.reader, &[self.at.point()]).await?;
        let mut ancestors = Vec::new();
        for (session, extent) in reachable.sessions {
            let origin = self.reader.session_start(session).await?.origin;
            ancestors.push((extent.born_generation, Ancestor { session, to: extent.to, origin }));
        }
        ancestors.sort_by_key(|(born, ancestor)| (ancestor.session == self.at.session(), *born, ancestor.session));
        Ok(ancestors.into_iter().map(|(_, ancestor)| ancestor).collect())
    }

    /// The point `steps` records back along first parents, also past fork points; `None` before the first record.
    pub async fn back(&self, steps: u64) -> error::Result<Option<Point>> {
        let mut at = self.at.point();
        let mut steps = steps;
        loop {
            if let Some(seq) = at.seq.checked_sub(steps) {
                return Ok(Some(Point { seq, ..at }));
            }
            steps -= at.seq + 1;
            match self.reader.session_start(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => return Ok(None),
            }
        }
    }

    /// What this view and `other` share, and what only `other` has.
    pub async fn divergence(&self, other: &View) -> error::Result<Divergence> {
        let tip = |view: &View| Tip { point: view.at.point(), generation: view.at.generation() };
        let mut reader = self.reader.clone();
        reader.join(&other.reader);
        Ok(Divergence::of(&reader, &[tip(self), tip(other)]).await?)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({})", self.at.point())
    }
}

/// One session of a lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ancestor {
    /// The session's id.
    pub session: SessionId,
    /// Its last record that belongs to the lineage.
    pub to: u64,
    /// The session's fork point; `None` for a root.
    pub origin: Option<Reference>,
}

/// The stored information on one session.
pub(crate) async fn row(store: &Arc<dyn Store>, session: SessionId) -> Result<SessionInfo> {
    let rows = store.sessions(SessionFilter::Id(session).into()).await?;
    rows.into_iter().next().ok_or_else(|| Error::NotFound(format!("session {session}")))
}
