use anyhow::Result;

use super::Answer;
use super::restore::report;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Undo the last change to a session's files
///
/// Each further undo goes one change back. Every version is kept; `rath restore` goes to any of them. Fails if files
/// have changes that no record has; --force saves and overwrites these changes.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Undo {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// How many changes to undo
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    number: u32,
    /// Overwrite unrecorded changes (saved first)
    #[arg(long, alias = "over")]
    force: bool,
}

impl Undo {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(false)?;
        let id = expression::resolve_session(workspaces.store(), &self.session).await?;
        let mut session = super::open_session(settings, workspaces.store(), id).await?;
        for _ in 0..self.number {
            let back = workspaces.undo(&mut session, self.force).await?;
            if let Some(undone) = back.undone.as_ref().filter(|_| !settings.json) {
                let what = output::escaped(&undone.what);
                output::remark(format_args!("undid {} {what}", style::record(undone.record.point())));
            }
            report(settings, back)?;
        }
        Ok(Answer::Yes)
    }
}
