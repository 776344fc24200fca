use std::sync::Arc;

use anyhow::Result;
use rath::control::Control;
use rath::inspect::RunState;
use rath::session::Ancestry;
use rath::{SessionId, Store};
use serde::Serialize;

use super::Answer;
use super::answer::{explained, report, report_with};
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Send a message or an event to a session
///
/// The session may be at work in another process. A message is delivered before the next step of the run, and the model answers it. With --event, a workflow that waits
/// for the event gets the value: `rath send S --event approved '{"by": "ada"}'`. The event stays in the session's inbox until
/// a wait of its name consumes it.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Send {
    /// The session; may be left out if a text is given: then the session that changed last
    #[arg(value_name = "SESSION")]
    first: String,
    /// The text; with --event, the value as JSON [default for an event: null]
    #[arg(value_name = "TEXT|JSON")]
    second: Option<String>,
    /// Send an event of this name, which a workflow waits for
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
}

/// Why a message is not answered now, and what to do about it.
#[derive(Serialize)]
struct Unanswered<'a> {
    run: RunState,
    help: &'a str,
}

impl Send {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        if let Some(event) = &self.event {
            return self.send_event(settings, &store, event).await;
        }
        let (session, text) = match self.second {
            Some(text) => (self.first, text),
            None => ("@".to_owned(), self.first),
        };
        let id = expression::resolve_session(&store, &session).await?;
        let control = Control::new(&store, settings.actor());
        let (delivery, run) = control.say(id, text).await.map_err(explained)?;
        // A process that has the session locked records the message. Otherwise it waits until the run is resumed.
        let Some(run) = run.filter(|_| !delivery.has_holder()) else {
            report(settings, &delivery)?;
            if !delivery.has_holder() && !settings.json {
                remark_without_agent(id);
            }
            return Ok(Answer::Yes);
        };
        let has_agent = Ancestry::of(&store, id).await?.program.is_some();
        if !has_agent {
            report(settings, &delivery)?;
            if !settings.json {
                remark_without_agent(id);
            }
            return Ok(Answer::Yes);
        }
        let (what, help) = unanswered(run.is, id);
        report_with(settings, &delivery, Unanswered { run: run.is, help: &help })?;
        if !settings.json {
            output::remark(format_args!("{what}\n  help: {help}"));
        }
        Ok(Answer::Yes)
    }
}

impl Send {
    async fn send_event(&self, settings: &Settings, store: &Arc<dyn Store>, event: &str) -> Result<Answer> {
        let id = expression::resolve_session(store, &self.first).await?;
        let json = self.second.as_deref().unwrap_or("null");
        let control = Control::new(store, settings.actor());
        let delivery = control.send_event(id, event, json).await.map_err(explained)?;
        report(settings, &delivery)?;
        if !delivery.has_holder() && !settings.json {
            output::remark(format_args!(
                "  help: `rath resume {}` continues the run if it waits for this event, `rath resume --ready` all such runs",
                id.short()
            ));
        }
        Ok(Answer::Yes)
    }
}

/// No agent of `rath run` answers this session: a program may, or `-a FILE` names one.
fn remark_without_agent(id: SessionId) {
    output::remark(format_args!(
        "session {0} has no agent that answers\n  help: `rath resume {0} -a FILE` has an agent answer",
        id.short()
    ));
}

/// Why no agent answers now, and what to do about it.
fn unanswered(is: RunState, id: SessionId) -> (&'static str, String) {
    let id = id.short();
    let resume = format!("`rath resume {id}` has the agent answer");
    let more = format!("`rath run -c {id} TASK` sends more, and the agent answers all of it");
    match is {
        RunState::Done => ("the run is done; no agent answers now", more),
        RunState::Failed => ("the run has failed; no agent answers now", more),
        RunState::Cancelled => ("the run was cancelled; no agent answers now", more),
        RunState::Waiting => {
            ("the run waits", format!("`rath status {id}` shows what it waits for, `rath inbox` its questions"))
        }
        RunState::NotBegun | RunState::Interrupted | RunState::Running => ("no process works on it now", resume),
    }
}
