use anyhow::Result;
use rath::View;
use rath::inspect::SessionCreated;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Fork a session at its head or at an earlier record
///
/// The session itself is only read: another process may have it locked. Prints the id of the fork. With --detach, the
/// new session has a copy of the context and no shared history: usage starts at zero, and the origin is only named.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Fork {
    /// The session or record
    #[arg(default_value = "@", value_name = "SESSION")]
    pub(super) from: String,
    /// The reason
    #[arg(default_value = "", hide_default_value = true)]
    pub(super) why: String,
    /// Start a new history from a copy of the context
    #[arg(long)]
    pub(super) detach: bool,
}

impl Fork {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(false)?;
        let store = workspaces.store();
        let place = expression::resolve(store, &self.from).await?;
        let view = View::of(store, place.session, Some(place.seq)).await?;
        if self.detach {
            let mut session = view.detach(settings.actor(), self.why).await?;
            session.publish().await?;
            output::created(settings, &SessionCreated::from(&session))?;
            return Ok(Answer::Yes);
        }
        // A workspace that cannot be read does not prevent a fork.
        let unsaved = if place.exact { Vec::new() } else { workspaces.unsaved(&view).await.unwrap_or_default() };
        let mut session = view.fork(settings.actor(), self.why)?;
        session.publish().await?;
        output::created(settings, &SessionCreated::from(&session))?;
        if !unsaved.is_empty() && !settings.json {
            let paths = output::count(unsaved.len() as u64, "changed path");
            output::remark(format_args!(
                "the fork does not have {paths} that no record has\n  help: `rath workspace save {}` first",
                place.session.short()
            ));
            output::remark_changes(&unsaved);
        }
        Ok(Answer::Yes)
    }
}
