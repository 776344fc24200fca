use anyhow::Result;
use rath::SessionId;
use rath::control::Control;
use rath::inspect::RunState;
use serde::Serialize;

use super::Answer;
use super::answer::{explained, say, say_more};
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Say something to a session, also while a process works on it
///
/// The words become a message of yours at the next boundary of the run, and the model answers them.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Say {
    /// The session
    session: String,
    /// The words
    text: String,
}

/// Where the run stands that does not answer, and what to do about it.
#[derive(Serialize)]
struct Unanswered<'a> {
    run: RunState,
    help: &'a str,
}

impl Say {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let control = Control::new(&store, settings.actor());
        let (delivery, run) = control.say(id, self.text).await.map_err(explained)?;
        // A process that holds the session records the message. Otherwise it waits until the run is resumed.
        let Some(run) = run.filter(|_| !delivery.is_with_a_holder()) else {
            say(settings, &delivery)?;
            return Ok(Answer::Yes);
        };
        let (what, help) = unanswered(run.is, id);
        say_more(settings, &delivery, Unanswered { run: run.is, help: &help })?;
        if !settings.json {
            output::remark(format_args!("{what}\n  help: {help}"));
        }
        Ok(Answer::Yes)
    }
}

/// Why nobody answers, and what to do about it.
fn unanswered(is: RunState, id: SessionId) -> (&'static str, String) {
    let id = id.short();
    let resume = format!("`rath resume {id}` has the agent answer");
    let go_on = format!("`rath run --continue {id} WORDS` says more, and the agent answers all of it");
    match is {
        RunState::Done => ("the run is over, and nobody answers", go_on),
        RunState::Failed => ("the run has failed, and nobody answers", go_on),
        RunState::Cancelled => ("the run was cancelled, and nobody answers", go_on),
        RunState::Waiting => (
            "the run waits for an answer to what it asked",
            format!("`rath inbox` shows what is asked, `rath answer` answers, then `rath resume {id}`"),
        ),
        RunState::NotBegun | RunState::Interrupted | RunState::Running => ("nobody works on it now", resume),
    }
}
