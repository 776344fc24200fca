//! Running branches of a session concurrently.
//!
//! Each branch is a fork with a step of its own, named after the branch. The step makes a branch durable: a resumed run
//! finds the fork again, and a finished step is not run again. Branches run as Tokio tasks, on all threads of the
//! runtime; on a current-thread runtime, and outside Tokio, they take turns on one thread.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rath_core::store::BoxFuture;
use rath_core::{BoxWorkflow, Cancel, Error, ErrorKind, Result, Session, SessionId, Workflow as _};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::SharedBudget;
use super::codes;
use super::validator::{self, BoxValidator};
use crate::agent::panic_message;
use crate::sleep::sleep;

/// How long cancelled work may take to stop before it is dropped, unless [`StopTimeout`] is set.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A resource that sets how long cancelled work may take to stop before it is dropped. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct StopTimeout(pub Duration);

/// How often to check whether a branch that undoes work has finished.
const HOLD_POLL: Duration = Duration::from_millis(100);

/// A branch to run.
pub(super) struct Branch {
    /// The name of the branch and of its step.
    pub(super) name: String,
    /// The fork.
    pub(super) session: Session,
    pub(super) workflow: BoxWorkflow,
    /// Checks the branch after its work. A rejection does not fail the branch.
    pub(super) validator: Option<BoxValidator>,
}

/// How a branch ended.
pub(super) enum BranchEnd {
    /// The workflow succeeded.
    Done(Session),
    /// The workflow failed or was cancelled. The branch has recorded the reason, and nothing is open on it.
    Failed(Session, Error),
    /// The branch is not finished: it waits, the store failed, or the code diverged. The error holds its session.
    Open(Error),
}

pub(super) enum Event {
    /// The branch runs code now. Not sent for a branch that had finished before a crash.
    Working,
    /// The branch with this index has ended, and whether it ran code before.
    Ended(usize, BranchEnd, bool),
}

/// The branches that are running.
pub(super) struct Running {
    /// On a Tokio runtime, the branches as tasks.
    tasks: JoinSet<()>,
    /// Without a runtime, the branches as futures that [`next`](Self::next) polls.
    local: FuturesUnordered<BoxFuture<'static, ()>>,
    sender: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    /// Cancels all branches.
    cancel: Cancel,
    /// The number of branches that have not ended.
    open: usize,
    /// The number of branches that have neither ended nor started to run code.
    unsettled: usize,
}

impl Running {
    /// No branches yet. They stop when `session` is cancelled.
    pub(super) fn of(session: &mut Session) -> Self {
        let (sender, events) = unbounded_channel();
        let cancel = session.cancel_token().child();
        Self { tasks: JoinSet::new(), local: FuturesUnordered::new(), sender, events, cancel, open: 0, unsettled: 0 }
    }

    /// The number of branches that have not ended.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Whether every branch has ended or runs code, so that all branches that finished before a crash are known.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Starts a branch. [`Event::Ended`] names it by `index`.
    pub(super) fn start(&mut self, index: usize, branch: Branch) {
        (self.open, self.unsettled) = (self.open + 1, self.unsettled + 1);
        let (cancel, sender) = (self.cancel.child(), self.sender.clone());
        let work = async move {
            let (end, has_worked) = run(branch, cancel, &sender).await;
            let _ = sender.send(Event::Ended(index, end, has_worked));
        };
        match tokio::runtime::Handle::try_current() {
            Ok(_) => drop(self.tasks.spawn(work)),
            Err(_) => self.local.push(Box::pin(work)),
        }
    }

    /// Waits for the next event. `None` if no branch is running.
    pub(super) async fn next(&mut self) -> Option<Event> {
        if self.open == 0 {
            return None;
        }
        loop {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    match &event {
                        Event::Working => self.unsettled -= 1,
                        Event::Ended(_, _, has_worked) => {
                            self.open -= 1;
                            self.unsettled -= usize::from(!has_worked);
                        }
                    }
                    return Some(event);
                }
                Some(joined) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    // Panics of workflows are caught in the task: this one is in the executor itself.
                    if let Err(failed) = joined && failed.is_panic() {
                        std::panic::resume_unwind(failed.into_panic());
                    }
                }
                Some(()) = self.local.next(), if !self.local.is_empty() => {}
            }
        }
    }

    /// Asks all branches to stop. Branches that ignore the request are dropped after 10 s.
    pub(super) fn cancel(&self, why: impl Into<String>) {
        self.cancel.cancel(why);
    }

    /// Whether the branches were asked to stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

/// Runs one branch to its end, on the caller's task.
pub(super) async fn run_alone(branch: Branch) -> BranchEnd {
    let mut branch = branch;
    let cancel = branch.session.cancel_token().child();
    let (sender, _events) = unbounded_channel();
    run(branch, cancel, &sender).await.0
}

/// Runs one branch. Returns its end, and whether it sent [`Event::Working`].
async fn run(branch: Branch, cancel: Cancel, events: &UnboundedSender<Event>) -> (BranchEnd, bool) {
    let Branch { name, mut session, workflow, validator } = branch;
    let id = session.id();
    session.stop_with(cancel.clone());
    let hold = StopHold::of(&session);
    session.provide(hold.clone());
    let budget = session.resources().get::<SharedBudget>().ok();
    if let Some(budget) = &budget {
        budget.note(&session);
    }
    let mut is_working = false;
    let work = async |session: Session| {
        is_working = true;
        let _ = events.send(Event::Working);
        let work = async {
            let session = workflow.forward(session).await?;
            let value = match session.own_output::<Value>().await {
                Ok(value) => value,
                Err(error) => return Err(error.with_sessions(vec![session])),
            };
            match &validator {
                // Boxed, because validation runs a branch itself.
                Some(validator) => Ok((Box::pin(validator::validate(session, validator)).await?.0, value)),
                None => Ok((session, value)),
            }
        };
        stoppable(work, cancel, hold).await
    };
    let ended = session.step_value(name, work).await;
    let end = match ended {
        // A branch is durable when it ends, so that no finished branch runs twice.
        Ok((mut session, _)) => match session.publish().await {
            Ok(()) => BranchEnd::Done(session),
            Err(error) => BranchEnd::Open(error.with_sessions(vec![session])),
        },
        Err(error) => failed(id, error),
    };
    if let (Some(budget), BranchEnd::Done(session) | BranchEnd::Failed(session, _)) = (&budget, &end) {
        budget.note(session);
    }
    (end, is_working)
}

fn failed(id: SessionId, mut error: Error) -> BranchEnd {
    if error.leaves_the_run_open() || !error.is_recorded() {
        return BranchEnd::Open(error);
    }
    let mut sessions = error.take_sessions();
    // If the run diverged on the branch, it may have continued on another session, which then comes first.
    let at = sessions.iter().position(|session| session.id() == id).unwrap_or(0);
    match at < sessions.len() {
        true => BranchEnd::Failed(sessions.swap_remove(at), error),
        false => BranchEnd::Open(error),
    }
}

/// Keeps a cancelled branch from being dropped while it undoes work. A resource of each branch.
#[derive(Clone)]
pub(super) struct StopHold {
    held: Arc<AtomicUsize>,
    /// How long the branch may take to stop.
    limit: Duration,
}

impl StopHold {
    pub(super) fn of(session: &Session) -> Self {
        let limit = session.resources().get::<StopTimeout>().map_or(STOP_TIMEOUT, |limit| limit.0);
        Self { held: Arc::default(), limit }
    }

    /// Keeps the branch until the returned guard is dropped.
    pub(super) fn hold(&self) -> impl Drop + Send + use<> {
        struct Held(Arc<AtomicUsize>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.held.fetch_add(1, Ordering::AcqRel);
        Held(self.held.clone())
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }
}

/// Runs `work` until it ends. Turns a panic into an error. Drops the work if it has not stopped some time after it was
/// cancelled: 10 s, unless set.
pub(super) async fn stoppable<T>(work: impl Future<Output = Result<T>>, cancel: Cancel, hold: StopHold) -> Result<T> {
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    let timed_out = async {
        cancel.cancelled().await;
        sleep(hold.limit).await;
        while hold.is_held() {
            sleep(HOLD_POLL).await;
        }
    };
    tokio::select! {
        biased;
        ended = &mut work => ended.unwrap_or_else(|panic| {
            let why = format!("the workflow panicked: {}", panic_message(&*panic));
            Err(ErrorKind::Coded { code: codes::PANICKED.into(), why: why.into() }.into())
        }),
        () = timed_out => {
            let why = cancel.why().unwrap_or_default();
            let why = format!("{why}; the workflow did not stop within {:.1} s and was dropped", hold.limit.as_secs_f64());
            Err(ErrorKind::Cancelled { why }.into())
        }
    }
}
