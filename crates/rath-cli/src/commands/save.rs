use anyhow::Result;
use rath::inspect::SaveOutcome;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Record what was changed by hand where a session works
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Save {
    /// The session
    session: String,
}

impl Save {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        let id = expression::resolve_session(workshop.store(), &self.session).await?;
        let mut session = workshop.store().open(id, settings.actor()).await?;
        let saved = workshop.save(&mut session).await?;
        let (record, changed) = saved.map_or((None, Vec::new()), |(record, changed)| (Some(record), changed));
        if settings.json {
            output::json(&SaveOutcome { record, changed })?;
            return Ok(Answer::Yes);
        }
        match record {
            Some(record) => output::answer(record.point())?,
            None => output::remark("nothing changed since the last record"),
        }
        output::remark_changes(&changed);
        settings.warn_of_quota()?;
        Ok(Answer::Yes)
    }
}
