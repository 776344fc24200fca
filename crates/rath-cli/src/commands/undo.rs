use anyhow::Result;

use super::Answer;
use super::restore::report;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Take back the last change to a session's files
///
/// Asked again it goes further back. Nothing is lost: every version stays, and `rath restore` goes to any of them.
/// Stops when files were changed that no record has; --over goes over them, after saving them.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Undo {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// How many changes
    #[arg(long, short, default_value_t = 1)]
    number: u32,
    /// Go over changes that no record has; they are saved first
    #[arg(long)]
    over: bool,
}

impl Undo {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        let id = expression::resolve_session(workshop.store(), &self.session).await?;
        let mut session = workshop.store().open(id, settings.actor()).await?;
        for _ in 0..self.number {
            let back = workshop.undo(&mut session, self.over).await?;
            if let Some(undone) = back.undone.as_ref().filter(|_| !settings.json) {
                let what = output::harmless(&undone.what);
                output::remark(format_args!("took back {} {what}", style::record(undone.record.point())));
            }
            report(settings, back)?;
        }
        Ok(Answer::Yes)
    }
}
