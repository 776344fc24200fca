use anyhow::Result;

use super::Answer;
use super::workspace::PlacementArgs;
use crate::output;
use crate::settings::Settings;

/// Create a session
///
/// Prints its id, for scripts: `s=$(rath new "Plan the release")`.
#[derive(clap::Args)]
pub(crate) struct New {
    /// The title
    title: Option<String>,
    /// A system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A first user message
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    placement: PlacementArgs,
}

impl New {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(self.placement.anywhere)?;
        let mut session = workspaces.store().create(settings.actor());
        if let Some(title) = self.title {
            session.set_title(title)?;
        }
        if let Some(text) = self.system {
            session.system(text)?;
        }
        if let Some(text) = self.message {
            session.user(text)?;
        }
        // Before the session is published: if its workspace cannot be set, there is no session.
        if self.placement.is_given() {
            self.placement.apply(settings, &workspaces, &mut session).await?;
        }
        session.publish().await?;
        output::created(settings, &(&session).into())?;
        Ok(Answer::Yes)
    }
}
