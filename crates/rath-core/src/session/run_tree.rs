//! The stored sessions of a resumed run.
//!
//! A branch is opened when the program reaches the step that forked it, not earlier: branches of other steps may be
//! open in another process or finished long ago. If a needed branch is open in another process, the fork that needs it
//! fails.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::lease::Lease;
use super::resume::{Replay, head_of};
use super::run::OnDivergence;
use super::run_context::{RunContext, UnusableFork};
use super::unshared_forks::UnsharedForks;
use super::{CachedActor, Context, Durability, Session, SessionInner};
use crate::ancestry::{Ancestry, forked};
use crate::arrivals::{Arrival, Arrivals};
use crate::body::{ContinuedFrom, Forked, ForkedBy, StepLeft};
use crate::clock::Time;
use crate::context::Items;
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::id::{Digest, Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::reader::{Reader, tampered};
use crate::record::Record;
use crate::state::State;
use crate::store::{self, Holder, SessionFilter, SessionInfo, Store};

/// The reason recorded for a fork on which a run continues.
const OTHER_CODE: &str = "the run continues with other code";

/// The stored branches of a run by the fork that made them, and the sessions on which the run continued.
pub(super) struct RunTree {
    store: Arc<dyn Store>,
    /// The session that the caller asked to resume.
    requested: SessionId,
    /// For each session that the run left on the way to the requested one: the last seq, and the session it continued
    /// on.
    recorded_path: HashMap<SessionId, (u64, SessionId)>,
    on_divergence: OnDivergence,
    program: Option<Digest>,
    /// Which records of the store are foreign.
    arrivals: Arrivals,
    actor: Arc<CachedActor>,
    /// The id of this resume, or of the earlier resume with the same code that it continues.
    resume_id: OnceLock<String>,
    known: Mutex<KnownSessions>,
}

/// The sessions of a run that are known so far.
#[derive(Default)]
struct KnownSessions {
    /// Branches that are not opened yet, by the step that forked them.
    unread: HashMap<ForkedBy, Vec<(Forked, SessionId)>>,
    /// Sessions whose forks are in `unread` or were opened.
    known_forks: HashSet<SessionId>,
    /// Opened branches that the program can fork again.
    branches: HashMap<ForkKey, Vec<Opened>>,
    /// Recorded continuations: the session that the run left, and the one on which it continued.
    next: HashMap<SessionId, SessionId>,
    /// Continuations that happened in this process.
    continued: HashMap<SessionId, SessionId>,
    /// The ids of the resumes on the path to the requested session.
    resume_ids: Vec<String>,
    /// The last of them that ran the same code.
    current: Option<String>,
}

/// A stored branch that the program can fork again.
struct Opened {
    forked: Forked,
    /// The branch, or which of its sessions is locked and by whom.
    found: std::result::Result<Branch, (SessionId, Holder)>,
}

/// Identifies a fork: which step of which session made it, and its ordinal or call.
#[derive(PartialEq, Eq, Hash)]
struct ForkKey {
    forked_by: ForkedBy,
    which: ForkName,
}

#[derive(PartialEq, Eq, Hash)]
enum ForkName {
    Ordinal(u64),
    Call(String),
    Key(String),
}

impl ForkName {
    fn of(forked: &Forked) -> Self {
        match (&forked.call, &forked.key) {
            (Some(call), _) => ForkName::Call(call.clone()),
            (None, Some(key)) => ForkName::Key(key.clone()),
            (None, None) => ForkName::Ordinal(forked.ordinal.unwrap_or_default()),
        }
    }
}

/// What is recorded about a fork.
pub(super) enum RecordedFork {
    /// The fork is not recorded.
    None,
    /// The fork is recorded, and this is its branch.
    Branch(Box<Branch>),
    /// The fork is recorded, and another process has this session of its branch open.
    Locked(SessionId, Holder),
    /// A different fork is recorded in its place. The text describes it.
    Mismatch(String),
}

impl RunTree {
    fn lock(&self) -> MutexGuard<'_, KnownSessions> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the branch of a fork, if it is one that `fits`.
    pub(super) fn take(&self, forked_by: ForkedBy, forked: &Forked, fits: impl Fn(&Forked) -> bool) -> RecordedFork {
        let which = ForkName::of(forked);
        let mut known = self.lock();
        let Some(made) = known.branches.get_mut(&ForkKey { forked_by, which }) else { return RecordedFork::None };
        match made.iter().rposition(|opened| fits(&opened.forked)) {
            Some(at) => match &made[at].found {
                // Keep the entry: the next call gets the same error.
                Err((session, holder)) => RecordedFork::Locked(*session, holder.clone()),
                Ok(_) => match made.remove(at).found {
                    Ok(branch) => RecordedFork::Branch(Box::new(branch)),
                    Err((session, holder)) => RecordedFork::Locked(session, holder),
                },
            },
            None => {
                made.last().map_or(RecordedFork::None, |other| RecordedFork::Mismatch(describe_fork(&other.forked)))
            }
        }
    }

    /// The id of this resume, or of the earlier resume with the same code that it continues.
    pub(super) fn resume_id(&self) -> String {
        // Later divergences belong to the same resume as earlier ones.
        let current = || self.lock().current.clone();
        let fresh = || format!("{:016x}", crate::entropy::random_number());
        self.resume_id.get_or_init(|| current().unwrap_or_else(fresh)).clone()
    }

    /// Records that the run continues on another session.
    pub(super) fn moved(&self, from: SessionId, to: SessionId) {
        self.lock().continued.insert(from, to);
    }

    /// The session on which the run is now, if it was on `session` before.
    pub(super) fn current_session(&self, mut session: SessionId) -> SessionId {
        let known = self.lock();
        while let Some(to) = known.continued.get(&session) {
            session = *to;
        }
        session
    }

    /// Opens the branches that these steps forked, in their sessions and in the sessions on which the run continued.
    /// Also opens the branches that are forked from a branch before its program enters a step.
    pub(super) async fn open_branches_of(&self, forking_steps: Vec<ForkedBy>) -> Result<()> {
        let mut forking_steps = forking_steps;
        while let Some(forked_by) = forking_steps.pop() {
            let unread = {
                let mut known = self.lock();
                if let Some(next) = known.next.get(&forked_by.session) {
                    forking_steps.push(ForkedBy { session: *next, step: forked_by.step });
                }
                known.unread.remove(&forked_by).unwrap_or_default()
            };
            for (forked, id) in unread {
                let found = match self.load_session(id).await {
                    Ok(branch) => {
                        forking_steps.push(ForkedBy { session: id, step: branch.state.step().copied() });
                        branch.reachable_forking_steps(&mut forking_steps);
                        Ok(branch)
                    }
                    Err(error) => Err(error.locked_by()?),
                };
                let key = ForkKey { forked_by: forked_by.clone(), which: ForkName::of(&forked) };
                self.lock().branches.entry(key).or_default().push(Opened { forked, found });
            }
        }
        Ok(())
    }

    /// Opens all branches of a session that are not open yet.
    pub(super) async fn open_branches_of_session(&self, session: SessionId) -> Result<()> {
        let forking_steps =
            self.lock().unread.keys().filter(|forked_by| forked_by.session == session).cloned().collect();
        self.open_branches_of(forking_steps).await
    }

    /// Loads a session and the sessions on which the run continued. Notes their branches without opening them.
    async fn load_session(&self, session: SessionId) -> Result<Branch> {
        let (mut ids, mut next) = (Vec::new(), Some(session));
        while let Some(session) = next {
            let forks = self.forks(session).await?;
            let continuation = self.continuation_of(session, &forks).await?;
            let left_at = continuation.map(|(seq, _)| seq);
            self.note_forks(session, forks, left_at)?;
            ids.push((session, left_at));
            next = continuation.map(|(_, next)| next);
            if let Some(next) = next {
                self.lock().next.insert(session, next);
            }
        }
        let mut then: Option<Branch> = None;
        while let Some((session, left_at)) = ids.pop() {
            let mut branch = Branch::load(&self.store, session, left_at, &self.arrivals, &self.actor).await?;
            if let Some(then) = then {
                branch.replay.continues_on(then);
            }
            then = Some(branch);
        }
        then.ok_or_else(|| store::Error::NotFound(format!("session {session}")).into())
    }

    /// Opens the branches that the step `forked_by` forked at records of another session. That session may not be loaded, because
    /// its step has finished.
    pub(super) async fn open_branches_at(&self, session: SessionId, forked_by: ForkedBy) -> Result<()> {
        if !self.lock().known_forks.contains(&session) {
            let forks = self.forks(session).await?;
            self.note_forks(session, forks, None)?;
        }
        self.open_branches_of(vec![forked_by]).await
    }

    /// Notes the branches that were forked from a session before the run left it at `left_at`.
    fn note_forks(&self, session: SessionId, forks: Vec<(Record, Forked)>, left_at: Option<u64>) -> Result<()> {
        let mut known = self.lock();
        if !known.known_forks.insert(session) {
            return Ok(());
        }
        for (first, forked) in forks {
            if forked.is_of_run() && left_at.is_none_or(|seq| forked.from.seq <= seq) {
                let point = first.point();
                let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
                let forked_by = forked.forked_by.clone().unwrap_or(ForkedBy { session, step });
                known.unread.entry(forked_by).or_default().push((forked, point.session));
            }
        }
        Ok(())
    }

    /// Where the run left a session, and the session on which it continued.
    async fn continuation_of(
        &self,
        session: SessionId,
        forks: &[(Record, Forked)],
    ) -> Result<Option<(u64, SessionId)>> {
        if let Some(recorded) = self.recorded_path.get(&session) {
            return Ok(Some(*recorded));
        }
        // Never follow a continuation of the requested session. For other sessions follow those of the same resume and,
        // in fork mode, the newest.
        let resume_ids = self.lock().resume_ids.clone();
        let mut newest: Option<(SessionId, u64, &ContinuedFrom)> = None;
        for (first, forked) in forks {
            let Some(continuation) = &forked.continued_from else { continue };
            let id = first.point().session;
            let is_together = session != self.requested && resume_ids.contains(&continuation.resume_id);
            let is_meant = is_together
                || self.on_divergence == OnDivergence::Fork && self.can_continue_on(id, continuation).await?;
            if is_meant && newest.as_ref().is_none_or(|(known, ..)| *known < id) {
                newest = Some((id, forked.from.seq, continuation));
            }
        }
        let Some((id, seq, continuation)) = newest else { return Ok(None) };
        let mut known = self.lock();
        if self.has_the_code_of(continuation) {
            known.current = Some(continuation.resume_id.clone());
        }
        known.resume_ids.push(continuation.resume_id.clone());
        Ok(Some((seq, id)))
    }

    fn has_the_code_of(&self, continuation: &ContinuedFrom) -> bool {
        continuation.program.as_ref().map(|program| program.digest) == self.program
    }

    /// Whether the current program can continue on a fork: not if another program finished its run there.
    async fn can_continue_on(&self, session: SessionId, continuation: &ContinuedFrom) -> Result<bool> {
        if self.has_the_code_of(continuation) {
            return Ok(true);
        }
        let seq = crate::view::row(&self.store, session).await?.seq;
        let state = Reader::new(self.store.clone()).state_at(Point { session, seq }).await?;
        Ok(state.steps.iter().any(|step| !step.inherited))
    }

    /// The forks of a session, by their first records.
    async fn forks(&self, session: SessionId) -> Result<Vec<(Record, Forked)>> {
        let (reader, mut forks) = (Reader::new(self.store.clone()), Vec::new());
        for row in self.store.sessions(SessionFilter::ChildrenOf(session).into()).await? {
            let first = reader.record(Point { session: row.id, seq: 0 }).await?;
            if let Some(forked) = forked(&first)? {
                forks.push((first, forked));
            }
        }
        Ok(forks)
    }
}

/// A stored session at its first record, ready for replay.
pub(super) struct Branch {
    row: SessionInfo,
    lease: Lease,
    first: Record,
    state: State,
    replay: Replay,
    arrival: Option<Arrival>,
}

impl Branch {
    /// Loads a session up to its last record or to where the run left it. Leases it unless it is closed or was left.
    async fn load(
        store: &Arc<dyn Store>,
        id: SessionId,
        left_at: Option<u64>,
        arrivals: &Arrivals,
        actor: &Arc<CachedActor>,
    ) -> Result<Self> {
        let row = crate::view::row(store, id).await?;
        let mut lease = match row.closed || left_at.is_some() {
            true => Lease::granted(store.clone(), id, 0),
            false => Lease::granted(store.clone(), id, store.lease(id).await?),
        };
        let head = Point { session: id, seq: row.seq };
        let mut arrival = arrivals.of_line(&Reader::new(store.clone()), head).await?;
        if arrival.is_some_and(|arrival| arrival.covers(row.seq)) && lease.fence > 0 {
            // The session is foreign: end the foreign part at its head.
            let mut opened = Session::open_held(store, lease, actor.clone()).await?;
            opened.note_arrival(arrivals).await?;
            opened.publish().await?;
            arrival = opened.0.arrival;
            lease = opened.0.lease;
        }
        // Read the row again: records may have been added before the lease was granted.
        let row = crate::view::row(store, id).await?;
        lease.published.store(row.seq + 1, Ordering::Release);
        let point = Point { session: id, seq: 0 };
        let reader = Reader::new(store.clone());
        let first = reader.record(point).await?;
        let state = reader.state_at(point).await?;
        let started_by = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.actor;
        let until = left_at.unwrap_or(row.seq);
        let finished_steps = finished_steps_of(&reader, id, until).await?;
        let why = forked(&first)?.map_or_else(|| OTHER_CODE.to_owned(), |forked| forked.why);
        let mut replay = Replay::new(until, started_by, why, finished_steps);
        replay.read_ahead(&reader, id, 0).await?;
        Ok(Self { row, lease, first, state, replay, arrival })
    }

    /// Adds the steps at the start of the session, and of the sessions on which the run continued, whose forks the
    /// program can make without awaiting anything.
    fn reachable_forking_steps(&self, forking_steps: &mut Vec<ForkedBy>) {
        forking_steps.extend(self.replay.reachable_forking_steps(self.row.id));
        if let Some(then) = self.replay.continuation() {
            then.reachable_forking_steps(forking_steps);
        }
    }

    /// The `step_left` records of finished steps, in this session or in one on which the run continued.
    pub(super) fn finished_steps(&self) -> &HashMap<RecordId, Point> {
        &self.replay.finished_steps
    }

    fn into_session(
        self,
        store: Arc<dyn Store>,
        actor: Arc<CachedActor>,
        durability: Durability,
        mut run_context: RunContext,
    ) -> Result<Session> {
        let Self { row, lease, first, state, replay, arrival, .. } = self;
        let head = head_of(&first)?;
        let point = first.point();
        let mut records = List::new();
        records.push(first);
        run_context.set_replay(Some(replay));
        let mut session = Session(Box::new(SessionInner {
            store,
            lease,
            origin: row.origin,
            head,
            actor,
            state,
            context: Context { base: Some(point), items: Items::default() },
            records,
            ancestors: List::new(),
            fork_base: OnceLock::new(),
            durability,
            arrival: None,
            is_operator: false,
            needs_snapshot: false,
            oldest_unpublished: Time(0),
            at_boundary: false,
            run_context,
            unshared_forks: UnsharedForks::default(),
        }));
        session.set_arrival(arrival);
        session.finish_replay();
        Ok(session)
    }
}

impl Error {
    /// The session and its holder, if the error is that a session is locked. Returns any other error.
    fn locked_by(self) -> Result<(SessionId, Holder)> {
        match self.kind() {
            ErrorKind::Store(store::Error::Locked { session, holder }) => Ok((*session, holder.clone())),
            _ => Err(self),
        }
    }

    /// The error as a reason not to use a fork, if it is one.
    pub(super) fn as_unusable_fork(&self) -> Option<UnusableFork> {
        match self.kind() {
            ErrorKind::Diverged(diverged) => Some(UnusableFork::Diverged(Arc::new((**diverged).clone()))),
            ErrorKind::Store(store::Error::Locked { session, holder }) => {
                Some(UnusableFork::Locked(*session, holder.clone()))
            }
            _ => None,
        }
    }
}

fn describe_fork(forked: &Forked) -> String {
    format!("a fork at {}: {}", forked.from, crate::summary::one_line(&forked.why))
}

/// The `step_left` records of a session, by step.
async fn finished_steps_of(reader: &Reader, session: SessionId, until: u64) -> Result<HashMap<RecordId, Point>> {
    let (mut left, mut from) = (HashMap::default(), 0);
    loop {
        let page = reader.page(session, from, until, &[Kind::StepLeft]).await?;
        for record in &page.records {
            let body: StepLeft = record.body().map_err(|why| tampered(record, why))?;
            left.insert(body.step, record.point());
        }
        match page.more {
            true => from = page.position,
            false => return Ok(left),
        }
    }
}

impl Session {
    /// Opens the run that `session` belongs to at its first record. Replay follows the recorded continuations up to
    /// `session`.
    pub(super) async fn resume(
        store: &Arc<dyn Store>,
        session: SessionId,
        ancestry: Ancestry,
        actor: Arc<CachedActor>,
        on_divergence: OnDivergence,
        program: Option<Digest>,
    ) -> Result<Self> {
        let Ancestry { root, continuations, .. } = ancestry;
        let arrivals = Arrivals::claim(store, &actor.actor).await?;
        if arrivals.is_operator(root) {
            return Err(ErrorKind::Operator(root).into());
        }
        let mut tree = RunTree {
            store: store.clone(),
            requested: session,
            recorded_path: continuations.iter().map(|(from, next, _)| (from.session, (from.seq, *next))).collect(),
            on_divergence,
            program,
            arrivals,
            actor: actor.clone(),
            resume_id: OnceLock::new(),
            known: Mutex::default(),
        };
        let same_code = continuations.iter().find(|(.., continuation)| tree.has_the_code_of(continuation));
        let current = same_code.map(|(.., continuation)| continuation.resume_id.clone());
        let resume_ids = continuations.iter().map(|(.., continuation)| continuation.resume_id.clone()).collect();
        tree.known = Mutex::new(KnownSessions { resume_ids, current, ..KnownSessions::default() });
        let root = tree.load_session(root).await?;
        let mut forking_steps = vec![ForkedBy { session: root.row.id, step: None }];
        root.reachable_forking_steps(&mut forking_steps);
        tree.open_branches_of(forking_steps).await?;
        let mut run_context = RunContext::of_run(Some(Arc::new(tree)));
        run_context.shared_mut().on_divergence = on_divergence;
        root.into_session(store.clone(), actor, Durability::default(), run_context)
    }

    /// Opens a stored branch of this session's run with this session's resources and settings.
    pub(super) fn open_branch(&self, branch: Branch) -> Result<Session> {
        let inner = &self.0;
        branch.into_session(inner.store.clone(), inner.actor.clone(), inner.durability, inner.run_context.inherited())
    }

    /// The recorded branch of this fork, if there is one.
    pub(super) fn recorded_fork(&self, forked: &Forked) -> Result<Option<Session>> {
        let Some(tree) = self.0.run_context.tree() else { return Ok(None) };
        let fits = |made: &Forked| match (forked.call.as_ref().or(forked.key.as_ref()), &forked.forked_by) {
            (Some(_), _) => true,
            (None, Some(_)) => made.from == forked.from && made.why == forked.why,
            (None, None) => made.forked_by.is_none() && made.why == forked.why && self.forked_here(made.from),
        };
        match tree.take(self.as_forked_by(), forked, fits) {
            RecordedFork::Branch(branch) => self.open_branch(*branch).map(Some),
            RecordedFork::Locked(session, holder) => Err(store::Error::Locked { session, holder }.into()),
            RecordedFork::Mismatch(recorded) if self.0.run_context.on_divergence() == OnDivergence::Stop => {
                let diverged =
                    Diverged { point: self.point(), recorded, now: describe_fork(forked), changed: Vec::new() };
                Err(ErrorKind::Diverged(Box::new(diverged)).into())
            }
            RecordedFork::Mismatch(_) | RecordedFork::None => Ok(None),
        }
    }

    /// Opens the recorded branches that this step of the session forked.
    pub(super) async fn open_branches_of(&self, step: RecordId) -> Result<()> {
        match self.0.run_context.tree() {
            Some(tree) => tree.open_branches_of(vec![ForkedBy { session: self.id(), step: Some(step) }]).await,
            None => Ok(()),
        }
    }

    /// This session and its innermost step, which identify the maker of a fork.
    pub(super) fn as_forked_by(&self) -> ForkedBy {
        ForkedBy { session: self.id(), step: self.0.state.step().copied() }
    }

    /// Continues on another session of the run.
    pub(super) fn move_to(&mut self, session: Session) {
        if let Some(tree) = self.0.run_context.tree() {
            tree.moved(self.id(), session.id());
        }
        *self = session;
    }
}
