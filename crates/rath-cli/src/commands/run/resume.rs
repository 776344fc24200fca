use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use rath::agent_file::Program;
use rath::{Ancestry, Conditions, OnDivergence, Said, Session, SessionId};

use super::work::{Going, Work};
use crate::commands::Answer;
use crate::expression;
use crate::providers::Providers;
use crate::settings::Settings;

/// Go on with a run that was interrupted, or waited for an answer
///
/// Steps that were finished are not run again. A call that was interrupted is made again where that is safe, with the
/// files set back; where it is not, you are asked.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Resume {
    /// The session of the run
    #[arg(default_value = "@")]
    session: String,
    /// Another agent or run file than the one it began with: what changed is shown, and it stops there
    #[arg(long, short = 'a', visible_alias = "file", value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Where the agents no longer do what is recorded, go on on a fork; again, on the same fork
    #[arg(long)]
    fork: bool,
    #[command(flatten)]
    going: Going,
}

impl Resume {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = Arc::new(settings.workshop(true)?);
        let store = workshop.store().clone();
        let id = expression::resolve_session(&store, &self.session).await?;
        let ancestry = Ancestry::of(&store, id).await?;
        let text = match &self.agent {
            Some(file) => super::read(file)?,
            None => super::text_of(&store, id, &ancestry).await?.with_context(|| not_ours(id))?,
        };
        let program = match (Program::parse(text)?, &self.agent) {
            (program, Some(_)) => program.with_models(|name| Providers::lasting(settings, name)),
            // As it is recorded: it says by its digest whether it is the same.
            (program, None) => program,
        };
        let providers = Providers::new(settings)?;
        let agent = program.agent(&providers)?;
        let conditions = Conditions {
            actor: settings.actor_of(&store, ancestry.root).await?,
            program: Some(program.blob()?),
            workflow: None,
            on_divergence: if self.fork { OnDivergence::Fork } else { OnDivergence::Stop },
        };
        let session = store.resume(id, conditions.clone()).await?;
        if !ancestry.is_begun() && !somebody_spoke(&session).await? {
            return Err(nothing_was_said(id));
        }
        let file = self.agent.as_deref();
        Work::new(settings, workshop, agent, conditions, &self.going, file)?.finish(session).await
    }
}

/// Whether there is a word that an agent could answer.
async fn somebody_spoke(session: &Session) -> Result<bool> {
    Ok(session.context().await?.iter().any(|message| matches!(message.said, Said::User(_))))
}

fn nothing_was_said(id: SessionId) -> anyhow::Error {
    anyhow!(
        "the run {} ended before it had a task, and nothing was done\n  help: `rath run --continue {} TASK` gives it one",
        id.short(),
        id.short()
    )
}

fn not_ours(id: SessionId) -> String {
    format!(
        "session {} is not of `rath run`: the program that began it resumes it, by its run key\n  help: `-a FILE` names an agent or a run file for it",
        id.short()
    )
}
