//! Forking and detaching. Both take `&self`, because they only write to the child.

use std::sync::Arc;

use super::publish::{Durability, PendingTail};
use super::run::OnDivergence;
use super::{CachedActor, Context, Head, Session, SessionInit, encode};
use crate::actor::Actor;
use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Blob;
use crate::body::{Detached, Forked, ImportedTail};
use crate::context::{self, ContextFold, Items};
use crate::error::{ErrorKind, Result};
use crate::history::Reachable;
use crate::id::{Point, Reference};
use crate::kind::Kind;
use crate::list::List;
use crate::message::{Copied, Message};
use crate::reader::Reader;
use crate::record::PendingData;
use crate::state::State;
use crate::view::View;

impl Session {
    /// Forks this session at its head. The cost does not depend on the session's length.
    pub fn fork(&self, why: impl Into<String>) -> Session {
        self.fork_for(Forked::new(self.point(), why.into()))
    }

    /// Forks this session for a branch that a resumed run finds by `key`. Use it if the order of the forks may differ from
    /// run to run. The key must be unique among the forks of the step.
    pub fn fork_with_key(&self, why: impl Into<String>, key: impl Into<String>) -> Session {
        self.fork_for(Forked { key: Some(key.into()), ..Forked::new(self.point(), why.into()) })
    }

    /// Forks this session for a tool call. A resumed run finds the branch by the call's id.
    pub fn fork_for_call(&self, why: impl Into<String>, call: &str) -> Session {
        self.fork_for(Forked { call: Some(call.into()), ..Forked::new(self.point(), why.into()) })
    }

    fn fork_for(&self, mut forked: Forked) -> Session {
        let is_for_call = forked.call.is_some();
        if !self.0.run_context.is_in_run() {
            forked.key = None;
        } else if !is_for_call && forked.key.is_none() {
            forked.ordinal = self.0.run_context.next_fork();
        }
        forked.step_key = self.0.state.branch_key(&forked);
        let recorded = self.recorded_fork(&forked);
        let new_branch = || {
            let context = self.0.context.clone();
            self.branch(self.head(), &self.0.head, forked, &self.0.state, context, self.fork_base(), None)
        };
        let mut fork = match recorded {
            Ok(Some(fork)) => fork,
            Ok(None) => new_branch(),
            // The error is returned when the fork is first used.
            Err(error) => {
                let mut fork = new_branch();
                fork.0.run_context.own_mut().unusable = error.as_unusable_fork();
                fork
            }
        };
        if is_for_call && self.0.run_context.on_divergence() == OnDivergence::Fork {
            // The outcome of the call is recorded in the caller's session, so its branch cannot continue as another
            // session.
            fork.0.run_context.shared_mut().on_divergence = OnDivergence::Stop;
        }
        self.remember_fork(&fork);
        fork
    }

    /// Forks at an earlier record of this session or of one of its ancestors.
    pub async fn fork_at(&self, point: Point, why: impl Into<String>) -> Result<Session> {
        if point == self.point() {
            return Ok(self.fork(why));
        }
        let ordinal = self.0.run_context.next_fork();
        let forked_by = ordinal.map(|_| self.as_forked_by());
        let mut forked = Forked { ordinal, forked_by, ..Forked::new(point, why) };
        forked.step_key = self.0.state.branch_key(&forked);
        if let Some(tree) = self.0.run_context.tree() {
            tree.clone().open_branches_at(point.session, self.as_forked_by()).await?;
        }
        if let Some(fork) = self.recorded_fork(&forked)? {
            return Ok(fork);
        }
        let reader = self.reader();
        let reachable = Reachable::of(&reader, &[self.point()]).await?;
        if reachable.sessions.get(&point.session).is_none_or(|extent| extent.to < point.seq) {
            return Err(ErrorKind::NotInHistory(point).into());
        }
        let record = reader.record(point).await?;
        let header = record.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let head = Head { id: record.id(), seq: point.seq, time: header.time, generation: record.generation() };
        let arrived = Arrivals::of(&self.0.store).await?.at(&reader, point).await?;
        let state = reader.state_at(point).await?;
        let context = Context { base: Some(point), items: Items::default() };
        // On resume, the run finds the fork through the session that made it, which must therefore be stored first.
        let ancestors = if forked.forked_by.is_some() { self.fork_base() } else { tail_up_to(self.fork_base(), point) };
        let fork = self.branch(record.reference(), &head, forked, &state, context, ancestors, None);
        let is_left = point.session == self.id() && self.0.arrival.is_some_and(|arrival| arrival.covers(point.seq));
        Ok(fork.ending_arrival(arrived.filter(|_| !is_left)))
    }

    /// The unpublished records that a fork from the head depends on.
    pub(super) fn fork_base(&self) -> List<PendingTail> {
        let base = self.0.fork_base.get_or_init(|| {
            let mut ancestors = self.0.ancestors.clone();
            if self.unpublished().next().is_some() {
                let consumed = self.0.run_context.consumed().to_vec();
                ancestors.push(PendingTail { lease: self.0.lease.share(), records: self.0.records.clone(), consumed });
            }
            ancestors
        });
        base.clone()
    }

    /// A new session forked at `at`, where the state was `state`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the new session")]
    pub(super) fn branch(
        &self,
        from: Reference,
        at: &Head,
        forked: Forked,
        state: &State,
        context: Context,
        ancestors: List<PendingTail>,
        extras: Option<PendingData>,
    ) -> Session {
        let from_elsewhere = self.0.arrival.filter(|arrival| from.session == self.id() && arrival.covers(from.seq));
        let init = SessionInit {
            store: self.0.store.clone(),
            actor: self.0.actor.clone(),
            origin: Some(from),
            parent: Some(at),
            state: forked.begin(state),
            context,
            ancestors,
            durability: self.0.durability,
            run_context: self.0.run_context.inherited(),
        };
        let mut fork = Self::start(init, Kind::Forked, &encode(&forked), extras);
        if let Some(arrival) = from_elsewhere {
            // Needed even if this session's state has nothing foreign left: the fork depends on foreign records.
            fork.end_arrival_here(&arrival);
        }
        fork
    }

    /// Ends the foreign part in a fork that starts from foreign records.
    fn end_arrival_here(&mut self, arrival: &Arrival) {
        // Cannot fail: a new session is open and live.
        let _ = self.end_arrival(arrival);
    }

    /// Like [`end_arrival_here`](Self::end_arrival_here), if the state contains foreign authority.
    fn ending_arrival(mut self, arrival: Option<Arrival>) -> Session {
        if let Some(arrival) = arrival.filter(|_| self.0.state.has_authority()) {
            self.end_arrival_here(&arrival);
        }
        self
    }

    /// A new session without a parent that starts with a copy of this session's context. Its history and usage start
    /// empty.
    ///
    /// Fails with [`ErrorKind::DetachInRun`] inside a step of a run: resume could not find the new session.
    pub async fn detach(&self, why: impl Into<String>) -> Result<Session> {
        if self.0.run_context.is_in_run() && !self.pending().steps.is_empty() {
            return Err(ErrorKind::DetachInRun(self.id()).into());
        }
        let mut child = detach(&self.reader(), self.head(), self.0.actor.clone(), why.into()).await?;
        child.0.durability = self.0.durability;
        Ok(child)
    }
}

impl View {
    /// Forks the session at this view. The session may be closed, or open in another process.
    pub fn fork(&self, actor: Actor, why: impl Into<String>) -> Result<Session> {
        self.fork_as(actor, Forked::new(self.record().point(), why), None)
    }

    pub(super) fn fork_as(&self, actor: Actor, forked: Forked, extras: Option<PendingData>) -> Result<Session> {
        let record = self.record();
        let point = record.point();
        let time = record.time().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let head = Head { id: record.id(), seq: point.seq, time, generation: record.generation() };
        let init = SessionInit {
            store: self.reader.store.clone(),
            actor: CachedActor::new(actor),
            origin: Some(record.reference()),
            parent: Some(&head),
            state: forked.begin(self.recorded_state()),
            context: Context { base: Some(point), items: Items::default() },
            ancestors: tail_up_to(self.unpublished.clone(), point),
            durability: Durability::default(),
            run_context: super::RunContext::default(),
        };
        // A copied session is foreign too.
        let arrival = self.arrival.or_else(|| forked.imported_tail.is_some().then(Arrival::unlisted));
        Ok(Session::start(init, Kind::Forked, &encode(&forked), extras).ending_arrival(arrival))
    }

    /// A fork that repeats what a session of another store contains after this point. The blob that `copied` names must
    /// already be stored.
    pub fn fork_for_copy(&self, actor: Actor, why: impl Into<String>, copied: ImportedTail) -> Result<Session> {
        let forked = Forked { imported_tail: Some(Box::new(copied)), ..Forked::new(self.record().point(), why) };
        self.fork_as(actor, forked, None)
    }

    /// A new session without a parent that starts with a copy of the context at this view.
    pub async fn detach(&self, actor: Actor, why: impl Into<String>) -> Result<Session> {
        detach(&self.reader, self.reference(), CachedActor::new(actor), why.into()).await
    }
}

/// Cuts the tails in `base` to what a fork at `point` depends on: drops later sessions and, in the session of `point`,
/// later records.
fn tail_up_to(mut base: List<PendingTail>, point: Point) -> List<PendingTail> {
    while let Some(mut tail) = base.pop() {
        if tail.lease.id == point.session {
            while tail.records.first().is_some_and(|record| record.seq() > point.seq) {
                tail.records.pop();
            }
            if tail.records.len() > 0 {
                base.push(tail);
            }
            return base;
        }
    }
    base
}

async fn detach(reader: &Reader, from: Reference, actor: Arc<CachedActor>, why: String) -> Result<Session> {
    let fold = ContextFold::run(reader, from.point(), true).await?;
    let items = fold.items();
    let mut copied = Vec::with_capacity(items.len());
    let mut copies = Vec::new();
    let mut blobs = Vec::new();
    for (item, Message { agent, .. }) in items.iter().zip(fold.messages()?) {
        let copy = Copied { agent, ..context::copy_of(reader, item).await? };
        for reference in crate::blob::references(copy.body.as_deref().unwrap_or_default().as_bytes()) {
            // The child may be published before its origin, so it must carry the blobs itself.
            blobs.push(Blob { bytes: reader.blob(reference.digest).await?, reference: reference.clone() });
            copies.push(reference);
        }
        copied.push(copy);
    }
    let context = Blob::new(&*encode::<Vec<Copied>>(&copied), "application/json");
    let body = Detached { from, why, context: context.reference.clone(), copies };
    blobs.push(context);
    let init = SessionInit::root(reader.store.clone(), actor);
    let extras = PendingData { blobs, ..PendingData::default() };
    let mut child = Session::start(init, Kind::Detached, &encode(&body), Some(extras));
    let items = context::items_of_copies(&copied, child.point(), child.0.head.generation)
        .map_err(|why| ErrorKind::Record { point: child.point(), why })?;
    child.0.context = Context { base: None, items };
    Ok(child)
}
