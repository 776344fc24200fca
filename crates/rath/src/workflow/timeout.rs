//! A time limit.

use std::time::Duration;

use rath_core::body::{Role, StepEntered};
use rath_core::{BoxWorkflow, Error, ErrorKind, Outline, Result, Session, Time, Workflow};

use super::branches::{StopHold, stoppable};
use super::clock::now;
use super::codes;

/// Runs `workflow` with a time limit. After it the workflow is cancelled, and dropped if it has not stopped within 10 s.
/// The step then fails with the code `timed-out`.
///
/// The deadline is recorded when the step starts, so a crash does not extend it.
pub fn timeout(name: impl Into<String>, limit: Duration, workflow: impl Workflow + 'static) -> Timeout {
    Timeout { name: name.into(), limit, workflow: BoxWorkflow::new(workflow) }
}

/// See [`timeout`].
#[derive(Clone, Debug)]
pub struct Timeout {
    name: String,
    limit: Duration,
    workflow: BoxWorkflow,
}

impl Timeout {
    async fn run(&self, mut session: Session) -> Result<Session> {
        let current = now(&session);
        let limit = self.limit.as_micros().try_into().unwrap_or(u64::MAX);
        let deadline = match session.sample("deadline", || Time(current.0.saturating_add(limit))) {
            Ok(deadline) => deadline,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        let outer = session.cancel_token();
        let cancel = outer.child();
        session.stop_with(cancel.clone());
        let hold = StopHold::of(&session);
        session.provide(hold.clone());
        let left = Duration::from_micros(deadline.0.saturating_sub(now(&session).0));
        let why = format!("the time limit of {:.1} s is over", self.limit.as_secs_f64());
        let expired = async {
            crate::sleep::sleep(left).await;
            cancel.cancel(why.as_str());
            std::future::pending::<std::convert::Infallible>().await
        };
        let work = stoppable(self.workflow.forward(session), cancel.clone(), hold.clone());
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            never = expired => match never {},
        };
        match ended {
            Ok(mut session) => {
                session.stop_with(outer);
                Ok(session)
            }
            Err(mut error) => {
                let is_own = cancel.is_cancelled() && !outer.is_cancelled();
                let mut sessions = error.take_sessions();
                sessions.iter_mut().for_each(|session| session.stop_with(outer.clone()));
                match is_own && error.is_cancelled() {
                    true => {
                        Err(Error::new(ErrorKind::Coded { code: codes::TIMED_OUT.into(), why: why.into() }, sessions))
                    }
                    false => Err(error.with_sessions(sessions)),
                }
            }
        }
    }
}

impl Workflow for Timeout {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), as_a_whole: true, ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let detail = format!("{}, {:.1} s", self.name, self.limit.as_secs_f64());
        Outline::leaf("timeout").detail(detail).child("work", self.workflow.outline())
    }
}
