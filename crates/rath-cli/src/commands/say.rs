use anyhow::Result;
use rath::store::Posted;

use super::Answer;
use super::answer::hand_in;
use crate::expression;
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

impl Say {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        hand_in(settings, &store, id, Posted::Message { text: self.text }).await?;
        Ok(Answer::Yes)
    }
}
