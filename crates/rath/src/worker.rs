//! [`Worker`]: resumes the runs of a store whose workflows it knows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rath_core::store::{BoxFuture, Error as StoreError, Holder, WatchTopic};
use rath_core::{
    BoxWorkflow, Cancel, Error, ErrorKind, OnDivergence, Reference, Resources, Result, RunOptions, SessionId, Store,
    Time, Workflow, WorkflowName,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::panic_message;
use crate::inspect::{Readiness, RunScan, UnfinishedRun};
use crate::sleep::sleep;
use crate::workflow::SkippingClock;

/// The number of runs that a worker resumes at the same time, unless set.
const AT_MOST: usize = 16;

/// The shortest time between two reads of the store.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// How often to look at runs that another process has locked: when that process dies, no change is announced.
const LOCKED_POLL: Duration = Duration::from_secs(2);

/// The longest time between two reads of the store.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How long a run is left alone after it could neither continue nor record why. Doubles with each such failure.
const BACKOFF: Duration = Duration::from_secs(1);

/// The upper limit of the doubled [`BACKOFF`].
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// Resumes the unfinished runs of a store whose answer, time or event has come, and those that were interrupted.
///
/// A run is resumed with the workflow that is registered under the name recorded with it, so start runs with
/// [`RunOptions::workflow`]. Runs that another process works on, and runs of other workflows, are left alone. The failure
/// of one run stops no other. Several workers, in one process or in several, can share a store.
///
/// ```
/// use rath::prelude::*;
/// use rath::worker::{RunEnd, Worker};
/// use rath::control::Control;
/// use rath::workflow::{chain, wait_for};
/// # pollster::block_on(async {
/// # let store = InMemory::new();
/// let review = chain("review").then(wait_for("approved"));
/// let options = rath::RunOptions::from(Actor::program("ci")).workflow("review", "1");
/// let started = store.run("change 7", options, &review, async |session: &mut Session| {
///     session.user("Review change 7.").map(drop)
/// });
/// let id = match started.await { // The run waits for the event.
///     Err(error) => error.sessions()[0].id(),
///     Ok(session) => session.id(),
/// };
///
/// Control::new(&store, Actor::person("ada")).send_event(id, "approved", "true").await?;
/// let worker = Worker::new(&store).register("review", review);
/// let reports = worker.run_ready().await?;
/// assert!(matches!(reports[0].end, RunEnd::Done(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Worker {
    store: Arc<dyn Store>,
    /// By name, and by version if one was given.
    workflows: HashMap<(String, Option<String>), BoxWorkflow>,
    resources: Resources,
    at_most: usize,
    cancel: Cancel,
    on_report: Option<ReportHandler>,
}

type ReportHandler = Arc<dyn Fn(&RunReport) + Send + Sync>;

/// What a worker did with a run.
#[derive(Debug)]
pub struct RunReport {
    /// The run, as it was before.
    pub run: UnfinishedRun,
    /// What became of it.
    pub end: RunEnd,
}

/// What became of a run that a worker found.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEnd {
    /// The run is done. This is the head of its session.
    Done(Reference),
    /// The run was resumed, and waits again.
    Waiting(SessionId),
    /// The run failed or was cancelled, or could not be resumed. [`Error::is_recorded`] tells whether the run is over.
    Failed(Error),
    /// The run was not resumed: it still waits.
    NotReady,
    /// The run was not resumed: a process works on it.
    Locked(Holder),
    /// The run was not resumed: its workflow is not registered.
    UnknownWorkflow,
}

impl Worker {
    /// A worker without workflows.
    pub fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            store: store.clone(),
            workflows: HashMap::new(),
            resources: Resources::new(),
            at_most: AT_MOST,
            cancel: Cancel::new(),
            on_report: None,
        }
    }

    /// Resumes runs of the workflow `name`, of every version that has no workflow of its own.
    #[must_use]
    pub fn register(mut self, name: impl Into<String>, workflow: impl Workflow + 'static) -> Self {
        self.workflows.insert((name.into(), None), BoxWorkflow::new(workflow));
        self
    }

    /// Resumes runs of this version of the workflow `name`. Register old and new versions together to let old runs end
    /// with the code that started them.
    #[must_use]
    pub fn register_version(
        mut self,
        name: impl Into<String>,
        version: impl Into<String>,
        workflow: impl Workflow + 'static,
    ) -> Self {
        self.workflows.insert((name.into(), Some(version.into())), BoxWorkflow::new(workflow));
        self
    }

    /// Provides a value to the sessions of all runs. See [`rath_core::Session::provide`].
    #[must_use]
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources = self.resources.with(Arc::new(value));
        self
    }

    /// Sets how many runs are resumed at the same time. [default: 16]
    #[must_use]
    pub fn at_most(mut self, runs: usize) -> Self {
        self.at_most = runs.max(1);
        self
    }

    /// Lets [`run`](Self::run) return when `cancel` is cancelled. Runs in progress are not cancelled by it.
    #[must_use]
    pub fn stop_with(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Calls `report` for each run that was resumed.
    #[must_use]
    pub fn on_report(mut self, report: impl Fn(&RunReport) + Send + Sync + 'static) -> Self {
        self.on_report = Some(Arc::new(report));
        self
    }

    /// Resumes each ready run once, and returns what it did with each unfinished run of the store.
    pub async fn run_ready(&self) -> Result<Vec<RunReport>> {
        let mut reports = Vec::new();
        let mut tasks = Tasks::default();
        for run in UnfinishedRun::list(&self.store, self.now()).await? {
            let workflow = match self.decide(&run) {
                Ok(workflow) => workflow,
                Err(end) => {
                    reports.push(RunReport { run, end });
                    continue;
                }
            };
            while tasks.running >= self.at_most {
                reports.extend(tasks.next().await);
            }
            tasks.start(self.resume(run, workflow));
        }
        while let Some(report) = tasks.next().await {
            reports.push(report);
        }
        reports.iter().for_each(|report| self.report(report));
        Ok(reports)
    }

    /// Resumes runs as they become ready, until the token of [`stop_with`](Self::stop_with) is cancelled. Then it starts
    /// no further run, and returns when those in progress have ended or wait. If its future is dropped, runs in progress
    /// are interrupted where they are, and can be resumed.
    ///
    /// Commits and posts of every process wake it, and so does the next awaited time.
    pub async fn run(&self) -> Result<()> {
        let (commits, posts) = (self.store.watch(WatchTopic::Commits), self.store.watch(WatchTopic::Posts));
        let (mut scan, mut tasks, mut attempts) = (RunScan::default(), Tasks::default(), Attempts::default());
        let mut ready = VecDeque::new();
        // When to read the store, and the earliest time for it after a change.
        let (mut read_at, mut earliest) = (Instant::now(), Instant::now());
        loop {
            if read_at <= Instant::now() {
                commits.mark();
                posts.mark();
                let started = Instant::now();
                let unfinished = scan.list(&self.store, self.now()).await?;
                (ready, read_at) = self.choose(unfinished, &mut attempts, tasks.running);
                // Reading the store takes at most a tenth of the time.
                let pause = SHORTEST_PAUSE.max(started.elapsed() * 10).min(LOCKED_POLL);
                earliest = Instant::now() + pause;
                read_at = read_at.max(earliest);
            }
            while tasks.running < self.at_most
                && let Some((run, workflow)) = ready.pop_front()
            {
                attempts.start(&run);
                tasks.start(self.resume(run, workflow));
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                Some(report) = tasks.next(), if tasks.running > 0 => {
                    self.report(&report);
                    if let Some(again) = attempts.end(&report) {
                        read_at = read_at.min(again.max(earliest));
                    }
                }
                () = posts.changed() => read_at = read_at.min(earliest),
                () = commits.changed() => read_at = read_at.min(earliest),
                () = sleep(read_at.saturating_duration_since(Instant::now())) => {}
            }
        }
        while let Some(report) = tasks.next().await {
            self.report(&report);
        }
        Ok(())
    }

    /// The runs to resume now, and when to read the store again if it does not change.
    fn choose(
        &self,
        unfinished: Vec<UnfinishedRun>,
        attempts: &mut Attempts,
        running: usize,
    ) -> (VecDeque<(UnfinishedRun, BoxWorkflow)>, Instant) {
        let mut again = Instant::now() + LONGEST_PAUSE;
        let mut due: Option<Time> = None;
        let mut ready = VecDeque::new();
        attempts.keep_only(&unfinished);
        for run in unfinished {
            match self.decide(&run) {
                Ok(workflow) => match attempts.may_start(&run) {
                    Ok(()) => ready.push_back((run, workflow)),
                    Err(Some(time)) => again = again.min(time),
                    Err(None) => {}
                },
                Err(RunEnd::NotReady) => due = due.into_iter().chain(run.due()).min(),
                Err(RunEnd::Locked(_)) => again = again.min(Instant::now() + LOCKED_POLL),
                Err(_) => {}
            }
        }
        if let Some(due) = due {
            again = again.min(self.instant_of(due, running == 0 && ready.is_empty()));
        }
        (ready, again)
    }

    fn report(&self, report: &RunReport) {
        let was_resumed = matches!(report.end, RunEnd::Done(_) | RunEnd::Waiting(_) | RunEnd::Failed(_));
        if let Some(on_report) = self.on_report.as_ref().filter(|_| was_resumed) {
            on_report(report);
        }
    }

    /// The workflow of a run that is ready, or why it is not resumed.
    fn decide(&self, run: &UnfinishedRun) -> Result<BoxWorkflow, RunEnd> {
        let name = run.workflow.as_ref().ok_or(RunEnd::UnknownWorkflow)?;
        let versioned = self.workflows.get(&(name.clone(), run.version.clone()));
        let workflow = versioned.or_else(|| self.workflows.get(&(name.clone(), None)));
        let workflow = workflow.ok_or(RunEnd::UnknownWorkflow)?;
        match &run.readiness {
            Readiness::Ready { .. } => Ok(workflow.clone()),
            Readiness::Waiting { .. } => Err(RunEnd::NotReady),
            Readiness::Locked { holder } => Err(RunEnd::Locked(holder.clone())),
        }
    }

    /// Resumes a run. The future does not borrow the worker.
    fn resume(&self, run: UnfinishedRun, workflow: BoxWorkflow) -> impl Future<Output = RunReport> + Send + use<> {
        let (store, resources) = (self.store.clone(), self.resources.clone());
        async move {
            let name = run.workflow.clone().zip(run.version.clone());
            let options = RunOptions {
                actor: run.started_by.clone(),
                program: None,
                workflow: name.map(|(name, version)| WorkflowName { name, version }),
                on_divergence: OnDivergence::Stop,
            };
            let work = async {
                let mut session = store.resume(run.session, options).await?;
                session.provide_all(&resources);
                let mut session = session.execute(&workflow).await?;
                session.publish().await?;
                Ok(session.head())
            };
            let ended = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
                let why = format!("the workflow panicked: {}", panic_message(&*panic));
                Err(ErrorKind::Coded { code: "workflow-panicked".into(), why: why.into() }.into())
            });
            RunReport { run, end: end_of(ended) }
        }
    }

    fn now(&self) -> Time {
        self.resources.get::<SkippingClock>().map_or_else(|_| Time::now(), |clock| clock.now())
    }

    /// When a time comes. A clock for tests skips to it, if no run is in progress.
    fn instant_of(&self, time: Time, is_idle: bool) -> Instant {
        match self.resources.get::<SkippingClock>() {
            Ok(clock) if is_idle => {
                clock.skip_to(time);
                Instant::now()
            }
            Ok(_) => Instant::now() + LONGEST_PAUSE,
            Err(_) => Instant::now() + Duration::from_micros(time.0.saturating_sub(Time::now().0)).min(LONGEST_PAUSE),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.workflows.keys().collect();
        names.sort();
        f.debug_struct("Worker").field("workflows", &names).field("at_most", &self.at_most).finish_non_exhaustive()
    }
}

/// The last attempt to resume each run.
#[derive(Default)]
struct Attempts(HashMap<SessionId, Attempt>);

#[derive(Default)]
struct Attempt {
    is_running: bool,
    /// What the run's records and inboxes contained before it.
    signature: u64,
    /// When the run may be resumed again without a change. `None`: only after a change.
    not_before: Option<Instant>,
    failures: u32,
}

impl Attempts {
    fn keep_only(&mut self, unfinished: &[UnfinishedRun]) {
        let ids: HashSet<SessionId> = unfinished.iter().map(|run| run.session).collect();
        self.0.retain(|id, attempt| attempt.is_running || ids.contains(id));
    }

    /// Whether a run may be resumed now. The error is the time at which it may be, if that is known: a run that could
    /// not continue is left alone until something changes.
    fn may_start(&self, run: &UnfinishedRun) -> Result<(), Option<Instant>> {
        match self.0.get(&run.session) {
            Some(Attempt { is_running: true, .. }) => Err(None),
            Some(Attempt { signature, not_before, .. }) if *signature == run.signature => match not_before {
                Some(time) if *time <= Instant::now() => Ok(()),
                time => Err(*time),
            },
            _ => Ok(()),
        }
    }

    fn start(&mut self, run: &UnfinishedRun) {
        let attempt = self.0.entry(run.session).or_default();
        (attempt.is_running, attempt.signature, attempt.not_before) = (true, run.signature, None);
    }

    /// Notes the end of an attempt. Returns when the run may be resumed again without a change.
    fn end(&mut self, report: &RunReport) -> Option<Instant> {
        let attempt = self.0.get_mut(&report.run.session)?;
        attempt.is_running = false;
        attempt.not_before = match &report.end {
            RunEnd::Failed(error) if !error.is_recorded() => {
                attempt.failures += 1;
                let backoff = BACKOFF.saturating_mul(1 << (attempt.failures - 1).min(10)).min(LONGEST_BACKOFF);
                Some(Instant::now() + backoff)
            }
            RunEnd::Locked(_) => Some(Instant::now() + LOCKED_POLL),
            _ => {
                attempt.failures = 0;
                None
            }
        };
        attempt.not_before
    }
}

fn end_of(ended: Result<Reference>) -> RunEnd {
    let mut error = match ended {
        Ok(head) => return RunEnd::Done(head),
        Err(error) => error,
    };
    // The sessions in the error would keep their leases.
    drop(error.take_sessions());
    match error.kind() {
        ErrorKind::Waiting(session) => RunEnd::Waiting(*session),
        ErrorKind::Store(StoreError::Locked { holder, .. }) => RunEnd::Locked(holder.clone()),
        _ => RunEnd::Failed(error),
    }
}

/// The runs in progress: tasks on a Tokio runtime, and otherwise futures that [`next`](Self::next) polls.
#[derive(Default)]
struct Tasks {
    running: usize,
    tasks: JoinSet<RunReport>,
    local: FuturesUnordered<BoxFuture<'static, RunReport>>,
}

impl Tasks {
    fn start(&mut self, run: impl Future<Output = RunReport> + Send + 'static) {
        self.running += 1;
        match tokio::runtime::Handle::try_current() {
            Ok(_) => drop(self.tasks.spawn(run)),
            Err(_) => self.local.push(Box::pin(run)),
        }
    }

    /// Waits for the next run to end. `None` if none is in progress.
    async fn next(&mut self) -> Option<RunReport> {
        let report = tokio::select! {
            Some(joined) = self.tasks.join_next(), if !self.tasks.is_empty() => match joined {
                Ok(report) => report,
                // Panics of workflows are caught in the task: this one is in the executor itself.
                Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
                Err(_) => return None,
            },
            Some(report) = self.local.next(), if !self.local.is_empty() => report,
            else => return None,
        };
        self.running -= 1;
        Some(report)
    }
}
