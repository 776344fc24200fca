use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use rath::agent::Budget;
use rath::agent_file::{AgentProgram, AgentSpec};
use rath::body::StepEntered;
use rath::model::MessageBody;
use rath::session::{Ancestry, OnDivergence};
use rath::store::Scan;
use rath::{Kind, RunOptions, Session, SessionId, Store};

use super::program::{self, Runnable};
use super::task::{RunFlags, TaskRunner};
use crate::commands::Answer;
use crate::expression::{self, usage_error};
use crate::output;
use crate::providers::Providers;
use crate::settings::Settings;

/// Resume a run that was interrupted or waits, or all ready runs
///
/// Finished steps do not run again. An interrupted call is repeated if that is safe, after its files are restored;
/// otherwise you are asked. A run waits for an answer, for a time, or for an event of `rath send --event`.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Resume {
    /// The session of the run
    #[arg(default_value = "@")]
    session: String,
    /// Use another agent or run file than the one it was started with; the run stops where the two differ
    #[arg(long, short = 'a', visible_alias = "file", value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Where the agent no longer does what is recorded, continue on a fork
    #[arg(long)]
    fork: bool,
    /// Run failed, cancelled and over-budget steps again, on a fork; finished steps stay finished
    #[arg(long)]
    again: bool,
    /// With --again, the new limit of the agent's usage: 2usd, "50 turns", "200k tokens", "10 min"
    #[arg(long, value_name = "BUDGET", requires = "again")]
    budget: Option<String>,
    /// Resume all runs of this store that can continue: interrupted ones, and those whose answer, time or event has come
    #[arg(long, conflicts_with_all = ["session", "agent", "fork", "again", "wait"])]
    ready: bool,
    #[command(flatten)]
    flags: RunFlags,
}

impl Resume {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.ready {
            return super::ready::resume_all(settings, self.flags.approves()).await;
        }
        let workspaces = Arc::new(settings.workspaces(true)?);
        let store = workspaces.store().clone();
        let id = expression::resolve_session(&store, &self.session).await?;
        let ancestry = Ancestry::of(&store, id).await?;
        let text = match &self.agent {
            Some(file) => super::read(file)?,
            None => match super::text_of(&store, id, &ancestry).await? {
                Some(text) => text,
                None => bail!(not_a_run(&store, id, &ancestry).await?),
            },
        };
        let program = match (program::parse(text, self.agent.as_deref())?, &self.agent) {
            (program, Some(_)) => program.with_models(|name| Providers::lasting(settings, name)),
            // Exactly as it is recorded, so that its digest is the same.
            (program, None) => program,
        };
        let program = match (&self.budget, program) {
            (None, program) => program,
            (Some(budget), AgentProgram::Agent(agent)) => {
                budget.parse::<Budget>().map_err(|error| usage_error(error.to_string()))?;
                AgentProgram::Agent(Box::new(AgentSpec { budget: Some(budget.clone()), ..*agent }))
            }
            (Some(_), AgentProgram::RunFile { .. }) => {
                return Err(usage_error(
                    "a run file has its own budgets\n  help: change them in the file: `rath resume --again -a FILE`",
                ));
            }
        };
        let providers = Providers::new(settings)?;
        let runnable = Runnable::of(&program, &providers)?;
        let conditions = RunOptions {
            actor: settings.actor_of(&store, ancestry.root).await?,
            program: Some(program.blob()?),
            workflow: None,
            on_divergence: if self.fork { OnDivergence::Fork } else { OnDivergence::Stop },
        };
        let session = match self.again {
            true => store.run_again(id, conditions.clone()).await.map_err(|error| not_again(id, error))?,
            false => store.resume(id, conditions.clone()).await?,
        };
        if !ancestry.is_started() && !has_user_message(&session).await? {
            return Err(no_task(id));
        }
        let file = self.agent.as_deref();
        TaskRunner::new(settings, workspaces, runnable, conditions, &self.flags, file)?.finish(session).await
    }
}

/// Whether the context has a user message that an agent can answer.
pub(super) async fn has_user_message(session: &Session) -> Result<bool> {
    Ok(session.context().await?.iter().any(|message| matches!(message.body, MessageBody::User(_))))
}

pub(super) fn no_task(id: SessionId) -> anyhow::Error {
    anyhow!(
        "the run {} has no task: it was interrupted before one was recorded\n  help: `rath run -c {} TASK` gives it one",
        id.short(),
        id.short()
    )
}

/// Why `rath resume` cannot resume a session without `-a`, and which program can.
async fn not_a_run(store: &Arc<dyn Store>, id: SessionId, ancestry: &Ancestry) -> Result<String> {
    let steps = Scan::session(ancestry.root, 0, u64::MAX - 1).kinds(&[Kind::StepEntered]).limit(1);
    let entered = store.scan(steps).await?.records.first().and_then(|record| record.body::<StepEntered>().ok());
    let workflow = entered.and_then(|entered| entered.workflow.map(|name| (name, entered.version)));
    let (id, file) = (id.short(), "`-a FILE` resumes it with an agent or run file");
    Ok(match workflow {
        Some((name, version)) => {
            let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
            let (name, version) = (output::escaped(&name), output::escaped(&version));
            format!(
                "session {id} is a run of a program, not of `rath run`: workflow {name}{version}\n  help: start the program whose Worker registers {name}: it resumes the run"
            )
        }
        None => format!(
            "session {id} was not started by `rath run`; the program that started it resumes it by its run key\n  help: {file}"
        ),
    })
}

fn not_again(id: SessionId, error: rath::Error) -> anyhow::Error {
    match error.code() {
        "nothing-failed" => anyhow!(
            "{error}\n  help: `rath resume {0}` continues a run that is not over, `rath run -c {0} TASK` one that is done",
            id.short()
        ),
        _ => error.into(),
    }
}
