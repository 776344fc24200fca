use anyhow::Result;
use rath::inspect::SaveOutcome;

use crate::commands::{Answer, open_session};
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Record what was changed by hand in a session's workspace
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Save {
    /// The session
    #[arg(default_value = "@")]
    session: String,
}

impl Save {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(false)?;
        let id = expression::resolve_session(workspaces.store(), &self.session).await?;
        let mut session = open_session(settings, workspaces.store(), id).await?;
        let saved = workspaces.save(&mut session).await?;
        let (record, changed) = saved.map_or((None, Vec::new()), |(record, changed)| (Some(record), changed));
        if settings.json {
            output::json("rath.workspace.save/1", &SaveOutcome { record, changed })?;
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
