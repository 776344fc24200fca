use anyhow::Result;
use rath::store::Posted;
use rath::{SessionId, View};
use serde_json::{Value, json};

use super::Answer;
use super::answer::{HandedIn, hand_in};
use crate::expression;
use crate::output;
use crate::settings::Settings;
use crate::transcript::{Is, Status};

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

impl Say {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let run = Status::of(&store, &View::of(&store, id, None).await?).await?;
        let handed_in = hand_in(settings, &store, id, Posted::Message { text: self.text }).await?;
        // Whoever holds the session takes the words in. Else they wait for somebody to go on.
        let is_heard = matches!(handed_in, HandedIn::Left { holder: Some(_), .. });
        let Some(run) = run.filter(|_| !is_heard) else {
            handed_in.say(settings, id, Value::Null)?;
            return Ok(Answer::Yes);
        };
        let (what, help) = unanswered(run.is, id);
        handed_in.say(settings, id, json!({ "run": run.is, "help": help }))?;
        if !settings.json {
            output::remark(format_args!("{what}\n  help: {help}"));
        }
        Ok(Answer::Yes)
    }
}

/// Why nobody answers, and what to do about it.
fn unanswered(is: Is, id: SessionId) -> (&'static str, String) {
    let id = id.short();
    let resume = format!("`rath resume {id}` has the agent answer");
    let go_on = format!("`rath run --continue {id} WORDS` says more, and the agent answers all of it");
    match is {
        Is::Done => ("the run is over, and nobody answers", go_on),
        Is::Failed => ("the run has failed, and nobody answers", go_on),
        Is::Cancelled => ("the run was cancelled, and nobody answers", go_on),
        Is::Waiting => (
            "the run waits for an answer to what it asked",
            format!("`rath inbox` shows what is asked, `rath answer` answers, then `rath resume {id}`"),
        ),
        Is::NotBegun | Is::Interrupted | Is::Running => ("nobody works on it now", resume),
    }
}
