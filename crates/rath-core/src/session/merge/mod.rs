//! Merging branches.

mod files;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::{Head, Session, encode};
use crate::body::{Body as _, Branch, BranchContext, Closed, Forked, MergeStrategy, Merged, Rejected};
use crate::context::{self, ItemKind};
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

/// How a merge combines the contexts of the branches.
#[derive(Clone, Debug)]
pub enum How {
    /// Keeps the context of the chosen session. The others are recorded as rejected.
    Keep {
        /// The session whose context is kept: this session or a branch.
        chosen: SessionId,
        /// The reason, recorded for each rejected session.
        why: String,
        /// Whether to cancel what is open on the other sessions. If false, the merge fails when something is open.
        cancel_losers: bool,
    },
    /// Keeps this session's items and appends each branch's own items after a marker.
    Append,
    /// Like `Append`, then runs the workflow on the merged session and replaces the branches' items with a summary.
    Synthesize(BoxWorkflow),
    /// Keeps this session's context and merges only files and usage. For branches whose answer is given in another way,
    /// such as a tool result.
    FilesOnly {
        /// Branches whose files are not merged, because their work failed.
        without_files: Vec<SessionId>,
    },
    /// Merges each branch in its own way. Branches that are not listed are rejected.
    PerBranch {
        /// What to merge of each branch.
        branches: Vec<BranchMerge>,
        /// Whether files may conflict. If false, a conflict fails the merge, and nothing is merged.
        allow_conflicts: bool,
        /// Runs on the merged session. Then a summary replaces the appended items of the branches.
        then: Option<BoxWorkflow>,
    },
}

/// What to merge of one branch.
#[derive(Clone, Debug)]
pub struct BranchMerge {
    /// The branch.
    pub branch: SessionId,
    /// What the branch contributes to the context. At most one branch of a merge may be [`BranchContext::Keep`].
    pub context: BranchContext,
    /// Whether its files are merged.
    pub files: bool,
    /// Why the branch is rejected, if it is. What is open on a rejected branch is cancelled.
    pub rejected: Option<String>,
}

impl How {
    /// Keeps the context of one session.
    pub fn keep(chosen: SessionId, why: impl Into<String>) -> Self {
        Self::Keep { chosen, why: why.into(), cancel_losers: false }
    }

    /// Merges only the files and usage of all branches.
    pub fn files_only() -> Self {
        Self::FilesOnly { without_files: Vec::new() }
    }

    /// Whether the files of a branch are merged.
    fn takes_files_of(&self, branch: SessionId) -> bool {
        match self {
            Self::FilesOnly { without_files } => !without_files.contains(&branch),
            Self::PerBranch { .. } => self.of_branch(branch).is_some_and(|merge| merge.files),
            _ => true,
        }
    }

    fn of_branch(&self, branch: SessionId) -> Option<&BranchMerge> {
        match self {
            Self::PerBranch { branches, .. } => {
                let found = branches.binary_search_by_key(&branch, |merge| merge.branch).ok()?;
                branches.get(found)
            }
            _ => None,
        }
    }

    /// Sorts the branches by id, so that each is found quickly.
    fn sort_branches(&mut self) {
        if let Self::PerBranch { branches, .. } = self {
            branches.sort_by_key(|merge| merge.branch);
        }
    }

    /// Why a branch is rejected by a merge with a strategy for each branch.
    fn rejects(&self, branch: SessionId) -> Option<&str> {
        match self {
            Self::PerBranch { .. } => match self.of_branch(branch) {
                Some(merge) => merge.rejected.as_deref(),
                None => Some("the merge does not list this branch"),
            },
            _ => None,
        }
    }

    /// Appends all branches and runs `workflow` to combine them.
    pub fn synthesize(workflow: impl Workflow + 'static) -> Self {
        Self::Synthesize(BoxWorkflow::new(workflow))
    }
}

impl Session {
    /// Merges `others` into this session in one durable commit. This session continues; the others are closed.
    ///
    /// Branches of a run are merged in the order in which they were forked, not in the order of `others`. So you can
    /// pass them in the order they finish, and context and files are the same in every run and on every resume. Forks
    /// of an earlier record come before forks of a later one. Sessions that no run forked keep their positions.
    ///
    /// On failure the error returns all sessions unchanged, this one first.
    pub async fn merge(self, others: impl IntoIterator<Item = Session>, how: How) -> Result<Session> {
        self.merge_with(others, how, &Drivers::default()).await
    }

    /// Like [`merge`](Self::merge), with merge drivers for files that both sides changed.
    pub async fn merge_with(
        mut self,
        others: impl IntoIterator<Item = Session>,
        mut how: How,
        drivers: &Drivers,
    ) -> Result<Session> {
        how.sort_branches();
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
            How::Synthesize(workflow) | How::PerBranch { then: Some(workflow), .. } => {
                self.synthesize(workflow, &merged).await
            }
            _ => Ok(self),
        }
    }

    /// Merges only the files and usage of `others` and keeps this session's context. The files of branches in
    /// `without_files` are not merged. On failure the error returns `others`.
    ///
    /// Open conflicts of a branch become conflicts of this session, because the branch is closed and cannot resolve
    /// them.
    pub async fn merge_files_only(
        &mut self,
        others: impl IntoIterator<Item = Session>,
        without_files: Vec<SessionId>,
    ) -> Result<()> {
        let mut others: Vec<Session> = others.into_iter().collect();
        match self.merge_in_order(&mut others, &How::FilesOnly { without_files }, &Drivers::default()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.with_sessions(others)),
        }
    }

    /// Sorts the branches into fork order and merges them. On failure all sessions are unchanged.
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
            match how.rejects(other.id()) {
                Some(why) => other.abandon(why).await?,
                None => other.end_for_merge()?,
            }
        }
        let undo: Vec<_> = std::iter::once(&*self).chain(others.iter()).map(Session::save_state).collect();
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

    /// Checks that the merge is allowed. Cancels rejected branches if `cancel_losers` is set.
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
        if let How::PerBranch { branches, .. } = how
            && branches.iter().filter(|merge| merge.context == BranchContext::Keep).count() > 1
        {
            return Err(ErrorKind::BadMerge("a merge can keep the context of one branch only".into()).into());
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
                How::FilesOnly { .. } | How::PerBranch { .. } => other.check_no_work_open()?,
                _ => other.check_nothing_open()?,
            }
        }
        Ok(())
    }

    /// Writes the `merged` records and closes the others in one commit. Returns the points of the `merged` records.
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
        let mut points = Vec::new();
        let mut so_far = MergeProgress { start: self.tip(), reached: Reached::default(), base: None };
        for group in others.chunks_mut(MAX_PARENTS - 1) {
            let merged = self.push_merged(&reader, group, forks, &mut so_far, how, drivers).await?;
            points.push(merged.0.point());
            reader.add_tail(vec![merged.1]);
            for other in group.iter_mut().filter(|other| other.is_live()) {
                other.push_closed(Closed { merged_into: Some(merged.0), why: None })?;
            }
        }
        for branch in heads {
            let why = match how {
                How::Keep { chosen, why, .. } if *chosen != branch.session => Some(why.as_str()),
                _ => how.rejects(branch.session),
            };
            if let Some(why) = why.map(ToOwned::to_owned) {
                self.append(Rejected { branch, why })?;
            }
        }
        self.collect(&mut batch);
        for other in others.iter().filter(|other| other.is_live()) {
            other.collect(&mut batch);
        }
        self.0.store.commit(batch).await?;
        self.mark_published();
        others.iter_mut().filter(|other| other.is_live()).for_each(Session::mark_published);
        Ok(points)
    }

    async fn push_merged(
        &mut self,
        reader: &Reader,
        group: &mut [Session],
        forks: &Forks,
        so_far: &mut MergeProgress,
        how: &How,
        drivers: &Drivers,
    ) -> Result<(Reference, crate::record::Record)> {
        let tips: Vec<_> = std::iter::once(so_far.start).chain(group.iter().map(Session::tip)).collect();
        let Divergence { base, added } = Divergence::beyond(reader, &tips, &so_far.reached).await?;
        let base = match base {
            Some(point) => Some(reader.record(point).await?.reference()),
            None => None,
        };
        let mut usage = Usage::default();
        for run in &added {
            usage += usage_of_run(reader, group, run.session, run.from, run.to).await?;
        }
        let mut branches = Vec::with_capacity(group.len());
        for other in group.iter() {
            let Head { seq, generation, .. } = other.0.head;
            let session = other.id();
            let why = forks.get(&session).map(|fork| fork.why.clone()).filter(|why| !why.is_empty());
            let without_files = !how.takes_files_of(session);
            let context = match how {
                How::PerBranch { .. } => {
                    Some(how.of_branch(session).map_or(BranchContext::Omit, |merge| merge.context))
                }
                _ => None,
            };
            branches.push(Branch { session, seq, generation, why, without_files, context });
        }
        let files = self.merge_files(reader, group, so_far, how, drivers).await?;
        if let (How::PerBranch { allow_conflicts: false, .. }, Some(files)) = (how, &files) {
            let new = files.conflicts.iter().filter(|conflict| !self.0.state.conflicts.contains(conflict));
            let paths: Vec<String> = new.map(|conflict| conflict.path.to_string()).collect();
            if !paths.is_empty() {
                return Err(ErrorKind::MergeConflict { paths }.into());
            }
        }
        so_far.reached.add(&added);
        let how = match how {
            How::Keep { chosen, .. } => MergeStrategy::Keep { chosen: *chosen },
            How::Append => MergeStrategy::Append,
            How::Synthesize(_) => MergeStrategy::Synthesize,
            How::FilesOnly { .. } => MergeStrategy::FilesOnly,
            How::PerBranch { .. } => MergeStrategy::PerBranch,
        };
        let body = Merged { how, branches, base, added, usage, files };
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

    /// Runs the workflow, then replaces the branches' items in the context with a summary.
    async fn synthesize(self, workflow: BoxWorkflow, merged: &[Point]) -> Result<Session> {
        let mut session = workflow.forward(self).await?;
        let items = match session.items().await {
            Ok(items) => items.to_vec(),
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        // The branches' items: from the first marker of this merge to the last item that was not made in this session.
        let Some(from) = items.iter().position(|item| merged.contains(&item.origin)) else { return Ok(session) };
        let branch_part =
            |item: &&crate::context::Item| item.origin.session != session.id() || matches!(item.kind, ItemKind::Marker);
        let count = items.iter().skip(from).take_while(branch_part).count();
        if count == 0 {
            return Ok(session);
        }
        let branches = items[from..].iter().filter(|item| matches!(item.kind, ItemKind::Marker)).count();
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

    fn save_state(&self) -> SavedState {
        SavedState {
            head: self.0.head,
            state: self.0.state.clone(),
            context: self.0.context.clone(),
            records: self.0.records.clone(),
            oldest_unpublished: self.0.oldest_unpublished,
            at_boundary: self.0.at_boundary,
        }
    }

    /// Restores the state saved before the merge. Nothing since then was published.
    fn rewind(&mut self, mark: SavedState) {
        let SavedState { head, state, context, records, oldest_unpublished, at_boundary } = mark;
        self.0.at_boundary = at_boundary;
        self.0.head = head;
        self.0.state = state;
        self.0.context = context;
        self.0.records = records;
        self.0.fork_base = std::sync::OnceLock::new();
        self.0.oldest_unpublished = oldest_unpublished;
    }
}

/// The forks that made the branches, by branch.
type Forks = HashMap<SessionId, Fork>;

/// How a branch was forked.
struct Fork {
    /// The sort key among the branches of a run: the generation of the first record, and the ordinal of the fork.
    order: Option<(u64, u64)>,
    why: String,
}

impl Fork {
    async fn of(session: &Session) -> Option<Self> {
        let (reader, mut id, mut why) = (session.reader(), session.id(), None);
        let mut seen = HashSet::default();
        // A session on which the run continued sorts like the session that it left. `seen` guards against forged
        // cycles.
        while seen.insert(id) {
            let first = reader.record(Point { session: id, seq: 0 }).await.ok();
            let Some((first, forked)) = first.and_then(|first| Some((first.clone(), first.body::<Forked>().ok()?)))
            else {
                break;
            };
            let why = why.get_or_insert(forked.why);
            if forked.continued_from.is_none() {
                let order = forked.ordinal.map(|ordinal| (first.generation(), ordinal));
                return Some(Self { order, why: std::mem::take(why) });
            }
            id = forked.from.session;
        }
        why.map(|why| Self { order: None, why })
    }
}

/// Sorts the branches of a run by the order in which they were forked. Other sessions keep their positions.
fn in_fork_order(sessions: &mut Vec<Session>, forks: &Forks) {
    let order = |session: &Session| forks.get(&session.id()).and_then(|fork| fork.order);
    let (mut counted, others): (Vec<_>, Vec<_>) =
        std::mem::take(sessions).into_iter().enumerate().partition(|(_, session)| order(session).is_some());
    let positions: Vec<usize> = counted.iter().map(|(position, _)| *position).collect();
    counted.sort_by_key(|(_, session)| order(session));
    let sorted = positions.into_iter().zip(counted).map(|(position, (_, session))| (position, session));
    let mut all: Vec<_> = others.into_iter().chain(sorted).collect();
    all.sort_by_key(|(position, _)| *position);
    sessions.extend(all.into_iter().map(|(_, session)| session));
}

/// The progress of a merge that takes several records.
struct MergeProgress {
    /// The head of the session when the merge started.
    start: Tip,
    /// The records that earlier `merged` records of this merge have added.
    reached: Reached,
    /// The last fork point whose state was read, and that state. Branches often share it.
    base: Option<(Point, State)>,
}

/// The fields of a session before a merge, to restore them if it fails.
struct SavedState {
    head: Head,
    state: State,
    context: super::Context,
    records: crate::list::List<crate::record::Record>,
    oldest_unpublished: crate::clock::Time,
    at_boundary: bool,
}

/// The usage of records `from..=to` of one session.
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
