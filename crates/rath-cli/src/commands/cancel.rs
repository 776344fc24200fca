use anyhow::Result;
use rath::SessionId;
use rath::control::{Control, Delivery};
use rath::inspect::RunState;
use serde::Serialize;

use super::Answer;
use super::answer::{explained, say, say_more};
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Stop the work on a session; what was done stays on the record
///
/// While a process works on it, that process is told and stops at its next boundary. Else open calls and steps are
/// closed as cancelled here.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Cancel {
    /// The session
    session: String,
    /// The reason
    #[arg(long, value_name = "TEXT", default_value = "no reason given")]
    why: String,
}

/// Says that there was nothing to stop, and what there is to do.
fn say_idle(id: SessionId, run: Option<RunState>) {
    let id = id.short();
    let why = match run {
        Some(RunState::Done) => "the run is over",
        Some(RunState::Failed) => "the run has failed",
        Some(RunState::Cancelled) => "the run was cancelled before",
        _ => "nobody works on it, and nothing is open",
    };
    let help = match run {
        Some(_) => format!("`rath run --continue {id} WORDS` goes on with it"),
        None => format!("`rath close {id}` ends the session"),
    };
    output::remark(format_args!("nothing to stop in session {}: {why}\n  help: {help}", style::session(&id)));
}

impl Cancel {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        #[derive(Serialize)]
        struct Idle {
            run: Option<RunState>,
        }
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let cancelled = Control::new(&store, settings.actor()).cancel(id, self.why).await.map_err(explained)?;
        for (_, delivery) in &cancelled.branches {
            say(settings, delivery)?;
        }
        match &cancelled.delivery {
            idle @ Delivery::NothingToStop { .. } => {
                say_more(settings, idle, Idle { run: cancelled.run })?;
                if !settings.json {
                    say_idle(id, cancelled.run);
                }
            }
            delivery => say(settings, delivery)?,
        }
        for other in cancelled.continued_as {
            output::remark(format_args!(
                "the run went on as session {}, which is not cancelled\n  help: `rath cancel {}`",
                style::session(other.short()),
                other.short()
            ));
        }
        Ok(Answer::Yes)
    }
}
