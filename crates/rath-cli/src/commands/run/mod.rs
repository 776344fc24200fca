//! `rath run` and `rath resume`.

mod conversation;
mod placement;
mod program;
mod questions;
mod ready;
mod resume;
mod task;

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::agent::Budget;
use rath::agent_file::{AgentProgram, AgentSpec};
use rath::body::{Forked, User};
use rath::session::Ancestry;
use rath::store::{Query, Scan};
use rath::{Content, ErrorKind, Kind, RunOptions, Session, SessionId, Store, View};

use super::{Answer, init};
use crate::expression::{self, usage_error};
use crate::output;
use crate::providers::Providers;
use crate::settings::Settings;
use placement::RunPlacement;
use program::Runnable;
pub(crate) use program::parse;
pub(crate) use resume::Resume;
use task::{RunFlags, TaskRunner};

/// Have an agent work on a task
///
/// The agent works on a copy of this directory; at the end you decide whether its changes are applied. Everything it does
/// is recorded: `rath show` shows it, and `rath resume` continues a run that was killed. Without a task, a conversation
/// starts.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rath run \"make the tests pass\"\n  \
    rath run -m ollama/qwen3:4b --in src \"explain this\"\n  \
    rath run -a reviewer.md --budget 2usd \"review the last change\"\n  \
    rath run --best-of 3 --test \"make test\" \"fix the bug\"\n  \
    rath run -c \"now the documentation\"        continues the latest run\n  \
    rath run -c 9f31c2ab \"try another way\"    continues that session")]
pub(crate) struct Run {
    /// The task; `-` reads it from standard input. With -c, a session may stand before it
    #[arg(value_name = "TASK", num_args = 0..=2)]
    words: Vec<String>,
    /// The agent: a Markdown file with front matter, or a run file with several agents (`rath help agents`)
    #[arg(long, short, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The model, PROVIDER/MODEL as `rath models` lists it; for all agents of a run file
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// The limit of its usage: 2usd, "50 turns", "200k tokens", "10 min"
    #[arg(long, value_name = "BUDGET")]
    budget: Option<String>,
    /// Have N copies of the agent work on the task at the same time, and keep the best by --test
    #[arg(long, value_name = "N", requires = "test", value_parser = clap::value_parser!(u8).range(2..=64))]
    best_of: Option<u8>,
    /// The shell command that tests the work of each copy; exit code 0 accepts it
    #[arg(long, value_name = "COMMAND", requires = "best_of")]
    test: Option<String>,
    /// Continue a session whose run is over [default: the latest run]
    #[arg(long = "continue", short = 'c', value_name = "SESSION", num_args = 0..=1, require_equals = true,
        conflicts_with_all = ["key", "copy_of", "in_place", "on", "setup"])]
    continued: Option<Option<String>>,
    #[command(flatten)]
    placement: RunPlacement,
    /// The key of the run; a run with the same key is resumed
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    flags: RunFlags,
}

impl Run {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if let Some(budget) = &self.budget {
            budget.parse::<Budget>().map_err(|error| usage_error(error.to_string()))?;
        }
        let (earlier, given) = self.session_and_task(settings).await?;
        self.check_is_no_file(settings, given.as_deref())?;
        let program = self.program(settings, earlier.as_ref()).await?;
        let providers = Providers::new(settings)?;
        let runnable = Runnable::of(&program, &providers)?;
        let title = program.title();
        let task = match self.task(given.as_deref(), &program)? {
            Some(task) => task,
            None if self.flags.may_talk(settings) => String::new(),
            None => return Err(usage_error("no task\n  help: give it as an argument or on standard input")),
        };
        let new_store = match settings.find_store()? {
            Some(_) => None,
            None => create_store(settings)?,
        };
        let workspaces = Arc::new(match &earlier {
            Some((_, store)) => {
                settings.workspaces_on(store.clone(), &settings.store_path()?, self.placement.anywhere)?
            }
            None => settings.workspaces(self.placement.anywhere)?,
        });
        let store = workspaces.store().clone();
        let conditions = RunOptions { program: Some(program.blob()?), ..settings.actor().into() };
        let file = self.agent.as_deref();
        let mut runner =
            TaskRunner::new(settings, workspaces.clone(), runnable, conditions.clone(), &self.flags, file)?;
        let session = match earlier {
            Some((id, _)) => {
                let mut session = store.continue_run(id, conditions).await.map_err(|error| still_open(id, error))?;
                if !task.is_empty() {
                    session.user(&*task)?;
                }
                session
            }
            None => {
                let key = self.key.clone().unwrap_or_else(|| format!("rath-run-{}", &rath::record::fresh_name()[..12]));
                let placement = self.placement.args(self.directory(&program));
                let mut is_new = false;
                let prepared = store.begin_run(&key, conditions, async |session: &mut Session| {
                    is_new = true;
                    if let Some(title) = title.or_else(|| title_of(&task)) {
                        session.set_title(title)?;
                    }
                    if !task.is_empty() {
                        session.user(&*task)?;
                    }
                    // This publishes: after a kill, all of the input is stored, or none.
                    if placement.is_given() {
                        let placed = placement.apply(settings, &workspaces, session).await;
                        placed.map_err(placement_failed)?;
                    }
                    Ok(())
                });
                let prepared = prepared.await;
                runner.is_new = true;
                match (prepared, new_store) {
                    (Err(error), Some(new_store)) => {
                        // An empty store would be used by runs in every directory below.
                        let error = anyhow::Error::from(error);
                        let _ = std::fs::remove_dir_all(new_store);
                        return Err(error);
                    }
                    (prepared, _) => {
                        let session = prepared?;
                        if let (false, Some(_)) = (is_new, &given) {
                            check_same_task(&store, session.id(), &key, &task).await?;
                        }
                        session
                    }
                }
            }
        };
        if given.is_none() && task.is_empty() {
            conversation::talk(&mut runner, session).await
        } else {
            runner.finish(session).await
        }
    }

    /// The session to continue, if any, and the task on the command line.
    ///
    /// With `-c`, one argument is the task of the latest run, unless it names a session. Two are a session and its task.
    async fn session_and_task(
        &self,
        settings: &Settings,
    ) -> Result<(Option<(SessionId, Arc<dyn Store>)>, Option<String>)> {
        let (first, second) = (self.words.first().cloned(), self.words.get(1).cloned());
        let Some(named) = &self.continued else {
            return match second {
                Some(_) => Err(usage_error("the task is more than one argument\n  help: quote it: rath run \"…\"")),
                None => Ok((None, first)),
            };
        };
        let store = settings.store()?;
        let (session, task) = match (named, first, second) {
            (Some(named), first, None) => (Some(named.clone()), first),
            (Some(_), _, Some(_)) => return Err(usage_error("the task is more than one argument\n  help: quote it")),
            (None, Some(session), Some(task)) => (Some(session), Some(task)),
            (None, Some(word), None) if names_a_session(&store, &word).await => (Some(word), None),
            (None, task, None) => (None, task),
            (None, None, Some(_)) => (None, None),
        };
        let id = match session {
            Some(session) => expression::resolve_session(&store, &session).await?,
            None => latest_run(&store).await?,
        };
        Ok((Some((id, store)), task))
    }

    /// Refuses the name of an agent file as a task: it was probably meant for `-a`.
    fn check_is_no_file(&self, settings: &Settings, task: Option<&str>) -> Result<()> {
        let Some(task) = task.filter(|_| self.agent.is_none()) else { return Ok(()) };
        let is_agent = [".toml", ".md"].iter().any(|end| task.ends_with(end));
        match is_agent && settings.here.join(task).is_file() {
            true => {
                Err(usage_error(format!("{task} is a file, not a task\n  help: `rath run -a {task}` runs its agent")))
            }
            false => Ok(()),
        }
    }

    async fn program(
        &self,
        settings: &Settings,
        earlier: Option<&(SessionId, Arc<dyn Store>)>,
    ) -> Result<AgentProgram> {
        let config = settings.layers()?.config;
        let text = match (&self.agent, earlier) {
            (Some(file), _) => Some(read(file)?),
            (None, Some((id, store))) => text_of(store, *id, &Ancestry::of(store, *id).await?).await?,
            (None, None) => None,
        };
        let file = self.agent.as_deref();
        let agent = match text.map(|text| program::parse(text, file)).transpose()? {
            None => AgentSpec::default_agent(config.run.tools.clone())?,
            Some(AgentProgram::Agent(agent)) => *agent,
            Some(AgentProgram::RunFile { .. }) if self.best_of.is_some() || self.budget.is_some() => {
                return Err(usage_error(
                    "--best-of and --budget are for single agents: a run file has its own workflow and budgets",
                ));
            }
            Some(program @ AgentProgram::RunFile { .. }) => {
                let (AgentProgram::RunFile { text, .. }, Some(model)) = (&program, &self.model) else {
                    return Ok(program);
                };
                let model = Providers::lasting(settings, model.clone());
                return program::parse(program::with_model(text, &model)?, file);
            }
        };
        let budget = self.budget.clone().or_else(|| agent.budget.clone()).or(config.run.budget);
        let model = match self.model.clone().or_else(|| agent.model.clone()) {
            Some(model) => model,
            None => Providers::new(settings)?.default_model().await?,
        };
        // A model on the command line has no fallback.
        let fallback = if self.model.is_some() { Vec::new() } else { agent.fallback };
        let agent = AgentSpec { model: Some(model), fallback, budget, ..agent };
        let agent = agent.with_models(|name| Providers::lasting(settings, name));
        match (self.best_of, &self.test) {
            (Some(count), Some(test)) => program::best_of(&agent, count.into(), test),
            _ => Ok(AgentProgram::Agent(Box::new(agent))),
        }
    }

    /// The directory that a new run works in a copy of, unless the command line names one. `None` for run files that name
    /// none and have no workflow.
    fn directory(&self, program: &AgentProgram) -> Option<PathBuf> {
        match program.directory() {
            Some(directory) => {
                let file = self.agent.as_deref().filter(|file| !is_stdin(Some(file)));
                Some(file.and_then(Path::parent).map_or_else(|| directory.clone(), |parent| parent.join(&directory)))
            }
            None => (matches!(program, AgentProgram::Agent(_)) || program.has_workflow()).then(|| PathBuf::from(".")),
        }
    }

    /// The task; `None` starts a conversation.
    fn task(&self, given: Option<&str>, program: &AgentProgram) -> Result<Option<String>> {
        let from_stdin = || -> Result<Option<String>> {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).context("reading the task")?;
            Ok(Some(text).filter(|text| !text.trim().is_empty()))
        };
        match (given, program.task()) {
            (Some("-"), _) => from_stdin()?.context("standard input is empty: no task").map(Some),
            (Some(task), _) if task.trim().is_empty() => Err(usage_error("the task is empty")),
            (Some(task), _) => Ok(Some(task.to_owned())),
            (None, Some(task)) => Ok(Some(task)),
            (None, None) if !std::io::stdin().is_terminal() && !is_stdin(self.agent.as_deref()) => from_stdin(),
            (None, None) => Ok(None),
        }
    }
}

/// Whether a single word after `-c` is a session: it starts with `@`, or it is a unique prefix of a session's digits.
async fn names_a_session(store: &Arc<dyn Store>, word: &str) -> bool {
    word.starts_with('@') || word.len() >= 4 && rath::query::resolve_session(store, word).await.is_ok()
}

/// The run of `rath run` that changed last.
async fn latest_run(store: &Arc<dyn Store>) -> Result<SessionId> {
    for row in store.sessions(Query::all()).await? {
        let first = View::of(store, row.id, Some(0)).await?;
        let is_branch_of_run = first.record().body::<Forked>().is_ok_and(|forked| forked.is_of_run());
        if !row.closed && !is_branch_of_run && Ancestry::of(store, row.id).await?.program.is_some() {
            return Ok(row.id);
        }
    }
    Err(usage_error("there is no run to continue\n  help: `rath run TASK` starts one"))
}

fn is_stdin(file: Option<&Path>) -> bool {
    file.is_some_and(|file| file.as_os_str() == "-")
}

/// The first line of a task, as the title of its session.
fn title_of(task: &str) -> Option<String> {
    const LONG: usize = 72;
    let line = task.trim().lines().next()?.trim();
    let title = match line.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    (!title.is_empty()).then_some(title)
}

/// Creates a store in the current directory, if it has none.
fn create_store(settings: &Settings) -> Result<Option<PathBuf>> {
    let store = settings.here.join(crate::settings::STORE_DIR);
    let is_new = !store.exists();
    init::make(&store)?;
    if is_new {
        output::remark(format_args!("initialized store in {}", settings.shown(&store)));
    }
    Ok(is_new.then_some(store))
}

/// Refuses another task for a run that already has one.
async fn check_same_task(store: &Arc<dyn Store>, id: SessionId, key: &str, task: &str) -> Result<()> {
    let view = View::of(store, id, None).await?;
    let first = store.scan(Scan::session(id, 0, u64::MAX - 1).kinds(&[Kind::User]).limit(1)).await?.records;
    let Some(first) = first.first() else { return Ok(()) };
    let first_task = view.content(&first.body::<User>()?.text).await?;
    match first_task == task {
        true => Ok(()),
        false => Err(usage_error(format!(
            "the run {key:?} was started with another task: {}\n  help: without a task it is resumed; `rath run -c {} TASK` \
             continues it with another task; another key starts another run",
            output::escaped(&title_of(&first_task).unwrap_or_default()),
            id.short()
        ))),
    }
}

/// The agent or run file that a session was started with.
async fn text_of(store: &Arc<dyn Store>, id: SessionId, ancestry: &Ancestry) -> Result<Option<String>> {
    match ancestry.program.clone() {
        Some(program) => Ok(Some(View::of(store, id, None).await?.content(&Content::Blob(program)).await?)),
        None => Ok(None),
    }
}

pub(crate) fn read(file: &Path) -> Result<String> {
    if is_stdin(Some(file)) {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("reading the agent from standard input")?;
        return Ok(text);
    }
    let what = || format!("reading {}", file.display());
    let mut text = String::new();
    let most = MAX_FILE_BYTES + 1;
    std::fs::File::open(file).with_context(what)?.take(most).read_to_string(&mut text).with_context(what)?;
    match text.len() as u64 == most {
        true => Err(usage_error(format!("{} is too large for an agent file", file.display()))),
        false => Ok(text),
    }
}

/// The size limit of an agent file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Converts the error of setting a workspace. It keeps its type, because the type determines the error code.
fn placement_failed(error: anyhow::Error) -> rath::Error {
    match error.downcast::<rath::workspaces::Error>() {
        Ok(rath::workspaces::Error::Session(error)) => error,
        Ok(error) => ErrorKind::Coded { code: error.code().into(), why: error.into() }.into(),
        Err(error) => ErrorKind::Workflow(error.into()).into(),
    }
}

/// The error for continuing a session whose run is not over.
fn still_open(id: SessionId, error: rath::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Open { .. } => {
            anyhow::Error::new(error).context(format!("the run of session {} is not over", id.short()))
        }
        _ => error.into(),
    }
}
