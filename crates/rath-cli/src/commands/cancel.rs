use anyhow::Result;
use rath::SessionId;
use rath::control::{Control, Delivery};
use rath::inspect::RunState;
use serde::Serialize;

use super::Answer;
use super::answer::{explained, report, report_with};
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Cancel the work on a session; what was done stays recorded
///
/// If a process works on the session, it stops before its next step. Otherwise, open calls and steps are recorded as
/// cancelled now.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Cancel {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// The reason
    #[arg(long, value_name = "TEXT", default_value = "no reason given")]
    why: String,
}

/// Reports that nothing was open, and what can be done.
fn remark_idle(id: SessionId, run: Option<RunState>) {
    let id = id.short();
    let why = match run {
        Some(RunState::Done) => "the run is done",
        Some(RunState::Failed) => "the run has failed",
        Some(RunState::Cancelled) => "the run was cancelled before",
        _ => "no process works on it, and no call or step is open",
    };
    let help = match run {
        Some(_) => format!("`rath run -c {id} TASK` continues it"),
        None => format!("`rath session close {id}` closes the session"),
    };
    output::remark(format_args!("nothing to cancel in session {}: {why}\n  help: {help}", style::session(&id)));
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
            report(settings, delivery)?;
        }
        match &cancelled.delivery {
            idle @ Delivery::NothingToStop { .. } => {
                report_with(settings, idle, Idle { run: cancelled.run })?;
                if !settings.json {
                    remark_idle(id, cancelled.run);
                }
            }
            delivery => report(settings, delivery)?,
        }
        for other in cancelled.continued_as {
            output::remark(format_args!(
                "the run continued as session {}, which is not cancelled\n  help: `rath cancel {}`",
                style::session(other.short()),
                other.short()
            ));
        }
        Ok(Answer::Yes)
    }
}
