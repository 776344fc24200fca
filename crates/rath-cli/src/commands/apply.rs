use anyhow::Result;
use rath::inspect::ApplyOutcome;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Bring a session's changes into the directory its files came from
///
/// Only what the session changed is written. Paths that changed there meanwhile stop it before anything is touched.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Apply {
    /// The session
    session: String,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(true)?;
        let id = expression::resolve_session(workshop.store(), &self.session).await?;
        let mut session = workshop.store().open(id, settings.actor()).await?;
        let applied = workshop.apply(&mut session, self.dry_run).await?;
        if settings.json {
            output::json(&ApplyOutcome::new(applied, self.dry_run))?;
            return Ok(Answer::Yes);
        }
        match (applied.record, self.dry_run) {
            (Some(record), _) => output::answer(record.point())?,
            (None, true) => output::remark(format_args!("would change in {}:", applied.directory)),
            (None, false) => output::remark(format_args!("{} has all of it already", applied.directory)),
        }
        output::remark_changes(&applied.changed);
        Ok(Answer::Yes)
    }
}
