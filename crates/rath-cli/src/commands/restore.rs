use anyhow::Result;
use rath::Point;
use rath::inspect::RestoreSummary;
use rath::workspaces::RestoreReport;

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Restore a session's files to their state after a record
///
/// The record may belong to any session: `rath restore S@4`, or `rath restore S --to OTHER@9`. Fails if files have
/// changes that no record has; --force saves and overwrites these changes.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Restore {
    /// The session and the record to restore
    #[arg(value_name = "SESSION@N")]
    session: String,
    /// Restore the files of this record instead
    #[arg(long, value_name = "RECORD")]
    to: Option<String>,
    /// Overwrite unrecorded changes (saved first)
    #[arg(long, alias = "over")]
    force: bool,
}

impl Restore {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(false)?;
        let store = workspaces.store();
        let to = expression::resolve(store, self.to.as_ref().unwrap_or(&self.session)).await?;
        // A record before the fork point belongs to another session than the one that is named.
        let named = match self.session.split_once('@') {
            Some((session, _)) => expression::resolve(store, &format!("{session}@")).await?,
            None => expression::resolve(store, &self.session).await?,
        };
        let mut session = super::open_session(settings, store, named.session).await?;
        let back = workspaces.restore(&mut session, Point { session: to.session, seq: to.seq }, self.force).await?;
        report(settings, back)?;
        Ok(Answer::Yes)
    }
}

/// Prints what a restore did: the record on stdout, the paths on stderr.
pub(super) fn report(settings: &Settings, back: RestoreReport) -> Result<()> {
    if settings.json {
        return output::json("rath.restore/1", &RestoreSummary::from(back));
    }
    match back.record {
        Some(record) => output::answer(record.point())?,
        None => output::remark("the files are already in this state"),
    }
    output::remark_changes(&back.changed);
    for path in &back.kept {
        output::remark(style::label(format!("left alone, because it changed during the restore: {path}")));
    }
    if let Some(record) = back.record.filter(|_| !back.outside.is_empty()) {
        let paths = output::count(back.outside.len() as u64, "path");
        output::remark(format_args!("{paths} with unrecorded changes: saved as `from` of {}", record.point()));
    }
    Ok(())
}
