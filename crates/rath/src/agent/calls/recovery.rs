//! How to recover a call whose outcome is unknown, because a crash interrupted it.

use rath_core::body::{About, Asked, Effect, Restored};
use rath_core::{OpenCall, Result, Session, Started};

use super::super::Agent;
use super::super::drive::{Bench, of_workshop};
use super::super::event::Event;
use super::decide::Plan;

impl Agent {
    /// Makes the call again where that is safe, on the files as they were before it; else asks a person.
    pub(super) async fn decide_in_doubt(
        &self,
        session: &mut Session,
        bench: &Bench,
        call: &OpenCall,
        started: &Started,
        arguments: &str,
        make: impl Fn(u32) -> Plan,
    ) -> Result<Plan> {
        // Stop what the dead process had started before deciding whether the call happened.
        if let Some(sandbox) = session.state().placement.as_ref().and_then(|placement| placement.sandbox.as_ref()) {
            rath_sandbox::sweep_marked(&sandbox.id);
        }
        match started.effect {
            Effect::Pure | Effect::Idempotent => Ok(make(started.attempt)),
            Effect::Workspace => {
                if let Some(before) = &started.before {
                    let restored = bench.workshop()?.back_to(session, before).await.map_err(of_workshop)?;
                    if let Some(restored) = &restored {
                        bench.tell(session, || Event::FilesRestored { restored: Box::new(Restored::clone(restored)) });
                    }
                }
                Ok(make(started.attempt))
            }
            Effect::Irreversible | Effect::Unknown(_) => {
                let shown = format!(
                    "The process ended in the middle of this call of {}, and the call cannot be taken back:\n{arguments}\n\
                     Did it happen? \"yes\": it did, and its output is lost. \"no\": it did not, and is made now. \
                     Or say in words what came of it.",
                    call.tool
                );
                self.ask(session, bench, Asked::new(About::InDoubt, Some(call.id.clone()), shown))?;
                Ok(Plan::Wait)
            }
        }
    }
}
