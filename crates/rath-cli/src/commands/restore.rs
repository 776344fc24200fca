use anyhow::Result;
use rath::Point;
use rath::inspect::RestoreOutcome;
use rath::workshop::Back;

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Set a session's files to what they were after a record
///
/// The record may be of any session: `rath restore S@4`, or `rath restore S --to OTHER@9`. The present is saved first.
/// Stops when files were changed that no record has; --over goes over them.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Restore {
    /// The session, with the record to go to
    session: String,
    /// Go to the files of this record instead
    #[arg(long, value_name = "RECORD")]
    to: Option<String>,
    /// Go over changes that no record has; they are saved first
    #[arg(long)]
    over: bool,
}

impl Restore {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        let store = workshop.store();
        let to = expression::resolve(store, self.to.as_ref().unwrap_or(&self.session)).await?;
        // A record behind a fork point is of another session than the one that is named.
        let named = match self.session.split_once('@') {
            Some((session, _)) => expression::resolve(store, &format!("{session}@")).await?,
            None => expression::resolve(store, &self.session).await?,
        };
        let mut session = store.open(named.session, settings.actor()).await?;
        let back = workshop.restore(&mut session, Point { session: to.session, seq: to.seq }, self.over).await?;
        report(settings, back)?;
        Ok(Answer::Yes)
    }
}

/// What a restore did: the record on stdout, the rest beside it.
pub(super) fn report(settings: &Settings, back: Back) -> Result<()> {
    if settings.json {
        return output::json(&RestoreOutcome::from(back));
    }
    match back.record {
        Some(record) => output::answer(record.point())?,
        None => output::remark("the files are like this already"),
    }
    output::remark_changes(&back.changed);
    for path in &back.kept {
        output::remark(style::label(format!("left alone, it changed meanwhile: {path}")));
    }
    if let Some(record) = back.record.filter(|_| !back.outside.is_empty()) {
        let paths = output::count(back.outside.len() as u64, "path");
        output::remark(format_args!("{paths} that no record had: saved as `from` of {}", record.point()));
    }
    Ok(())
}
