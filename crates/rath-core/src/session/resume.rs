//! A session that goes over what is recorded: a cursor, and what lies ahead of it.
//!
//! While a run is resumed its session stands at a cursor: head, state and context are those of that record, so every
//! read answers as of then. What the program appends is held against the next record and taken from there. A step that
//! was left is jumped over. At the last record the session is live, and nothing reminds of the cursor.

use std::collections::VecDeque;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::run::OnDivergence;
use super::tree::Branch;
use super::{Context, Head, Session};
use crate::actor::Actor;
use crate::body::{self, Forked, Instead, Maker, Manner, Merged, StepEntered, User};
use crate::context::{Item, Items};
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::{Kind, OnResume};
use crate::list::List;
use crate::reader::Reader;
use crate::record::{Extras, Record};
use crate::store::{self, Scan};
use crate::summary;

/// How many records are read ahead at once.
const PAGE: usize = 1024;

/// A jump over fewer records folds them one by one; over more it starts from a snapshot.
const NEAR: u64 = 1024;

/// What lies ahead on a line.
pub(super) struct Replay {
    /// The next records.
    ahead: VecDeque<Record>,
    /// The last record of the line.
    until: u64,
    /// Who began the line: records of others are not the program's.
    began: Actor,
    /// Why the line was made.
    why: String,
    /// Where steps were left, by their `step_entered`.
    pub(super) left: HashMap<RecordId, Point>,
    /// The line on which the run went on instead of on this one.
    then: Option<Box<Branch>>,
}

impl Replay {
    pub(super) fn new(until: u64, began: Actor, why: String, left: HashMap<RecordId, Point>) -> Self {
        Self { ahead: VecDeque::new(), until, began, why, left, then: None }
    }

    /// Behind the last record the run goes on on another line, where steps of this one may be left.
    pub(super) fn goes_on(&mut self, then: Branch) {
        self.left.extend(then.steps_left());
        self.then = Some(Box::new(then));
    }

    /// The line on which the run went on instead of on this one.
    pub(super) fn then(&self) -> Option<&Branch> {
        self.then.as_deref()
    }

    /// The steps ahead that are entered before the next operation that can wait: nothing waits before their forks.
    pub(super) fn makers_at_hand(&self, line: SessionId) -> impl Iterator<Item = Maker> {
        let at_hand = self.ahead.iter().take_while(|record| !can_wait(record));
        let entered = at_hand.filter(|record| *record.kind() == Kind::StepEntered);
        entered.map(move |record| Maker { session: line, step: Some(record.id()) })
    }

    /// Reads on from behind `seq`, so far that everything is at hand which may be asked for before the next operation
    /// that can wait.
    pub(super) async fn look_ahead(&mut self, reader: &Reader, session: SessionId, seq: u64) -> Result<()> {
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

/// Whether a record is made by an operation that can wait, and so reads on.
fn can_wait(record: &Record) -> bool {
    match record.kind() {
        Kind::Merged | Kind::Closed => true,
        // `enter` makes one without a role, and cannot.
        Kind::StepEntered => record.body::<StepEntered>().is_ok_and(|step| step.role.is_some()),
        _ => false,
    }
}

/// Whether a record is none of the program's: of the machine, or of somebody else than `known`.
pub(super) fn is_ambient(record: &Record, known: [&Actor; 2]) -> bool {
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
    /// Whether the session is at its last record: what it does is new.
    pub fn is_live(&self) -> bool {
        self.0.gear.replay().is_none()
    }

    /// The branch that was made for a call, at its end: closed, where it was taken in.
    pub async fn branch_of_call(&self, call: &str) -> Result<Option<Session>> {
        let forked = Forked { call: Some(call.into()), ..Forked::new(self.point(), "") };
        let Some(mut branch) = self.recorded_fork(&forked)? else { return Ok(None) };
        branch.jump_to_the_end().await?;
        Ok(Some(branch))
    }

    /// Whether a fork at this point is one that the program makes here: since then it made nothing.
    pub(super) fn forked_here(&self, point: Point) -> bool {
        let made = self.0.gear.own().map_or(0, |own| own.made).min(self.0.head.seq);
        if point.session != self.id() || point.seq < made {
            return false;
        }
        let Some(replay) = self.0.gear.replay().filter(|_| point.seq > self.0.head.seq) else {
            return point.seq <= self.0.head.seq;
        };
        // What others left on the line may lie between.
        let between: Vec<_> = replay.ahead.iter().take_while(|record| record.seq() <= point.seq).collect();
        between.last().is_some_and(|record| record.seq() == point.seq)
            && between.iter().all(|record| is_ambient(record, [&replay.began, &self.0.actor.actor]))
    }

    /// Holds a record that the program makes against the recorded one. `None` when the session is live.
    pub(super) fn take_recorded(&mut self, kind: &Kind, same: impl Fn(&Record) -> bool) -> Result<Option<Record>> {
        self.0.gear.check()?;
        while let Some(replay) = self.0.gear.replay_mut() {
            let Some(next) = replay.ahead.front() else {
                let until = replay.until;
                if self.0.head.seq >= until {
                    self.go_over()?;
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
            if is_ambient(next, [&replay.began, &self.0.actor.actor]) {
                self.absorb_next()?;
                continue;
            }
            return Err(diverged(next, kind.to_string()));
        }
        Ok(None)
    }

    /// The next record of a kind, if the program may come to it now; ambient ones before it are taken in.
    pub(super) fn peek_recorded(&mut self, kind: &Kind) -> Result<Option<Record>> {
        loop {
            let Some(replay) = self.0.gear.replay() else { return Ok(None) };
            let Some(next) = replay.ahead.front() else {
                if self.0.head.seq < replay.until {
                    return Ok(None);
                }
                self.go_over()?;
                continue;
            };
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
    pub(super) fn unless_diverged(&mut self, taken: Result<Option<Record>>) -> Result<Option<Record>> {
        match taken {
            Err(error)
                if matches!(error.kind(), ErrorKind::Diverged(_))
                    && self.0.gear.on_divergence() == OnDivergence::Fork =>
            {
                self.go_on_as_fork(error.to_string());
                Ok(None)
            }
            taken => taken,
        }
    }

    /// Moves the cursor over a record.
    pub(super) fn absorb(&mut self, record: Record) -> Result<()> {
        let point = record.point();
        let known = self.0.gear.replay().map(|replay| [&replay.began, &self.0.actor.actor]);
        if known.is_none_or(|known| !is_ambient(&record, known)) {
            self.0.gear.made(record.seq());
        }
        self.0.state.apply(&record).map_err(|why| ErrorKind::Record { point, why })?;
        self.0.head = head_of(&record)?;
        self.leave_what_arrived();
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

    /// Forgets the cursor where nothing lies ahead.
    pub(super) fn come_to_life(&mut self) {
        let seq = self.0.head.seq;
        if self.0.gear.replay().is_some_and(|replay| seq >= replay.until && replay.then.is_none()) {
            self.0.gear.set_replay(None);
        }
    }

    /// At the end of a line that the run left, goes over to the one on which it went on; else is live. Not before a
    /// record is asked for: the forks that the program makes here are of this line.
    fn go_over(&mut self) -> Result<()> {
        match self.0.gear.replay_mut().and_then(|replay| replay.then.take()) {
            Some(branch) => {
                let line = self.revive(*branch)?;
                self.move_to(line);
            }
            None => self.0.gear.set_replay(None),
        }
        Ok(())
    }

    /// Sees to it that a branch which is to be merged has nothing but its end ahead: then another merge closed it, and it
    /// stays so.
    pub(super) fn end_for_merge(&mut self) -> Result<()> {
        self.0.gear.check()?;
        if self.is_live() || self.peek_recorded(&Kind::Closed)?.is_some() {
            return Ok(());
        }
        match self.0.gear.replay().and_then(|replay| replay.ahead.front()) {
            Some(next) => {
                let error = diverged(next, "closed: merged".into());
                self.unless_diverged(Err(error)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Sees to it that what may be asked for next is at hand.
    pub(super) async fn look_ahead(&mut self) -> Result<()> {
        let (id, seq) = (self.id(), self.0.head.seq);
        if let Some(replay) = self.0.gear.replay_mut() {
            replay.look_ahead(&Reader::new(self.0.store.clone()), id, seq).await?;
        }
        if let (Some(replay), Some(tree)) = (self.0.gear.replay(), self.0.gear.tree()) {
            let makers: Vec<Maker> = replay.makers_at_hand(id).collect();
            if !makers.is_empty() {
                tree.clone().open_branches_of(makers).await?;
            }
        }
        Ok(())
    }

    /// Moves the cursor to the record at `to` without looking at what is between. Returns that record, if the cursor was
    /// not there.
    pub(super) async fn jump(&mut self, to: u64) -> Result<Option<Record>> {
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
        if let Some(record) = &last {
            self.0.gear.made(to);
            self.0.head = head_of(record)?;
            self.0.records = List::new();
            self.0.records.push(record.clone());
            self.leave_what_arrived();
        }
        self.0.fork_base = OnceLock::new();
        self.0.context = Context { base: Some(Point { session: id, seq: to }), items: Items::default() };
        if let Some(replay) = self.0.gear.replay_mut() {
            replay.ahead = ahead;
        }
        self.come_to_life();
        self.look_ahead().await?;
        Ok(last)
    }

    /// Where the step that was just entered again was left.
    pub(super) fn was_left(&self, step: &RecordId) -> Option<Point> {
        self.0.gear.replay().and_then(|replay| replay.left.get(step)).copied()
    }

    /// Moves the cursor over to a record of this line, or of one on which the run went on.
    pub(super) async fn jump_over(&mut self, to: Point) -> Result<Record> {
        while self.id() != to.session
            && let Some(until) = self.0.gear.replay().map(|replay| replay.until)
        {
            self.jump(until).await?;
            self.go_over()?;
        }
        match self.jump(to.seq).await? {
            Some(record) => Ok(record),
            // The cursor was there.
            None if self.point() == to => Ok(self.reader().record(to).await?),
            None => Err(store::Error::NotFound(format!("record {to}")).into()),
        }
    }

    /// Jumps to the end of the line: what an agent's step goes on from.
    pub(super) async fn jump_to_the_end(&mut self) -> Result<()> {
        while let Some(until) = self.0.gear.replay().map(|replay| replay.until) {
            self.jump(until).await?;
            self.go_over()?;
        }
        Ok(())
    }

    /// A merge that is recorded: these branches, in this manner. Returns where its records stand.
    pub(super) async fn recorded_merge(&mut self, others: &[Session], how: &super::How) -> Result<Option<Vec<Point>>> {
        let mut places = Vec::new();
        // In which order they are merged is on the record.
        let mut left: HashSet<SessionId> = others.iter().map(Session::id).collect();
        while !left.is_empty() {
            let record = match self.recorded_part_of_merge(&mut left, others, how) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                // Half a merge cannot be made anew.
                Err(error) if !places.is_empty() => return Err(error),
                Err(error) => match self.unless_diverged(Err(error))? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            let point = record.point();
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

    /// The next `merged` of a merge, if one lies ahead. Its branches leave `left`.
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
            return match self.0.gear.replay().and_then(|replay| replay.ahead.front()) {
                Some(next) => Err(diverged(next, now())),
                None => Ok(None),
            };
        };
        let point = record.point();
        let body: Merged = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        let same_manner = match (&body.how, how) {
            (Manner::Keep { chosen }, super::How::Keep { chosen: now, .. }) => chosen == now,
            (Manner::Append, super::How::Append)
            | (Manner::Synthesize, super::How::Synthesize(_))
            | (Manner::TakeIn, super::How::TakeIn { .. }) => true,
            _ => false,
        };
        let same = body.branches.iter().all(|branch| left.remove(&branch.session));
        match same && same_manner {
            true => Ok(Some(record)),
            false => Err(diverged(&record, now())),
        }
    }

    /// Leaves the recorded line where it diverges, and goes on live on a fork of it at the cursor.
    fn go_on_as_fork(&mut self, diverged: String) {
        let Some((tree, why)) = self.0.gear.tree().cloned().zip(self.0.gear.replay().map(|replay| replay.why.clone()))
        else {
            return;
        };
        let program = self.0.gear.shared().and_then(|shared| shared.program.clone());
        let instead = Instead {
            diverged,
            edition: tree.edition(),
            program: program.as_ref().map(|program| program.reference.clone()),
        };
        let forked = Forked { instead: Some(instead), ..Forked::new(self.point(), why) };
        let (title, context) = (self.0.state.title.clone(), self.0.context.clone());
        let extras = program.map(|program| Extras { blobs: vec![program], ..Extras::default() });
        let fork = self.branch(self.head(), &self.0.head, forked, &self.0.state, context, self.fork_base(), extras);
        self.move_to(fork);
        if let Some(title) = title {
            // It is the same run: people find it by its name. What cannot be said is not said.
            let _ = self.set_title(title);
        }
    }
}

/// The code makes something else than this record.
fn diverged(recorded: &Record, now: String) -> Error {
    let (point, recorded) = (recorded.point(), summary::of(recorded));
    ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed: Vec::new() })).into()
}
