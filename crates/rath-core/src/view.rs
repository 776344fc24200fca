//! A session as it was after one of its records. Reads only; any number may look at once.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Content;
use crate::body::{Assistant, Block, StepEntered, StepLeft};
use crate::context::{ContextFold, Item, Shape, items_at_point};
use crate::divergence::{Divergence, Tip};
use crate::error;
use crate::history::{History, Reach};
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::message::Message;
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::session::{self, Unpublished};
use crate::state::{Pending, State};
use crate::store::{Error, Result, Row, Store, Which};
use crate::usage::Usage;

/// A session at one of its records.
pub struct View {
    pub(crate) reader: Reader,
    at: Record,
    state: State,
    /// The state as the records say it, where they were made elsewhere and not all of it counts here.
    recorded: Option<Box<State>>,
    /// That what the line says here was said elsewhere.
    pub(crate) arrival: Option<Arrival>,
    /// What a fork from here stands on and the store does not have.
    pub(crate) unpublished: List<Unpublished>,
}

impl View {
    /// Looks at a stored session without holding it: at record `seq`, or at its head.
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

    /// Leaves out what does not count here, if the records were made elsewhere.
    pub(crate) fn arrived(mut self, arrival: Option<Arrival>) -> Self {
        if arrival.is_some() && self.state.would_leave() {
            self.recorded = Some(Box::new(self.state.clone()));
            self.state.arrive();
        }
        Self { arrival, ..self }
    }

    /// The record looked at.
    pub fn record(&self) -> &Record {
        &self.at
    }

    /// Where.
    pub fn reference(&self) -> Reference {
        self.at.reference()
    }

    /// The folded state. Of records that were made elsewhere, place, permissions and open questions do not count.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The folded state as the records say it, wherever they were made.
    pub fn recorded_state(&self) -> &State {
        self.recorded.as_deref().unwrap_or(&self.state)
    }

    /// Whether the records up to here were made elsewhere, and nobody has gone on with the session here.
    pub fn is_from_elsewhere(&self) -> bool {
        self.arrival.is_some()
    }

    /// What everything up to here used.
    pub fn usage(&self) -> Usage {
        self.state.usage
    }

    /// What was open here.
    pub fn pending(&self) -> Pending {
        self.state.pending()
    }

    /// Every record behind this one, itself included, parents before children.
    pub async fn history(&self) -> error::Result<History> {
        let reach = Reach::of(&self.reader, &[self.at.point()]).await?;
        Ok(History::new(self.reader.clone(), &reach, &[]))
    }

    /// The records of this session alone, in order. Neighbours are checked against each other.
    pub async fn own(&self) -> error::Result<Vec<Record>> {
        let records = self.own_as_stored().await?;
        match records.windows(2).find(|two| two[1].first_parent() != Some(two[0].id())) {
            Some(two) => Err(tampered(&two[0], Fault::Chain).into()),
            None => Ok(records),
        }
    }

    /// The records of this session alone, also where one does not fit its neighbour: for whoever removes them.
    pub async fn own_as_stored(&self) -> error::Result<Vec<Record>> {
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

    /// What a model is shown here, item by item.
    pub async fn context(&self) -> error::Result<Vec<Message>> {
        Ok(ContextFold::run(&self.reader, self.at.point(), true).await?.messages()?)
    }

    /// The context items here, oldest first, each with its message.
    pub async fn items(&self) -> error::Result<Vec<(Item, Message)>> {
        let fold = ContextFold::run(&self.reader, self.at.point(), true).await?;
        let items = fold.items();
        Ok(items.into_iter().zip(fold.messages()?).collect())
    }

    /// This session at an earlier record of its own.
    pub async fn earlier(&self, seq: u64) -> error::Result<View> {
        let mut view = Self::at(self.reader.clone(), Point { seq, ..self.at.point() }).await?;
        view.unpublished = self.unpublished.clone();
        Ok(view)
    }

    /// The last record of this kind at or before this place, on this line or on those that it was forked from: a view
    /// of it.
    pub async fn last_of(&self, kind: &Kind) -> error::Result<Option<View>> {
        let mut at = self.at.point();
        loop {
            if let Some(found) = self.reader.last_of(at, kind).await? {
                return Ok(Some(Self::at(self.reader.clone(), found.point()).await?));
            }
            match self.reader.line(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => return Ok(None),
            }
        }
    }

    /// The record of this id.
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

    /// The last thing a model said here.
    pub async fn text(&self) -> error::Result<Option<String>> {
        let items = items_at_point(&self.reader, self.at.point()).await?;
        for item in items.newest_first().filter(|item| matches!(item.shape, Shape::Turn(_))) {
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

    /// The value that the step called `name` left: the last one of that name that ended here, on this line or, before its
    /// fork point, on the line that it was forked from. Steps on merged branches are not looked at.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> error::Result<Option<T>> {
        let mut seen = HashSet::new();
        let mut at = self.at.point();
        // A forged fork point may lead back to a line that was looked at.
        while seen.insert(at.session) {
            let mut to = Some(at.seq);
            while let Some(until) = to {
                let page = self.reader.newest_first(at.session, until, &[Kind::StepLeft]).await?;
                for record in &page.records {
                    let Ok(StepLeft { step, value: Some(value), .. }) = record.body() else { continue };
                    if self.step_name(step).await?.as_deref() == Some(name) {
                        return session::typed(record.point(), &self.reader.text(&value).await?).map(Some);
                    }
                }
                to = page.more.then_some(page.position);
            }
            match self.reader.line(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => break,
            }
        }
        Ok(None)
    }

    /// The name of a step by its `step_entered`.
    async fn step_name(&self, step: RecordId) -> error::Result<Option<String>> {
        let entered = self.reader.record_by_id(step).await?;
        Ok(entered.and_then(|record| record.body::<StepEntered>().ok()).map(|body| body.name))
    }

    /// The text of some content, read from its blob where it has one.
    pub async fn content(&self, content: &Content) -> error::Result<String> {
        Ok(self.reader.text(content).await?)
    }

    /// The sessions this one stands on, parents before children, itself last.
    pub async fn lineage(&self) -> error::Result<Vec<Ancestor>> {
        let reach = Reach::of(&self.reader, &[self.at.point()]).await?;
        let mut lines = Vec::new();
        for (session, extent) in reach.lines {
            let origin = self.reader.line(session).await?.origin;
            lines.push((extent.born_generation, Ancestor { session, to: extent.to, origin }));
        }
        lines.sort_by_key(|(born, line)| (line.session == self.at.session(), *born, line.session));
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }

    /// The record `steps` first parents back, through fork points.
    pub async fn back(&self, steps: u64) -> error::Result<Option<Point>> {
        let mut at = self.at.point();
        let mut steps = steps;
        loop {
            if let Some(seq) = at.seq.checked_sub(steps) {
                return Ok(Some(Point { seq, ..at }));
            }
            steps -= at.seq + 1;
            match self.reader.line(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => return Ok(None),
            }
        }
    }

    /// What this view and `other` share, and what only the other has.
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

/// One line of a lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ancestor {
    /// The session.
    pub session: SessionId,
    /// Its last record that counts.
    pub to: u64,
    /// Its fork point.
    pub origin: Option<Reference>,
}

/// The row of one session.
pub(crate) async fn row(store: &Arc<dyn Store>, session: SessionId) -> Result<Row> {
    let rows = store.sessions(Which::Id(session).into()).await?;
    rows.into_iter().next().ok_or_else(|| Error::NotFound(format!("session {session}")))
}
