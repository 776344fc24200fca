//! Forking and detaching. Both take `&self`: they write only in the child.

use std::sync::Arc;

use super::publish::{Durability, Unpublished};
use super::run::OnDivergence;
use super::{Birth, Context, Head, Session, Voice, encode};
use crate::actor::Actor;
use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Blob;
use crate::body::{CopiedLine, Detached, Forked};
use crate::context::{self, ContextFold, Items};
use crate::error::{ErrorKind, Result};
use crate::history::Reach;
use crate::id::{Point, Reference};
use crate::kind::Kind;
use crate::list::List;
use crate::message::{Copied, Message};
use crate::reader::Reader;
use crate::record::Extras;
use crate::state::State;
use crate::view::View;

impl Session {
    /// A branch of this session, from its head. Costs the same for any length.
    pub fn fork(&self, why: impl Into<String>) -> Session {
        self.fork_for(why.into(), None)
    }

    /// A branch for a tool call: resuming finds it by the call.
    pub fn fork_for_call(&self, why: impl Into<String>, call: &str) -> Session {
        self.fork_for(why.into(), Some(call))
    }

    fn fork_for(&self, why: String, call: Option<&str>) -> Session {
        let ordinal = if call.is_none() { self.0.gear.next_fork() } else { None };
        let mut forked = Forked { ordinal, call: call.map(Into::into), ..Forked::new(self.point(), why) };
        forked.step_key = self.0.state.branch_key(&forked);
        let recorded = self.recorded_fork(&forked);
        let anew = || {
            let context = self.0.context.clone();
            self.branch(self.head(), &self.0.head, forked, &self.0.state, context, self.fork_base(), None)
        };
        let mut fork = match recorded {
            Ok(Some(fork)) => fork,
            Ok(None) => anew(),
            // Whoever uses it hears of it.
            Err(error) => {
                let mut fork = anew();
                fork.0.gear.own_mut().broken = error.to_broken();
                fork
            }
        };
        if call.is_some() && self.0.gear.on_divergence() == OnDivergence::Fork {
            // What a call came to is on the caller's line: its branch cannot become another one.
            fork.0.gear.shared_mut().on_divergence = OnDivergence::Stop;
        }
        fork
    }

    /// A branch from an earlier record, of this session or of one behind it.
    pub async fn fork_at(&self, point: Point, why: impl Into<String>) -> Result<Session> {
        if point == self.point() {
            return Ok(self.fork(why));
        }
        let ordinal = self.0.gear.next_fork();
        let maker = ordinal.map(|_| self.as_maker());
        let mut forked = Forked { ordinal, maker, ..Forked::new(point, why) };
        forked.step_key = self.0.state.branch_key(&forked);
        if let Some(tree) = self.0.gear.tree() {
            tree.clone().open_branches_at(point.session, self.as_maker()).await?;
        }
        if let Some(fork) = self.recorded_fork(&forked)? {
            return Ok(fork);
        }
        let reader = self.reader();
        let reach = Reach::of(&reader, &[self.point()]).await?;
        if reach.lines.get(&point.session).is_none_or(|extent| extent.to < point.seq) {
            return Err(ErrorKind::NotBehind(point).into());
        }
        let record = reader.record(point).await?;
        let header = record.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let head = Head { id: record.id(), seq: point.seq, time: header.time, generation: record.generation() };
        let arrived = Arrivals::of(&self.0.store).await?.at(&reader, point).await?;
        let state = reader.state_at(point).await?;
        let context = Context { base: Some(point), items: Items::default() };
        // A run finds the fork by who made it: that must be stored before the fork is.
        let ancestors = if forked.maker.is_some() { self.fork_base() } else { up_to(self.fork_base(), point) };
        let fork = self.branch(record.reference(), &head, forked, &state, context, ancestors, None);
        let is_left = point.session == self.id() && self.0.arrival.is_some_and(|arrival| arrival.covers(point.seq));
        Ok(fork.without_what_arrived(arrived.filter(|_| !is_left)))
    }

    /// What a fork from the head stands on and the store does not have.
    pub(super) fn fork_base(&self) -> List<Unpublished> {
        let base = self.0.fork_base.get_or_init(|| {
            let mut ancestors = self.0.ancestors.clone();
            if self.unpublished().next().is_some() {
                let taken = self.0.gear.taken().to_vec();
                ancestors.push(Unpublished { hold: self.0.hold.share(), records: self.0.records.clone(), taken });
            }
            ancestors
        });
        base.clone()
    }

    /// A line forked at `at`, where the state was `state`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the new line")]
    pub(super) fn branch(
        &self,
        from: Reference,
        at: &Head,
        forked: Forked,
        state: &State,
        context: Context,
        ancestors: List<Unpublished>,
        extras: Option<Extras>,
    ) -> Session {
        let from_elsewhere = self.0.arrival.filter(|arrival| from.session == self.id() && arrival.covers(from.seq));
        let birth = Birth {
            store: self.0.store.clone(),
            actor: self.0.actor.clone(),
            origin: Some(from),
            parent: Some(at),
            state: forked.begin(state),
            context,
            ancestors,
            durability: self.0.durability,
            gear: self.0.gear.inherited(),
        };
        let mut fork = Self::born(birth, Kind::Forked, &encode(&forked), extras);
        if let Some(arrival) = from_elsewhere {
            // Also where this session's state shows nothing of it any more: the records that the fork stands on say it.
            fork.begin_here(&arrival);
        }
        fork
    }

    /// Ends what was said elsewhere, on a fork that begins with it.
    fn begin_here(&mut self, arrival: &Arrival) {
        // A new line is open and live: nothing refuses a record there.
        let _ = self.end_arrival(arrival);
    }

    /// As [`begin_here`](Self::begin_here), if there is something to end.
    fn without_what_arrived(mut self, arrival: Option<Arrival>) -> Session {
        if let Some(arrival) = arrival.filter(|_| self.0.state.would_leave()) {
            self.begin_here(&arrival);
        }
        self
    }

    /// A new root with a copy of this session's context. Its history and usage start at zero.
    ///
    /// It is no part of a run: in the middle of one it is refused, since resuming could not find it again.
    pub async fn detach(&self, why: impl Into<String>) -> Result<Session> {
        if self.0.gear.is_in_run() && !self.pending().steps.is_empty() {
            return Err(ErrorKind::DetachInRun(self.id()).into());
        }
        let mut child = detach(&self.reader(), self.head(), self.0.actor.clone(), why.into()).await?;
        child.0.durability = self.0.durability;
        Ok(child)
    }
}

impl View {
    /// A branch of a session that is only looked at: it may be held elsewhere, or closed.
    pub fn fork(&self, actor: Actor, why: impl Into<String>) -> Result<Session> {
        self.fork_as(actor, Forked::new(self.record().point(), why))
    }

    fn fork_as(&self, actor: Actor, forked: Forked) -> Result<Session> {
        let record = self.record();
        let point = record.point();
        let time = record.time().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let head = Head { id: record.id(), seq: point.seq, time, generation: record.generation() };
        let birth = Birth {
            store: self.reader.store.clone(),
            actor: Voice::new(actor),
            origin: Some(record.reference()),
            parent: Some(&head),
            state: forked.begin(self.recorded_state()),
            context: Context { base: Some(point), items: Items::default() },
            ancestors: up_to(self.unpublished.clone(), point),
            durability: Durability::default(),
            gear: super::Gear::default(),
        };
        // What a copied line says was said elsewhere too.
        let arrival = self.arrival.or_else(|| forked.copied.is_some().then(Arrival::unlisted));
        Ok(Session::born(birth, Kind::Forked, &encode(&forked), None).without_what_arrived(arrival))
    }

    /// A branch that says again what a line of another store said from here on. The blob that `copied` names is in
    /// the store already.
    pub fn fork_for_copy(&self, actor: Actor, why: impl Into<String>, copied: CopiedLine) -> Result<Session> {
        self.fork_as(actor, Forked { copied: Some(Box::new(copied)), ..Forked::new(self.record().point(), why) })
    }

    /// A new root with a copy of the context here.
    pub async fn detach(&self, actor: Actor, why: impl Into<String>) -> Result<Session> {
        detach(&self.reader, self.reference(), Voice::new(actor), why.into()).await
    }
}

/// The part of a base that a fork at `point` stands on: no younger line, and of its own line no younger record.
fn up_to(mut base: List<Unpublished>, point: Point) -> List<Unpublished> {
    while let Some(mut line) = base.pop() {
        if line.hold.id == point.session {
            while line.records.first().is_some_and(|record| record.seq() > point.seq) {
                line.records.pop();
            }
            if line.records.len() > 0 {
                base.push(line);
            }
            return base;
        }
    }
    base
}

async fn detach(reader: &Reader, from: Reference, actor: Arc<Voice>, why: String) -> Result<Session> {
    let fold = ContextFold::run(reader, from.point(), true).await?;
    let items = fold.items();
    let mut copied = Vec::with_capacity(items.len());
    let mut copies = Vec::new();
    let mut blobs = Vec::new();
    for (item, Message { agent, .. }) in items.iter().zip(fold.messages()?) {
        let copy = Copied { agent, ..context::copy_of(reader, item).await? };
        for reference in crate::blob::references(copy.body.as_deref().unwrap_or_default().as_bytes()) {
            // The child may be published before its origin: it brings the blobs itself.
            blobs.push(Blob { bytes: reader.blob(reference.digest).await?, reference: reference.clone() });
            copies.push(reference);
        }
        copied.push(copy);
    }
    let context = Blob::new(&*encode::<Vec<Copied>>(&copied), "application/json");
    let body = Detached { from, why, context: context.reference.clone(), copies };
    blobs.push(context);
    let birth = Birth::root(reader.store.clone(), actor);
    let extras = Extras { blobs, ..Extras::default() };
    let mut child = Session::born(birth, Kind::Detached, &encode(&body), Some(extras));
    let items = context::items_of_copies(&copied, child.point(), child.0.head.generation)
        .map_err(|why| ErrorKind::Record { point: child.point(), why })?;
    child.0.context = Context { base: None, items };
    Ok(child)
}
