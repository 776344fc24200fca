use anyhow::Result;

use super::Answer;
use super::place::PlaceArgs;
use crate::output;
use crate::settings::Settings;

/// Make a session
///
/// Prints its id, so `s=$(rath new "Plan the release")` works in a script.
#[derive(clap::Args)]
pub(crate) struct New {
    /// What it is about
    title: Option<String>,
    /// Standing instructions
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The first message
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

impl New {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(self.place.anywhere)?;
        let mut session = workshop.store().create(settings.actor());
        if let Some(title) = self.title {
            session.set_title(title)?;
        }
        if let Some(text) = self.system {
            session.system(text)?;
        }
        if let Some(text) = self.message {
            session.user(text)?;
        }
        // One that cannot be placed as it was asked for is not made.
        if self.place.is_given() {
            self.place.apply(settings, &workshop, &mut session).await?;
        }
        session.publish().await?;
        output::born(settings, &session)?;
        Ok(Answer::Yes)
    }
}
