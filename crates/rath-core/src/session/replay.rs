//! A session that goes over what is recorded: a cursor, and what lies ahead of it.
//!
//! While a run is resumed its session stands at a cursor: head, state and context are those of that record, so every
//! read answers as of then. What the program appends is held against the next record and taken from there. A step that
//! was left is jumped over. At the last record the session is live, and nothing reminds of the cursor.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap as HashMap;

use super::gear::Gear;
use super::lease::Lease;
use super::{Context, Head, Line, Session, Voice};
use crate::actor::Actor;
use crate::body::{self, Forked, Manner, Merged, StepLeft, User};
use crate::context::{Item, Items};
use crate::error::{Diverged, ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::reader::Reader;
use crate::record::Record;
use crate::state::State;
use crate::store::{self, Row, Scan, Store, Which};
use crate::summary;

/// How many records are read ahead at once.
const PAGE: usize = 256;

/// A jump over fewer records folds them one by one; over more it starts from a snapshot.
const NEAR: u64 = 1024;

/// Records that others leave on a line, or that depend on the machine: they are taken in wherever they stand.
const AMBIENT: &[Kind] = &[
    Kind::SandboxOpened,
    Kind::SandboxClosed,
    Kind::SandboxLost,
    Kind::NetDecided,
    Kind::Restored,
    Kind::Labelled,
    Kind::Note,
    Kind::Linked,
    Kind::Answered,
    Kind::ToolStarted,
    Kind::ToolFinished,
];

/// What lies ahead on a line.
pub(super) struct Replay {
    /// The next records.
    ahead: VecDeque<Record>,
    /// The last record of the line.
    until: u64,
    /// Who began the line: records of others are not the program's.
    began: Actor,
    /// Where steps were left, by their `step_entered`.
    left: Arc<HashMap<RecordId, u64>>,
}

/// The branches that a run has stored, by the fork that made them. They are taken out one by one.
#[derive(Default)]
pub(super) struct Tree(Mutex<HashMap<ForkKey, Branch>>);

/// Which fork of which step of which line.
#[derive(PartialEq, Eq, Hash)]
struct ForkKey {
    line: SessionId,
    step: Option<RecordId>,
    which: ForkName,
}

#[derive(PartialEq, Eq, Hash)]
enum ForkName {
    Ordinal(u64),
    Call(String),
}

/// A stored branch, held.
struct Branch {
    row: Row,
    hold: Lease,
    first: Record,
    state: State,
    replay: Replay,
}

/// How a stored line begins: what a session at its first record is made of.
impl Branch {
    async fn load(store: &Arc<dyn Store>, row: Row) -> Result<Self> {
        let hold = match row.closed {
            // Nothing can be added to it: nobody need hold it.
            true => Lease::taken(store.clone(), row.id, 0),
            false => Lease::taken(store.clone(), row.id, store.lease(row.id).await?),
        };
        // What somebody added before it was held belongs to it.
        let row = crate::view::row(store, row.id).await?;
        hold.published.store(row.seq + 1, Ordering::Release);
        let point = Point { session: row.id, seq: 0 };
        let reader = Reader::new(store.clone());
        let first = reader.record(point).await?;
        let state = reader.state_at(point).await?;
        let began = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.actor;
        let left = Arc::new(left(&reader, &row).await?);
        let mut replay = Replay { ahead: VecDeque::new(), until: row.seq, began, left };
        replay.look_ahead(&reader, row.id, 0).await?;
        Ok(Self { row, hold, first, state, replay })
    }

    fn into_session(self, store: Arc<dyn Store>, actor: Arc<Voice>, tree: Arc<Tree>) -> Result<Session> {
        let Self { row, hold, first, state, replay } = self;
        let head = head_of(&first)?;
        let point = first.point();
        let mut records = List::new();
        records.push(first);
        let live = replay.until == 0;
        Ok(Session(Box::new(Line {
            store,
            hold,
            origin: row.origin,
            head,
            actor,
            state,
            context: Context { base: Some(point), items: Items::default() },
            records,
            ancestors: List::new(),
            fork_base: OnceLock::new(),
            durability: super::Durability::default(),
            needs_snapshot: false,
            oldest_unpublished: crate::clock::Time(0),
            at_boundary: false,
            gear: {
                let mut gear = Gear::of_run(Some(tree));
                gear.set_replay((!live).then_some(replay));
                gear
            },
        })))
    }
}

/// Where the steps of a line were left.
async fn left(reader: &Reader, row: &Row) -> Result<HashMap<RecordId, u64>> {
    let (mut left, mut from) = (HashMap::default(), 0);
    loop {
        let page = reader.page(row.id, from, row.seq, &[Kind::StepLeft]).await?;
        for record in &page.records {
            let body: StepLeft = record.body().map_err(|why| crate::reader::tampered(record, why))?;
            left.insert(body.step, record.seq());
        }
        match page.more {
            true => from = page.position,
            false => return Ok(left),
        }
    }
}

impl Replay {
    /// Reads on from behind `seq`, so far that everything is at hand which may be asked for before the next operation
    /// that can wait.
    async fn look_ahead(&mut self, reader: &Reader, session: SessionId, seq: u64) -> Result<()> {
        let waits = |record: &Record| matches!(record.kind(), Kind::StepEntered | Kind::Merged | Kind::Closed);
        let mut last = self.ahead.back().map_or(seq, Record::seq);
        while last < self.until && !self.ahead.iter().any(waits) {
            let scan = Scan::session(session, last + 1, self.until).limit(PAGE);
            let page = reader.store.scan(scan).await?;
            let Some(record) = page.records.last() else { break };
            last = record.seq();
            self.ahead.extend(page.records);
        }
        Ok(())
    }
}

/// Whether a record is none of the program's: of the machine, or of somebody else than `known`.
fn is_ambient(record: &Record, known: [&Actor; 2]) -> bool {
    let posted = || record.body::<User>().is_ok_and(|user| user.post.is_some());
    AMBIENT.contains(record.kind()) || posted() || !record.header().is_ok_and(|header| known.contains(&&header.actor))
}

fn head_of(record: &Record) -> Result<Head> {
    let point = record.point();
    let time = record.time().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
    Ok(Head { id: record.id(), seq: record.seq(), time, generation: record.generation() })
}

impl Session {
    /// Opens the session of a run at its first record, with everything that its branches have recorded.
    pub(super) async fn resume(store: &Arc<dyn Store>, session: SessionId, actor: Actor) -> Result<Self> {
        let row = crate::view::row(store, session).await?;
        let root = Branch::load(store, row).await?;
        let tree = Arc::new(Tree::default());
        let mut parents = vec![session];
        while let Some(parent) = parents.pop() {
            for row in store.sessions(Which::ChildrenOf(parent).into()).await? {
                if row.birth != Kind::Forked {
                    continue;
                }
                let first = Reader::new(store.clone()).record(Point { session: row.id, seq: 0 }).await?;
                let forked: Forked = first.body().map_err(|why| crate::reader::tampered(&first, why))?;
                let which = match (forked.call, forked.ordinal) {
                    (Some(call), _) => ForkName::Call(call),
                    (None, Some(ordinal)) => ForkName::Ordinal(ordinal),
                    // Somebody else's: a fork that no run made.
                    (None, None) => continue,
                };
                let point = first.point();
                let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
                parents.push(row.id);
                let key = ForkKey { line: parent, step, which };
                let branch = Branch::load(store, row).await?;
                tree.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, branch);
            }
        }
        root.into_session(store.clone(), Voice::new(actor), tree)
    }

    /// Whether the session is at its last record: what it does is new.
    pub fn is_live(&self) -> bool {
        self.0.gear.replay().is_none()
    }

    /// The branch that this fork made before, if the run has it.
    pub(super) fn recorded_fork(&self, ordinal: u64, call: Option<&str>) -> Option<Session> {
        let tree = self.0.gear.tree()?;
        let which = call.map_or(ForkName::Ordinal(ordinal), |call| ForkName::Call(call.into()));
        let key = ForkKey { line: self.id(), step: self.0.state.step().copied(), which };
        let branch = tree.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key)?;
        let mut fork = branch.into_session(self.0.store.clone(), self.0.actor.clone(), tree.clone()).ok()?;
        fork.0.durability = self.0.durability;
        let replay = fork.0.gear.own_mut().replay.take();
        fork.0.gear = self.0.gear.inherited();
        fork.0.gear.set_replay(replay);
        Some(fork)
    }

    /// The branch that was made for a call and never taken in, at its end.
    pub async fn branch_of_call(&self, call: &str) -> Result<Option<Session>> {
        let Some(mut branch) = self.recorded_fork(0, Some(call)) else { return Ok(None) };
        branch.jump_to_the_end().await?;
        Ok(Some(branch).filter(|branch| !branch.0.state.closed))
    }

    /// Holds a record that the program makes against the recorded one. `None` when the session is live.
    pub(super) fn take_recorded(&mut self, kind: &Kind, same: impl Fn(&Record) -> bool) -> Result<Option<Record>> {
        while let Some(replay) = self.0.gear.replay_mut() {
            let Some(next) = replay.ahead.front() else {
                if self.0.head.seq < replay.until {
                    let seq = replay.until;
                    let point = self.point();
                    return Err(store::Error::machine(
                        "resuming",
                        format!("records {} to {seq} of {} were not read", point.seq + 1, point.session.short()),
                    )
                    .into());
                }
                self.0.gear.set_replay(None);
                break;
            };
            if next.kind() == kind && same(next) {
                let next = replay.ahead.pop_front();
                return Ok(next);
            }
            if is_ambient(next, [&replay.began, &self.0.actor.actor]) {
                self.absorb_next()?;
                continue;
            }
            let (point, recorded) = (next.point(), summary::of(next));
            let diverged = Diverged { point, recorded, now: kind.to_string(), changed: Vec::new() };
            return Err(ErrorKind::Diverged(Box::new(diverged)).into());
        }
        Ok(None)
    }

    /// The next record of a kind, if the program may come to it now; ambient ones before it are taken in.
    pub(super) fn peek_recorded(&mut self, kind: &Kind) -> Result<Option<Record>> {
        loop {
            let Some(replay) = self.0.gear.replay() else { return Ok(None) };
            let Some(next) = replay.ahead.front() else { return Ok(None) };
            if next.kind() == kind {
                return Ok(Some(next.clone()));
            }
            if !is_ambient(next, [&replay.began, &self.0.actor.actor]) {
                return Ok(None);
            }
            self.absorb_next()?;
        }
    }

    /// Moves the cursor over the next record.
    pub(super) fn absorb_next(&mut self) -> Result<()> {
        match self.0.gear.replay_mut().and_then(|replay| replay.ahead.pop_front()) {
            Some(record) => self.absorb(record),
            None => Ok(()),
        }
    }

    /// What was taken; where the code diverges, live on a fork if that is wanted.
    pub(super) fn unless_diverged(
        &mut self,
        taken: Result<Option<Record>>,
        now: impl FnOnce() -> String,
    ) -> Result<Option<Record>> {
        match taken {
            Err(error) if matches!(error.kind(), ErrorKind::Diverged(_)) => {
                let error = error.now(now());
                match self.0.gear.on_divergence() {
                    super::OnDivergence::Stop => Err(error),
                    super::OnDivergence::Fork => {
                        self.go_on_as_fork(error.to_string());
                        Ok(None)
                    }
                }
            }
            taken => taken,
        }
    }

    /// Moves the cursor over a record.
    pub(super) fn absorb(&mut self, record: Record) -> Result<()> {
        let point = record.point();
        self.0.state.apply(&record).map_err(|why| ErrorKind::Record { point, why })?;
        self.0.head = head_of(&record)?;
        if record.kind().is_conversation()
            && let Some(bytes) = record.body_bytes()
        {
            let meaning = body::read(record.kind(), bytes).map_err(|why| ErrorKind::Record { point, why })?;
            if let Some(shape) = meaning.and_then(|meaning| meaning.shape()) {
                self.0.context.items.push(Item::new(point, 0, shape, record.generation()));
            }
        }
        self.0.records.push(record);
        self.0.fork_base = OnceLock::new();
        self.come_to_life();
        Ok(())
    }

    /// Forgets the cursor when nothing lies ahead.
    fn come_to_life(&mut self) {
        if self.0.gear.replay().is_some_and(|replay| self.0.head.seq >= replay.until) {
            self.0.gear.set_replay(None);
        }
    }

    /// Sees to it that what may be asked for next is at hand.
    pub(super) async fn look_ahead(&mut self) -> Result<()> {
        let (id, seq) = (self.id(), self.0.head.seq);
        if let Some(replay) = self.0.gear.replay_mut() {
            replay.look_ahead(&Reader::new(self.0.store.clone()), id, seq).await?;
        }
        Ok(())
    }

    /// Moves the cursor to `seq` without looking at what is between.
    pub(super) async fn jump(&mut self, to: u64) -> Result<()> {
        let (id, reader) = (self.id(), Reader::new(self.0.store.clone()));
        let until = self.0.gear.replay().map_or(to, |replay| replay.until);
        let mut ahead = self.0.gear.replay_mut().map(|replay| std::mem::take(&mut replay.ahead)).unwrap_or_default();
        let mut last = None;
        while self.0.head.seq < to {
            if let Some(record) = ahead.pop_front() {
                self.0.state.apply(&record).map_err(|why| ErrorKind::Record { point: record.point(), why })?;
                self.0.head.seq = record.seq();
                last = Some(record);
            } else if to - self.0.head.seq <= NEAR {
                let scan = Scan::session(id, self.0.head.seq + 1, until).limit(PAGE);
                ahead = self.0.store.scan(scan).await?.records.into();
                if ahead.is_empty() {
                    return Err(store::Error::NotFound(format!("record {id}@{to}")).into());
                }
            } else {
                let point = Point { session: id, seq: to };
                self.0.state = reader.state_at(point).await?;
                let record = reader.record(point).await?;
                self.0.head.seq = to;
                last = Some(record);
            }
        }
        if let Some(record) = last {
            self.0.head = head_of(&record)?;
            self.0.records = List::new();
            self.0.records.push(record);
        }
        self.0.fork_base = OnceLock::new();
        self.0.context = Context { base: Some(Point { session: id, seq: to }), items: Items::default() };
        if let Some(replay) = self.0.gear.replay_mut() {
            replay.ahead = ahead;
        }
        self.come_to_life();
        self.look_ahead().await
    }

    /// Where the step that was just entered again was left.
    pub(super) fn was_left(&self, step: &RecordId) -> Option<u64> {
        self.0.gear.replay().and_then(|replay| replay.left.get(step)).copied()
    }

    /// Jumps to the end of the line: what an agent's step goes on from.
    pub(super) async fn jump_to_the_end(&mut self) -> Result<()> {
        match self.0.gear.replay().map(|replay| replay.until) {
            Some(until) => self.jump(until).await,
            None => Ok(()),
        }
    }

    /// A merge that is recorded: these branches, in this manner. Returns where its records stand.
    pub(super) async fn recorded_merge(&mut self, others: &[Session], how: &super::How) -> Result<Option<Vec<Point>>> {
        let mut places = Vec::new();
        let mut left: VecDeque<SessionId> = others.iter().map(Session::id).collect();
        while !left.is_empty() {
            let Some(record) = self.peek_recorded(&Kind::Merged)? else {
                if let Some(next) = self.0.gear.replay().and_then(|replay| replay.ahead.front()) {
                    let (point, recorded) = (next.point(), summary::of(next));
                    let diverged = Diverged { point, recorded, now: "merged".into(), changed: Vec::new() };
                    return Err(ErrorKind::Diverged(Box::new(diverged)).into());
                }
                return Ok(None);
            };
            let point = record.point();
            let body: Merged = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            let same_manner = match (&body.how, how) {
                (Manner::Keep { chosen }, super::How::Keep { chosen: now, .. }) => chosen == now,
                (Manner::Append, super::How::Append)
                | (Manner::Synthesize, super::How::Synthesize(_))
                | (Manner::TakeIn, super::How::TakeIn) => true,
                _ => false,
            };
            let same = body.branches.iter().all(|branch| left.pop_front() == Some(branch.session));
            if !(same && same_manner) {
                let recorded = summary::of(&record);
                let now = others.iter().map(|other| other.id().short()).collect::<Vec<_>>().join(", ");
                let diverged = Diverged { point, recorded, now: format!("a merge of {now}"), changed: Vec::new() };
                return Err(ErrorKind::Diverged(Box::new(diverged)).into());
            }
            places.push(point);
            self.jump(point.seq).await?;
        }
        let rejected = |session: &Session| {
            let next = session.0.gear.replay().and_then(|replay| replay.ahead.front());
            next.filter(|next| *next.kind() == Kind::Rejected).map(Record::seq)
        };
        while let Some(seq) = rejected(self) {
            self.jump(seq).await?;
        }
        Ok(Some(places))
    }

    /// Leaves the recorded line where it diverges, and goes on live on a fork of it at the cursor.
    pub(super) fn go_on_as_fork(&mut self, why: impl Into<String>) {
        let mut fork = self.fork_anew(why.into(), None, None);
        fork.0.gear = self.0.gear.inherited();
        fork.0.gear.shared_mut().tree = None;
        *self = fork;
    }
}
