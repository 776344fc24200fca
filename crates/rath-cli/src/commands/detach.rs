use anyhow::Result;
use rath::View;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Start a new session from a copy of another's context
///
/// Its history and usage begin at zero; the origin is named, not carried. Prints the new session's id.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Detach {
    /// The session or record
    from: String,
    /// The reason
    #[arg(default_value = "")]
    why: String,
}

impl Detach {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.from).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let mut session = view.detach(settings.actor(), self.why).await?;
        session.publish().await?;
        output::born(settings, &session)?;
        Ok(Answer::Yes)
    }
}
