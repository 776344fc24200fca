//! Trying again after a failure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rath_core::body::{BranchContext, Effect, Role, StepEntered, ToolStarted, Verdict};
use rath_core::{BoxWorkflow, BranchMerge, Error, How, Kind, Outline, Result, Session, Time, Workflow};

use super::branches::{Branch, BranchEnd, run_alone};
use super::clock::sleep_until_time;

/// Runs `workflow` until it succeeds, at most three times. Each attempt runs on a fork of the session, with the context
/// and the files as they were before the first.
///
/// The successful attempt's context and files become those of the session. Failed attempts are merged as rejected
/// branches, with the reason. Cancellation is not retried. An attempt after one that made an irreversible tool call
/// needs the answer "yes" of a person, unless [`irreversible_ok`](Retry::irreversible_ok) is set.
///
/// All attempts share a [`RetryKey`], which tools can use as an idempotency key.
pub fn retry(name: impl Into<String>, workflow: impl Workflow + 'static) -> Retry {
    Retry {
        name: name.into(),
        workflow: BoxWorkflow::new(workflow),
        attempts: 3,
        backoff: Duration::ZERO,
        only: None,
        tell_reason: false,
        irreversible_ok: false,
    }
}

/// Whether an error may be retried.
type ErrorFilter = Arc<dyn Fn(&Error) -> bool + Send + Sync>;

/// See [`retry`].
#[derive(Clone)]
pub struct Retry {
    name: String,
    workflow: BoxWorkflow,
    attempts: u32,
    backoff: Duration,
    only: Option<ErrorFilter>,
    tell_reason: bool,
    irreversible_ok: bool,
}

/// The key that the attempts of a [`retry`] share. It is a resource: `call.get::<RetryKey>()`. It is the same for every
/// attempt and on every resume, and different for every other retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryKey(pub String);

impl Retry {
    /// Sets the number of attempts, with the first. [default: 3]
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Waits before the second attempt, and twice as long before each further one. The time is recorded: a resumed run
    /// does not wait again.
    #[must_use]
    pub fn backoff(mut self, first: Duration) -> Self {
        self.backoff = first;
        self
    }

    /// Retries only errors with one of these codes.
    #[must_use]
    pub fn on_codes<C: Into<String>>(self, codes: impl IntoIterator<Item = C>) -> Self {
        let codes: Vec<String> = codes.into_iter().map(Into::into).collect();
        self.on(move |error| codes.iter().any(|code| code == error.code()))
    }

    /// Retries only errors that `accepts` accepts. It must give the same answer when the run is resumed.
    #[must_use]
    pub fn on(mut self, accepts: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(accepts));
        self
    }

    /// Tells each further attempt why the last one failed, as a user message.
    #[must_use]
    pub fn tell_reason(mut self) -> Self {
        self.tell_reason = true;
        self
    }

    /// Retries also after an attempt that made an irreversible tool call, without asking a person.
    #[must_use]
    pub fn irreversible_ok(mut self) -> Self {
        self.irreversible_ok = true;
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let before = session.resources().get::<RetryKey>().ok();
        let step = session.state().step().map(ToString::to_string).unwrap_or_default();
        session.provide(RetryKey(format!("{}/{step}", session.id())));
        let mut failed = Vec::new();
        let done = self.attempt_all(&mut session, &mut failed).await;
        match before {
            Some(before) => session.provide_shared(before),
            None => session.withdraw::<RetryKey>(),
        }
        match done {
            Ok(done) => self.join(session, failed, Some(done)).await,
            Err(error) if error.leaves_the_run_open() => {
                let sessions = std::iter::once(session).chain(failed.into_iter().map(|(branch, _)| branch)).collect();
                Err(error.with_sessions(sessions))
            }
            Err(error) => match self.join(session, failed, None).await {
                Ok(session) => Err(error.with_sessions(vec![session])),
                Err(other) if other.leaves_the_run_open() => Err(other),
                Err(other) => Err(error.with_sessions(other.into_sessions())),
            },
        }
    }

    /// Makes attempts until one succeeds. Adds the others to `failed`, with their reasons.
    async fn attempt_all(&self, session: &mut Session, failed: &mut Vec<(Session, String)>) -> Result<Session> {
        let mut attempt = 1;
        loop {
            let name = format!("attempt {attempt}");
            let reason = failed.last().map(|(_, why)| why.clone()).filter(|_| self.tell_reason);
            let workflow = BoxWorkflow::new(Attempt { workflow: self.workflow.clone(), reason });
            let branch = Branch { session: session.fork(&name), name, workflow, validator: None };
            let (branch, error) = match run_alone(branch).await {
                BranchEnd::Done(branch) => return Ok(branch),
                BranchEnd::Open(error) => return Err(error),
                BranchEnd::Failed(branch, error) => (branch, error),
            };
            let irreversible = irreversible_calls(&branch).await;
            failed.push((branch, format!("attempt {attempt} failed: {error}")));
            let is_accepted = self.only.as_ref().is_none_or(|accepts| accepts(&error));
            if attempt >= self.attempts || error.is_cancelled() || !is_accepted {
                return Err(error);
            }
            let irreversible = irreversible?;
            if !irreversible.is_empty() && !self.irreversible_ok {
                let question = format!(
                    "Attempt {attempt} of {} failed after irreversible calls ({}): {error}. Try again?",
                    self.name,
                    irreversible.join(", ")
                );
                if session.ask(question).await? != Verdict::Yes {
                    return Err(error);
                }
            }
            if !self.backoff.is_zero() {
                let wait = self.backoff.saturating_mul(1 << (attempt - 1).min(16));
                let until = Time(session.now()?.0.saturating_add(wait.as_micros() as u64));
                session.publish().await?;
                sleep_until_time(session, until).await?;
            }
            attempt += 1;
        }
    }

    /// Merges the attempts in one commit: the failed ones as rejected, the successful one in place of the session's own
    /// context and files.
    async fn join(&self, session: Session, failed: Vec<(Session, String)>, done: Option<Session>) -> Result<Session> {
        let mut parts = Vec::with_capacity(failed.len() + 1);
        let mut branches = Vec::with_capacity(failed.len() + 1);
        for (branch, why) in failed {
            parts.push(BranchMerge {
                branch: branch.id(),
                context: BranchContext::Omit,
                files: false,
                rejected: Some(why),
            });
            branches.push(branch);
        }
        if let Some(branch) = done {
            parts.push(BranchMerge { branch: branch.id(), context: BranchContext::Keep, files: true, rejected: None });
            branches.push(branch);
        }
        if branches.is_empty() {
            return Ok(session);
        }
        session.merge(branches, How::PerBranch { branches: parts, allow_conflicts: false, then: None }).await
    }
}

/// One attempt: told why the last one failed, if wanted.
struct Attempt {
    workflow: BoxWorkflow,
    reason: Option<String>,
}

impl Workflow for Attempt {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        if let Some(reason) = &self.reason
            && let Err(error) = session.user(format!("{reason}\nAvoid this mistake now."))
        {
            return Err(error.with_sessions(vec![session]));
        }
        self.workflow.forward(session).await
    }
}

/// The names of the irreversible tools that a failed attempt called.
async fn irreversible_calls(branch: &Session) -> Result<Vec<String>> {
    let mut tools = Vec::new();
    for record in branch.own_records(&[Kind::ToolStarted]).await? {
        let Ok(started) = record.body::<ToolStarted>() else { continue };
        if started.effect == Effect::Irreversible && !tools.contains(&started.tool) {
            tools.push(started.tool);
        }
    }
    Ok(tools)
}

impl Workflow for Retry {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), as_a_whole: true, ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let detail = format!("{}, attempts={}", self.name, self.attempts);
        Outline::leaf("retry").detail(detail).child("attempt", self.workflow.outline())
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
