use anyhow::Result;
use rath::View;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Branch off a session, at its end or at an earlier record
///
/// The session itself is only read: it may be held by another process. Prints the branch's id.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Fork {
    /// The session or record
    from: String,
    /// The reason
    #[arg(default_value = "")]
    why: String,
}

impl Fork {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.from).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let mut session = view.fork(settings.actor(), self.why)?;
        session.publish().await?;
        output::born(settings, &session)?;
        Ok(Answer::Yes)
    }
}
