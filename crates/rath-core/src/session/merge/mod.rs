//! Bringing branches together.

mod files;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::{Head, Session, encode};
use crate::body::{Body as _, Branch, Closed, Forked, Manner, Merged, Rejected};
use crate::context::{self, Shape};
use crate::divergence::{Divergence, Reached, Tip};
use crate::error::{Error, ErrorKind, Result};
use crate::files::Drivers;
use crate::header::MAX_PARENTS;
use crate::id::{Point, Reference, SessionId};
use crate::reader::Reader;
use crate::state::State;
use crate::store::Batch;
use crate::usage::Usage;
use crate::workflow::{BoxWorkflow, Workflow};

/// What a merge does with the branches' contexts.
#[derive(Clone, Debug)]
pub enum How {
    /// The chosen line's context stays; the others are recorded as rejected.
    Keep {
        /// Whose context stays: this session's or a branch's.
        chosen: SessionId,
        /// Why.
        why: String,
        /// Whether to cancel what is open on the others, instead of refusing.
        cancel_losers: bool,
    },
    /// This line's items, then each branch's own behind a marker.
    Append,
    /// As append; the workflow then runs on the merged session, and the branch parts are compressed.
    Synthesize(BoxWorkflow),
    /// This line's context stays; files and usage come together. For branches whose answer is said otherwise, as a
    /// tool's result.
    TakeIn {
        /// The branches whose files are left out: work that failed.
        without_files: Vec<SessionId>,
    },
}

impl How {
    /// Keeps one line's context.
    pub fn keep(chosen: SessionId, why: impl Into<String>) -> Self {
        Self::Keep { chosen, why: why.into(), cancel_losers: false }
    }

    /// Takes the branches in, the files of all of them too.
    pub fn take_in() -> Self {
        Self::TakeIn { without_files: Vec::new() }
    }

    /// Whether the files of a branch are a part of the merge.
    fn takes_files_of(&self, branch: SessionId) -> bool {
        !matches!(self, Self::TakeIn { without_files } if without_files.contains(&branch))
    }

    /// Lets `workflow` make one of all.
    pub fn synthesize(workflow: impl Workflow + 'static) -> Self {
        Self::Synthesize(BoxWorkflow::new(workflow))
    }
}

impl Session {
    /// Merges `others` into this line, durably and at once: this line goes on, the others are closed.
    ///
    /// The branches of a run are merged in the order in which they were forked, whatever order they are given in: pass
    /// them as they finish, and context and files are the same in every run and on every resume. Forks of an earlier record
    /// come before forks of a later one. Sessions that no run forked stay in the place where they are given.
    ///
    /// On failure the error carries all sessions, this one first, in the state they had.
    pub async fn merge(self, others: impl IntoIterator<Item = Session>, how: How) -> Result<Session> {
        self.merge_with(others, how, &Drivers::default()).await
    }

    /// As [`merge`](Self::merge); `drivers` decide about files that both sides changed.
    pub async fn merge_with(
        mut self,
        others: impl IntoIterator<Item = Session>,
        how: How,
        drivers: &Drivers,
    ) -> Result<Session> {
        let mut others: Vec<Session> = others.into_iter().collect();
        let merged = match self.merge_in_order(&mut others, &how, drivers).await {
            Ok(merged) => merged,
            Err(error) => {
                others.insert(0, self);
                return Err(error.with_sessions(others));
            }
        };
        drop(others);
        match how {
            How::Synthesize(workflow) => self.synthesize(workflow, &merged).await,
            _ => Ok(self),
        }
    }

    /// Takes `others` in for their files and their usage; this line's context stays. Of those in `without_files` the files
    /// are left out. On failure the error carries them.
    ///
    /// Conflicts that are open on a branch come along, and are open here: nobody is left who would decide them there.
    pub async fn take_in(
        &mut self,
        others: impl IntoIterator<Item = Session>,
        without_files: Vec<SessionId>,
    ) -> Result<()> {
        let mut others: Vec<Session> = others.into_iter().collect();
        match self.merge_in_order(&mut others, &How::TakeIn { without_files }, &Drivers::default()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.with_sessions(others)),
        }
    }

    /// Puts the branches into fork order and merges them, or leaves all sessions as they were.
    async fn merge_in_order(&mut self, others: &mut Vec<Session>, how: &How, drivers: &Drivers) -> Result<Vec<Point>> {
        let mut forks = HashMap::default();
        for other in others.iter() {
            if let Some(fork) = Fork::of(other).await {
                forks.insert(other.id(), fork);
            }
        }
        in_fork_order(others, &forks);
        self.merge_or_rewind(others, &forks, how, drivers).await
    }

    async fn merge_or_rewind(
        &mut self,
        others: &mut [Session],
        forks: &Forks,
        how: &How,
        drivers: &Drivers,
    ) -> Result<Vec<Point>> {
        if !self.is_live()
            && let Some(merged) = self.recorded_merge(others, how).await?
        {
            return Ok(merged);
        }
        for other in others.iter_mut() {
            other.end_for_merge()?;
        }
        let undo: Vec<_> = std::iter::once(&*self).chain(others.iter()).map(Session::mark).collect();
        let merged = match self.check_merge(others, how) {
            Ok(()) => self.write_merge(others, forks, how, drivers).await,
            Err(error) => Err(error),
        };
        if merged.is_err() {
            let sessions = std::iter::once(self).chain(others.iter_mut());
            sessions.zip(undo).for_each(|(session, mark)| session.rewind(mark));
        }
        merged
    }

    /// Whether the merge may happen. Cancels losers where that was asked for.
    fn check_merge(&self, others: &mut [Session], how: &How) -> Result<()> {
        if others.is_empty() {
            return Err(ErrorKind::BadMerge("a merge needs at least one other session".into()).into());
        }
        if self.0.state.closed {
            return Err(ErrorKind::Closed(self.id()).into());
        }
        if let How::Keep { chosen, .. } = how
            && *chosen != self.id()
            && others.iter().all(|other| other.id() != *chosen)
        {
            return Err(ErrorKind::BadMerge(format!("session {chosen} is not among those merged")).into());
        }
        for other in others {
            if !std::sync::Arc::ptr_eq(&self.0.store, &other.0.store) {
                let why = format!("session {} lives in another store", other.id().short());
                return Err(ErrorKind::BadMerge(why).into());
            }
            if other.0.state.closed {
                return Err(ErrorKind::Closed(other.id()).into());
            }
            if let How::Keep { chosen, why, cancel_losers: true } = how
                && *chosen != other.id()
            {
                other.cancel(format!("not kept: {why}"))?;
            }
            match how {
                How::TakeIn { .. } => other.check_no_work_open()?,
                _ => other.check_nothing_open()?,
            }
        }
        Ok(())
    }

    /// Writes the `merged` records and closes the others, in one commit. Returns where they stand.
    async fn write_merge(
        &mut self,
        others: &mut [Session],
        forks: &Forks,
        how: &How,
        drivers: &Drivers,
    ) -> Result<Vec<Point>> {
        let mut batch = Batch::default();
        let mut reader = self.reader();
        for other in others.iter_mut() {
            other.add_tails(&mut reader);
            other.items().await?;
        }
        self.items().await?;
        let heads: Vec<Reference> = others.iter().map(Session::head).collect();
        let mut places = Vec::new();
        let mut so_far = SoFar { began: self.tip(), reached: Reached::default(), base: None };
        for group in others.chunks_mut(MAX_PARENTS - 1) {
            let merged = self.push_merged(&reader, group, forks, &mut so_far, how, drivers).await?;
            places.push(merged.0.point());
            reader.add_tail(vec![merged.1]);
            for other in group.iter_mut().filter(|other| other.is_live()) {
                other.push_closed(Closed { merged_into: Some(merged.0), why: None })?;
            }
        }
        if let How::Keep { chosen, why, .. } = how {
            for branch in heads.into_iter().filter(|head| head.session != *chosen) {
                self.append(Rejected { branch, why: why.clone() })?;
            }
        }
        self.collect(&mut batch);
        for other in others.iter().filter(|other| other.is_live()) {
            other.collect(&mut batch);
        }
        self.0.store.commit(batch).await?;
        self.mark_published();
        others.iter_mut().filter(|other| other.is_live()).for_each(Session::mark_published);
        Ok(places)
    }

    async fn push_merged(
        &mut self,
        reader: &Reader,
        group: &mut [Session],
        forks: &Forks,
        so_far: &mut SoFar,
        how: &How,
        drivers: &Drivers,
    ) -> Result<(Reference, crate::record::Record)> {
        let tips: Vec<_> = std::iter::once(so_far.began).chain(group.iter().map(Session::tip)).collect();
        let Divergence { base, brought } = Divergence::beyond(reader, &tips, &so_far.reached).await?;
        let base = match base {
            Some(point) => Some(reader.record(point).await?.reference()),
            None => None,
        };
        let mut usage = Usage::default();
        for run in &brought {
            usage += usage_of_run(reader, group, run.session, run.from, run.to).await?;
        }
        let mut branches = Vec::with_capacity(group.len());
        for other in group.iter() {
            let Head { seq, generation, .. } = other.0.head;
            let session = other.id();
            let why = forks.get(&session).map(|fork| fork.why.clone()).filter(|why| !why.is_empty());
            let without_files = !how.takes_files_of(session);
            branches.push(Branch { session, seq, generation, why, without_files });
        }
        let files = self.merge_files(reader, group, so_far, how, drivers).await?;
        so_far.reached.add(&brought);
        let how = match how {
            How::Keep { chosen, .. } => Manner::Keep { chosen: *chosen },
            How::Append => Manner::Append,
            How::Synthesize(_) => Manner::Synthesize,
            How::TakeIn { .. } => Manner::TakeIn,
        };
        let body = Merged { how, branches, base, brought, usage, files };
        let parents: Vec<Head> = group.iter().map(|other| other.0.head).collect();
        let record = self.push(Merged::KIND, &encode(&body), &parents, Vec::new(), &body)?;
        let own = std::mem::take(&mut self.0.context.items);
        let branch_items = |session: SessionId, _| {
            let branch = group.iter().find(|other| other.id() == session);
            branch.map(|branch| branch.0.context.items.clone()).unwrap_or_default()
        };
        self.0.context.items = context::merge_items(own, &body, record.point(), record.generation(), branch_items);
        Ok((record.reference(), record))
    }

    fn tip(&self) -> Tip {
        Tip { point: self.point(), generation: self.0.head.generation }
    }

    /// Lets the workflow speak, then takes the branch parts out of the context.
    async fn synthesize(self, workflow: BoxWorkflow, merged: &[Point]) -> Result<Session> {
        let mut session = workflow.forward(self).await?;
        let items = match session.items().await {
            Ok(items) => items.to_vec(),
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        // The branch parts: from the first marker of this merge to the last item that was not made on this line.
        let Some(from) = items.iter().position(|item| merged.contains(&item.origin)) else { return Ok(session) };
        let branch_part =
            |item: &&crate::context::Item| item.origin.session != session.id() || matches!(item.shape, Shape::Marker);
        let count = items.iter().skip(from).take_while(branch_part).count();
        if count == 0 {
            return Ok(session);
        }
        let branches = items[from..].iter().filter(|item| matches!(item.shape, Shape::Marker)).count();
        let summary = format!("[{branches} merged branches, {count} items: see the history; the result follows]");
        let done = match session.replace(from, count, summary.into()).await {
            Ok(_) => session.publish().await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            head: self.0.head,
            state: self.0.state.clone(),
            context: self.0.context.clone(),
            records: self.0.records.clone(),
            oldest_unpublished: self.0.oldest_unpublished,
            at_boundary: self.0.at_boundary,
        }
    }

    /// Forgets what was appended since `mark` and never published.
    fn rewind(&mut self, mark: Mark) {
        let Mark { head, state, context, records, oldest_unpublished, at_boundary } = mark;
        self.0.at_boundary = at_boundary;
        self.0.head = head;
        self.0.state = state;
        self.0.context = context;
        self.0.records = records;
        self.0.fork_base = std::sync::OnceLock::new();
        self.0.oldest_unpublished = oldest_unpublished;
    }
}

/// How branches began, by session.
type Forks = HashMap<SessionId, Fork>;

/// How a branch began.
struct Fork {
    /// Its place among the branches of a run: the generation of its first record, and which fork of that point it is.
    order: Option<(u64, u64)>,
    why: String,
}

impl Fork {
    async fn of(session: &Session) -> Option<Self> {
        let (reader, mut line, mut why) = (session.reader(), session.id(), None);
        let mut seen = HashSet::default();
        // A line on which a run went on stands in the place of the one that it left. Forged lines may lead in a circle.
        while seen.insert(line) {
            let first = reader.record(Point { session: line, seq: 0 }).await.ok();
            let Some((first, forked)) = first.and_then(|first| Some((first.clone(), first.body::<Forked>().ok()?)))
            else {
                break;
            };
            let why = why.get_or_insert(forked.why);
            if forked.instead.is_none() {
                let order = forked.ordinal.map(|ordinal| (first.generation(), ordinal));
                return Some(Self { order, why: std::mem::take(why) });
            }
            line = forked.from.session;
        }
        why.map(|why| Self { order: None, why })
    }
}

/// Sorts the branches of a run by the order in which they were forked. Other sessions keep their places.
fn in_fork_order(sessions: &mut Vec<Session>, forks: &Forks) {
    let order = |session: &Session| forks.get(&session.id()).and_then(|fork| fork.order);
    let (mut counted, others): (Vec<_>, Vec<_>) =
        std::mem::take(sessions).into_iter().enumerate().partition(|(_, session)| order(session).is_some());
    let places: Vec<usize> = counted.iter().map(|(place, _)| *place).collect();
    counted.sort_by_key(|(_, session)| order(session));
    let sorted = places.into_iter().zip(counted).map(|(place, (_, session))| (place, session));
    let mut all: Vec<_> = others.into_iter().chain(sorted).collect();
    all.sort_by_key(|(place, _)| *place);
    sessions.extend(all.into_iter().map(|(_, session)| session));
}

/// What a merge in several records has taken in.
struct SoFar {
    /// The head of the line when the merge began.
    began: Tip,
    /// What the records before this one brought.
    reached: Reached,
    /// The last fork point of which the files were looked up, and the state there.
    base: Option<(Point, State)>,
}

/// A session's moment before a merge.
struct Mark {
    head: Head,
    state: State,
    context: super::Context,
    records: crate::list::List<crate::record::Record>,
    oldest_unpublished: crate::clock::Time,
    at_boundary: bool,
}

/// What records `from..=to` of one line used.
async fn usage_of_run(
    reader: &Reader,
    group: &[Session],
    session: SessionId,
    from: u64,
    to: u64,
) -> Result<Usage, Error> {
    let whole = group.iter().find(|other| other.id() == session && other.0.head.seq == to);
    let until = match whole {
        Some(other) => other.0.state.own_usage(),
        None => reader.state_at(Point { session, seq: to }).await?.own_usage(),
    };
    Ok(match from.checked_sub(1) {
        Some(before) => until - reader.state_at(Point { session, seq: before }).await?.own_usage(),
        None => until,
    })
}
