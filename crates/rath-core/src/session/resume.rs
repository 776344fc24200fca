//! Replay of a recorded session: a cursor, and the records ahead of it.
//!
//! While a run is replayed, its session is at a cursor: head, state and context are those of the record at the cursor,
//! and reads answer as of that record. Each record that the program appends is compared with the next recorded one,
//! which is used in its place. A finished step is skipped. After the last record the session is live.

use std::collections::VecDeque;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::run::OnDivergence;
use super::run_tree::Branch;
use super::{Context, Head, Session};
use crate::actor::Actor;
use crate::body::{self, ContinuedFrom, Forked, ForkedBy, MergeStrategy, Merged, StepEntered, User};
use crate::context::{Item, Items};
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::{Kind, OnResume};
use crate::list::List;
use crate::reader::Reader;
use crate::record::{PendingData, Record};
use crate::store::{self, Scan};
use crate::summary;

/// The number of records to read ahead in one scan.
const PAGE: usize = 1024;

/// A jump over at most this many records folds each of them; a longer one starts from a snapshot.
const FOLD_AT_MOST: u64 = 1024;

/// The records ahead of the cursor in one session.
pub(super) struct Replay {
    /// The next records.
    ahead: VecDeque<Record>,
    /// The last record of the session, or the last one before the run continued on another session.
    until: u64,
    /// The actor who started the session. Records of other actors were not made by the program.
    started_by: Actor,
    /// Why the session was forked.
    why: String,
    /// The `step_left` records of finished steps, by `step_entered`.
    pub(super) finished_steps: HashMap<RecordId, Point>,
    /// The session on which the run continued after it left this one.
    continuation: Option<Box<Branch>>,
}

impl Replay {
    pub(super) fn new(until: u64, started_by: Actor, why: String, finished_steps: HashMap<RecordId, Point>) -> Self {
        Self { ahead: VecDeque::new(), until, started_by, why, finished_steps, continuation: None }
    }

    /// Sets the session on which the run continues after the last record. Steps of this session may finish there.
    pub(super) fn continues_on(&mut self, continuation: Branch) {
        self.finished_steps.extend(continuation.finished_steps());
        self.continuation = Some(Box::new(continuation));
    }

    /// The session on which the run continued after it left this one.
    pub(super) fn continuation(&self) -> Option<&Branch> {
        self.continuation.as_deref()
    }

    /// The steps ahead that the program can enter, and fork in, without awaiting anything.
    pub(super) fn reachable_forking_steps(&self, session: SessionId) -> impl Iterator<Item = ForkedBy> {
        let reachable = self.ahead.iter().take_while(|record| !can_wait(record));
        let entered = reachable.filter(|record| *record.kind() == Kind::StepEntered);
        entered.map(move |record| ForkedBy { session, step: Some(record.id()) })
    }

    /// Reads records after `seq` until the next operation that awaits, so that everything that the program can append
    /// before that operation is in memory.
    pub(super) async fn read_ahead(&mut self, reader: &Reader, session: SessionId, seq: u64) -> Result<()> {
        let mut last = self.ahead.back().map_or(seq, Record::seq);
        let mut enough = self.ahead.iter().any(can_wait);
        while last < self.until && !enough {
            let scan = Scan::session(session, last + 1, self.until).limit(PAGE);
            let page = reader.store.scan(scan).await?;
            let Some(record) = page.records.last() else { break };
            last = record.seq();
            enough = page.records.iter().any(can_wait);
            self.ahead.extend(page.records);
        }
        Ok(())
    }
}

/// Whether a record is made by an asynchronous operation, which can read further records.
fn can_wait(record: &Record) -> bool {
    match record.kind() {
        Kind::Merged | Kind::Closed => true,
        // `enter` is synchronous. Its records have no role.
        Kind::StepEntered => record.body::<StepEntered>().is_ok_and(|step| step.role.is_some()),
        _ => false,
    }
}

/// Whether replay ignores a record because the program did not make it: a record of the runtime, a post, or a record by
/// an actor that is not in `known`.
pub(super) fn is_ignored_on_replay(record: &Record, known: [&Actor; 2]) -> bool {
    let posted = || record.body::<User>().is_ok_and(|user| user.post.is_some());
    record.kind().row().resume == OnResume::Ignored
        || posted()
        || !record.header().is_ok_and(|header| known.contains(&&header.actor))
}

pub(super) fn head_of(record: &Record) -> Result<Head> {
    let point = record.point();
    let time = record.time().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
    Ok(Head { id: record.id(), seq: record.seq(), time, generation: record.generation() })
}

impl Session {
    /// Whether replay has finished: records appended now are new.
    pub fn is_live(&self) -> bool {
        self.0.run_context.replay().is_none()
    }

    /// The branch that was forked for a call, at its last record. It is closed if it was merged.
    pub async fn branch_of_call(&self, call: &str) -> Result<Option<Session>> {
        let forked = Forked { call: Some(call.into()), ..Forked::new(self.point(), "") };
        let Some(mut branch) = self.recorded_fork(&forked)? else { return Ok(None) };
        branch.jump_to_end().await?;
        Ok(Some(branch))
    }

    /// Whether a recorded fork at `point` is one that the program makes now: the program made no record since.
    pub(super) fn forked_here(&self, point: Point) -> bool {
        let made = self.0.run_context.own().map_or(0, |own| own.last_program_record).min(self.0.head.seq);
        if point.session != self.id() || point.seq < made {
            return false;
        }
        let Some(replay) = self.0.run_context.replay().filter(|_| point.seq > self.0.head.seq) else {
            return point.seq <= self.0.head.seq;
        };
        // Records that replay ignores may be in between.
        let between: Vec<_> = replay.ahead.iter().take_while(|record| record.seq() <= point.seq).collect();
        between.last().is_some_and(|record| record.seq() == point.seq)
            && between.iter().all(|record| is_ignored_on_replay(record, [&replay.started_by, &self.0.actor.actor]))
    }

    /// Takes the next recorded record if it has this kind and `same` accepts it. Fails if the program diverges from it.
    /// `None` when the session is live.
    pub(super) fn take_recorded(&mut self, kind: &Kind, same: impl Fn(&Record) -> bool) -> Result<Option<Record>> {
        self.0.run_context.check()?;
        while let Some(replay) = self.0.run_context.replay_mut() {
            let Some(next) = replay.ahead.front() else {
                let until = replay.until;
                if self.0.head.seq >= until {
                    self.follow_continuation()?;
                    continue;
                }
                let Point { session, seq } = self.point();
                let why = format!("records {} to {until} of {} were not read", seq + 1, session.short());
                return Err(store::Error::machine("resuming", why).into());
            };
            if next.kind() == kind && same(next) {
                let next = replay.ahead.pop_front();
                return Ok(next);
            }
            if is_ignored_on_replay(next, [&replay.started_by, &self.0.actor.actor]) {
                self.advance()?;
                continue;
            }
            return Err(diverged(next, kind.to_string()));
        }
        Ok(None)
    }

    /// The next record if it is of this kind. Advances over records before it that replay ignores.
    pub(super) fn peek_recorded(&mut self, kind: &Kind) -> Result<Option<Record>> {
        loop {
            let Some(replay) = self.0.run_context.replay() else { return Ok(None) };
            let Some(next) = replay.ahead.front() else {
                if self.0.head.seq < replay.until {
                    return Ok(None);
                }
                self.follow_continuation()?;
                continue;
            };
            if next.kind() == kind {
                return Ok(Some(next.clone()));
            }
            if !is_ignored_on_replay(next, [&replay.started_by, &self.0.actor.actor]) {
                return Ok(None);
            }
            self.advance()?;
        }
    }

    /// Advances the cursor over the next record.
    pub(super) fn advance(&mut self) -> Result<()> {
        match self.0.run_context.replay_mut().and_then(|replay| replay.ahead.pop_front()) {
            Some(record) => self.advance_over(record),
            None => Ok(()),
        }
    }

    /// Returns `taken`. On a divergence in fork mode, continues live on a fork and returns `None`.
    pub(super) fn fork_if_diverged(&mut self, recorded: Result<Option<Record>>) -> Result<Option<Record>> {
        match recorded {
            Err(error)
                if matches!(error.kind(), ErrorKind::Diverged(_))
                    && self.0.run_context.on_divergence() == OnDivergence::Fork =>
            {
                self.continue_on_fork(error.to_string());
                Ok(None)
            }
            recorded => recorded,
        }
    }

    /// Advances the cursor over a record.
    pub(super) fn advance_over(&mut self, record: Record) -> Result<()> {
        let point = record.point();
        let known = self.0.run_context.replay().map(|replay| [&replay.started_by, &self.0.actor.actor]);
        if known.is_none_or(|known| !is_ignored_on_replay(&record, known)) {
            self.0.run_context.note_program_record(record.seq());
        }
        self.0.state.apply(&record).map_err(|why| ErrorKind::Record { point, why })?;
        self.0.head = head_of(&record)?;
        self.revoke_foreign_authority();
        if record.kind().is_conversation()
            && let Some(bytes) = record.body_bytes()
        {
            let dyn_body = body::read(record.kind(), bytes).map_err(|why| ErrorKind::Record { point, why })?;
            if let Some(item_kind) = dyn_body.and_then(|dyn_body| dyn_body.item_kind()) {
                self.0.context.items.push(Item::new(point, 0, item_kind, record.generation()));
            }
        }
        self.0.records.push(record);
        self.0.fork_base = OnceLock::new();
        self.finish_replay();
        Ok(())
    }

    /// Makes the session live if no record is ahead.
    pub(super) fn finish_replay(&mut self) {
        let seq = self.0.head.seq;
        if self.0.run_context.replay().is_some_and(|replay| seq >= replay.until && replay.continuation.is_none()) {
            self.0.run_context.set_replay(None);
        }
    }

    /// At the end of a session that the run left, moves to the session on which the run continued; otherwise becomes
    /// live. Called only when a record is requested, because forks that the program makes before that belong to this
    /// session.
    fn follow_continuation(&mut self) -> Result<()> {
        match self.0.run_context.replay_mut().and_then(|replay| replay.continuation.take()) {
            Some(branch) => {
                let session = self.open_branch(*branch)?;
                self.move_to(session);
            }
            None => self.0.run_context.set_replay(None),
        }
        Ok(())
    }

    /// Checks that a branch to be merged is live or has only its `closed` record ahead, which an earlier merge wrote.
    pub(super) fn end_for_merge(&mut self) -> Result<()> {
        self.0.run_context.check()?;
        if self.is_live() || self.peek_recorded(&Kind::Closed)?.is_some() {
            return Ok(());
        }
        match self.0.run_context.replay().and_then(|replay| replay.ahead.front()) {
            Some(next) => {
                let error = diverged(next, "closed: merged".into());
                self.fork_if_diverged(Err(error)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Reads ahead, so that everything that the program can append next is in memory.
    pub(super) async fn read_ahead(&mut self) -> Result<()> {
        let (id, seq) = (self.id(), self.0.head.seq);
        if let Some(replay) = self.0.run_context.replay_mut() {
            replay.read_ahead(&Reader::new(self.0.store.clone()), id, seq).await?;
        }
        if let (Some(replay), Some(tree)) = (self.0.run_context.replay(), self.0.run_context.tree()) {
            let forking_steps: Vec<ForkedBy> = replay.reachable_forking_steps(id).collect();
            if !forking_steps.is_empty() {
                tree.clone().open_branches_of(forking_steps).await?;
            }
        }
        Ok(())
    }

    /// Moves the cursor to the record at `to` without comparing the records in between. Returns that record, or `None`
    /// if the cursor was already there.
    pub(super) async fn jump(&mut self, to: u64) -> Result<Option<Record>> {
        let (id, reader) = (self.id(), Reader::new(self.0.store.clone()));
        let until = self.0.run_context.replay().map_or(to, |replay| replay.until);
        let mut ahead =
            self.0.run_context.replay_mut().map(|replay| std::mem::take(&mut replay.ahead)).unwrap_or_default();
        let mut last = None;
        while self.0.head.seq < to {
            if let Some(record) = ahead.pop_front() {
                self.0.state.apply(&record).map_err(|why| ErrorKind::Record { point: record.point(), why })?;
                self.0.head.seq = record.seq();
                last = Some(record);
            } else if to - self.0.head.seq <= FOLD_AT_MOST {
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
        if let Some(record) = &last {
            self.0.run_context.note_program_record(to);
            self.0.head = head_of(record)?;
            self.0.records = List::new();
            self.0.records.push(record.clone());
            self.revoke_foreign_authority();
        }
        self.0.fork_base = OnceLock::new();
        self.0.context = Context { base: Some(Point { session: id, seq: to }), items: Items::default() };
        if let Some(replay) = self.0.run_context.replay_mut() {
            replay.ahead = ahead;
        }
        self.finish_replay();
        self.read_ahead().await?;
        Ok(last)
    }

    /// The `step_left` record of a step, if the step finished.
    pub(super) fn step_left_at(&self, step: &RecordId) -> Option<Point> {
        self.0.run_context.replay().and_then(|replay| replay.finished_steps.get(step)).copied()
    }

    /// Moves the cursor to a record of this session or of a session on which the run continued.
    pub(super) async fn jump_to(&mut self, to: Point) -> Result<Record> {
        while self.id() != to.session
            && let Some(until) = self.0.run_context.replay().map(|replay| replay.until)
        {
            self.jump(until).await?;
            self.follow_continuation()?;
        }
        match self.jump(to.seq).await? {
            Some(record) => Ok(record),
            // The cursor was there.
            None if self.point() == to => Ok(self.reader().record(to).await?),
            None => Err(store::Error::NotFound(format!("record {to}")).into()),
        }
    }

    /// Moves the cursor to the last record of the run, from which an agent's step continues.
    pub(super) async fn jump_to_end(&mut self) -> Result<()> {
        while let Some(until) = self.0.run_context.replay().map(|replay| replay.until) {
            self.jump(until).await?;
            self.follow_continuation()?;
        }
        Ok(())
    }

    /// Replays a recorded merge of these branches with this strategy. Returns the points of its records.
    pub(super) async fn recorded_merge(&mut self, others: &[Session], how: &super::How) -> Result<Option<Vec<Point>>> {
        let mut points = Vec::new();
        // The recorded order of the branches counts, not the order in `others`.
        let mut left: HashSet<SessionId> = others.iter().map(Session::id).collect();
        while !left.is_empty() {
            let record = match self.recorded_part_of_merge(&mut left, others, how) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                // A merge of which a part is recorded cannot be repeated on a fork.
                Err(error) if !points.is_empty() => return Err(error),
                Err(error) => match self.fork_if_diverged(Err(error))? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            let point = record.point();
            points.push(point);
            self.jump(point.seq).await?;
        }
        let rejected = |session: &Session| {
            let next = session.0.run_context.replay().and_then(|replay| replay.ahead.front());
            next.filter(|next| *next.kind() == Kind::Rejected).map(Record::seq)
        };
        while let Some(seq) = rejected(self) {
            self.jump(seq).await?;
        }
        Ok(Some(points))
    }

    /// The next `merged` record of a merge, if there is one ahead. Removes its branches from `left`.
    fn recorded_part_of_merge(
        &mut self,
        left: &mut HashSet<SessionId>,
        others: &[Session],
        how: &super::How,
    ) -> Result<Option<Record>> {
        let now = || {
            let names: Vec<_> = others.iter().map(|other| other.id().short()).collect();
            format!("a merge of {}", names.join(", "))
        };
        let Some(record) = self.peek_recorded(&Kind::Merged)? else {
            return match self.0.run_context.replay().and_then(|replay| replay.ahead.front()) {
                Some(next) => Err(diverged(next, now())),
                None => Ok(None),
            };
        };
        let point = record.point();
        let body: Merged = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        let same_manner = match (&body.how, how) {
            (MergeStrategy::Keep { chosen }, super::How::Keep { chosen: now, .. }) => chosen == now,
            (MergeStrategy::Append, super::How::Append)
            | (MergeStrategy::Synthesize, super::How::Synthesize(_))
            | (MergeStrategy::FilesOnly, super::How::FilesOnly { .. })
            | (MergeStrategy::PerBranch, super::How::PerBranch { .. }) => true,
            _ => false,
        };
        let same = body.branches.iter().all(|branch| left.remove(&branch.session));
        match same && same_manner {
            true => Ok(Some(record)),
            false => Err(diverged(&record, now())),
        }
    }

    /// Leaves the recorded session at the divergence and continues live on a fork at the cursor.
    fn continue_on_fork(&mut self, diverged: String) {
        let Some((tree, why)) =
            self.0.run_context.tree().cloned().zip(self.0.run_context.replay().map(|replay| replay.why.clone()))
        else {
            return;
        };
        let program = self.0.run_context.shared().and_then(|shared| shared.program.clone());
        let continued_from = ContinuedFrom {
            diverged,
            resume_id: tree.resume_id(),
            program: program.as_ref().map(|program| program.reference.clone()),
        };
        let forked = Forked { continued_from: Some(continued_from), ..Forked::new(self.point(), why) };
        let (title, context) = (self.0.state.title.clone(), self.0.context.clone());
        let extras = program.map(|program| PendingData { blobs: vec![program], ..PendingData::default() });
        let fork = self.branch(self.head(), &self.0.head, forked, &self.0.state, context, self.fork_base(), extras);
        self.move_to(fork);
        if let Some(title) = title {
            // It is the same run, so it keeps its title. Failing to set the title is not an error.
            let _ = self.set_title(title);
        }
    }
}

/// The error for code that makes something else than this record.
fn diverged(recorded: &Record, now: String) -> Error {
    let (point, recorded) = (recorded.point(), summary::of(recorded));
    ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed: Vec::new() })).into()
}
