//! Recovery of a call that a crash interrupted, so that its outcome is unknown.

use rath_core::body::{Asked, Effect, QuestionKind, Restored};
use rath_core::{CallStart, OpenCall, Result, Session};

use super::super::Agent;
use super::super::drive::{StepContext, workspace_error};
use super::super::event::Event;
use super::decide::Plan;

impl Agent {
    /// Repeats the call if that is safe, after restoring the files before it. Otherwise asks a person whether it
    /// happened.
    pub(super) async fn decide_interrupted(
        &self,
        session: &mut Session,
        context: &StepContext,
        call: &OpenCall,
        started: &CallStart,
        arguments: &str,
        make: impl Fn(u32) -> Plan,
    ) -> Result<Plan> {
        // Kill leftover processes before deciding whether to retry.
        if let Some(sandbox) = session.state().placement.as_ref().and_then(|placement| placement.sandbox.as_ref()) {
            rath_sandbox::kill_marked(&sandbox.id);
        }
        match started.effect {
            Effect::Pure | Effect::Idempotent => Ok(make(started.attempt)),
            Effect::Workspace => {
                if let Some(before) = &started.before {
                    let restored =
                        context.workspaces()?.restore_before_call(session, before).await.map_err(workspace_error)?;
                    if let Some(restored) = &restored {
                        context
                            .emit(session, || Event::FilesRestored { restored: Box::new(Restored::clone(restored)) });
                    }
                }
                Ok(make(started.attempt))
            }
            Effect::Irreversible | Effect::Unknown(_) => {
                let shown = format!(
                    "The process ended during this irreversible call of {}:\n{arguments}\n\
                     Did it happen? Answer \"yes\" if it did (its output is lost), \"no\" if it did not (it is made \
                     now), or describe the outcome.",
                    call.tool
                );
                self.ask(session, context, Asked::new(QuestionKind::OutcomeUnknown, Some(call.id.clone()), shown))?;
                Ok(Plan::Wait)
            }
        }
    }
}
