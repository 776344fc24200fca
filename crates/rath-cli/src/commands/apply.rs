use anyhow::Result;
use rath::inspect::ApplyOutcome;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Write a session's changes to the directory its files came from
///
/// Writes only the paths that the session changed. If one of them has also changed in the directory since the copy was
/// made, nothing is written.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Apply {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(true)?;
        let id = expression::resolve_session(workspaces.store(), &self.session).await?;
        let mut session = super::open_session(settings, workspaces.store(), id).await?;
        let applied = workspaces.apply(&mut session, self.dry_run).await?;
        if settings.json {
            output::json("rath.apply/1", &ApplyOutcome::new(applied, self.dry_run))?;
            return Ok(Answer::Yes);
        }
        match (applied.record, self.dry_run) {
            (Some(record), _) => output::answer(record.point())?,
            (None, true) => output::remark(format_args!("would change in {}:", applied.directory)),
            (None, false) => output::remark(format_args!("{} already has all changes", applied.directory)),
        }
        output::remark_changes(&applied.changed);
        Ok(Answer::Yes)
    }
}
