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
        let workshop = settings.workshop(false)?;
        let store = workshop.store();
        let place = expression::resolve(store, &self.from).await?;
        let view = View::of(store, place.session, Some(place.seq)).await?;
        // A place that cannot be looked at does not keep a session from being forked.
        let unsaved = if place.exact { Vec::new() } else { workshop.unsaved(&view).await.unwrap_or_default() };
        let mut session = view.fork(settings.actor(), self.why)?;
        session.publish().await?;
        if !place.exact {
            workshop.share(&view, session.id()).await?;
        }
        output::born(settings, &session)?;
        if !unsaved.is_empty() && !settings.json {
            let paths = output::count(unsaved.len() as u64, "changed path");
            output::remark(format_args!(
                "the fork does not have {paths} that no record has\n  help: `rath save {}` first",
                place.session.short()
            ));
            output::remark_changes(&unsaved);
        }
        Ok(Answer::Yes)
    }
}
