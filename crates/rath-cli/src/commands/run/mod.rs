//! `rath run` and `rath resume`: agents at work.

mod asking;
mod place;
mod resume;
mod talk;
mod work;

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::agent::Budget;
use rath::agent_file::{AgentSpec, Program};
use rath::body::User;
use rath::store::Scan;
use rath::{Ancestry, Conditions, Content, ErrorKind, Kind, Session, SessionId, Store, View};

use super::{Answer, init};
use crate::expression::{self, unclear};
use crate::output;
use crate::providers::Providers;
use crate::settings::Settings;
use place::RunPlace;
pub(crate) use resume::Resume;
use work::{Going, Work};

/// Work on a task with an agent
///
/// The agent works on a copy of this directory, and you decide at the end whether its changes are brought back.
/// Everything it does is recorded: `rath show` tells it again, and a run that was killed goes on with `rath resume`.
/// Without a task, a conversation begins.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rath run \"make the tests pass\"\n  \
    rath run -m ollama/qwen3:4b --in src \"explain this\"\n  \
    rath run -a reviewer.md --budget 2usd \"review the last change\"\n  \
    rath run --continue @ \"now the documentation\"")]
pub(crate) struct Run {
    /// What is to be done; `-` reads it from standard input
    task: Option<String>,
    /// The agent: a Markdown file with front matter, or a run file (docs/runs.md)
    #[arg(long, short, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The model: PROVIDER/MODEL, as `rath models` lists them
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// The most it may use up: 2usd, "50 turns", "200k tokens", "10 min"
    #[arg(long, value_name = "BUDGET")]
    budget: Option<String>,
    /// Go on with this session, whose work is over
    #[arg(long = "continue", value_name = "SESSION", conflicts_with_all = ["key", "copy_of", "in_place", "on", "setup"])]
    goes_on: Option<String>,
    #[command(flatten)]
    place: RunPlace,
    /// The key of the run: the same key again resumes it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    going: Going,
}

impl Run {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if let Some(budget) = &self.budget {
            budget.parse::<Budget>().map_err(|error| unclear(error.to_string()))?;
        }
        self.is_no_file(settings)?;
        let earlier = match &self.goes_on {
            Some(session) => {
                let store = settings.store()?;
                let id = expression::resolve_session(&store, session).await?;
                Some((id, store))
            }
            None => None,
        };
        let program = self.program(settings, earlier.as_ref()).await?;
        let providers = Providers::new(settings)?;
        let agent = program.agent(&providers)?;
        let title = program.title();
        let task = match self.task(&program)? {
            Some(task) => task,
            None if self.going.may_talk(settings) => String::new(),
            None => return Err(unclear("there is no task: write one after the command, or through a pipe")),
        };
        let made = match settings.find_store()? {
            Some(_) => None,
            None => make_store(settings)?,
        };
        let workshop = Arc::new(match &earlier {
            Some((_, store)) => settings.workshop_on(store.clone(), &settings.store_path()?, self.place.anywhere)?,
            None => settings.workshop(self.place.anywhere)?,
        });
        let store = workshop.store().clone();
        let conditions = Conditions { program: Some(program.blob()?), ..settings.actor().into() };
        let file = self.agent.as_deref();
        let mut work = Work::new(settings, workshop.clone(), agent, conditions.clone(), &self.going, file)?;
        let session = match earlier {
            Some((id, _)) => {
                let mut session = store.continue_run(id, conditions).await.map_err(|error| still_open(id, error))?;
                if !task.is_empty() {
                    session.user(&*task)?;
                }
                session
            }
            None => {
                let key = self.key.clone().unwrap_or_else(|| format!("rath-run-{}", &rath::fresh_name()[..12]));
                let place = self.place.args(matches!(program, Program::Agent(_)));
                let mut is_new = false;
                let prepared = store.begin_run(&key, conditions, async |session: &mut Session| {
                    is_new = true;
                    if let Some(title) = title.or_else(|| title_of(&task)) {
                        session.set_title(title)?;
                    }
                    if !task.is_empty() {
                        session.user(&*task)?;
                    }
                    // This publishes: whoever is killed here leaves all of the input behind, or none.
                    if place.is_given() {
                        let placed = place.apply(settings, &workshop, session).await;
                        placed.map_err(not_placed)?;
                    }
                    Ok(())
                });
                let prepared = prepared.await;
                work.is_new = true;
                match (prepared, made) {
                    (Err(error), Some(made)) => {
                        // A store that nothing came of would catch the runs of every directory below.
                        let error = anyhow::Error::from(error);
                        let _ = std::fs::remove_dir_all(made);
                        return Err(error);
                    }
                    (prepared, _) => {
                        let session = prepared?;
                        if let (false, Some(_)) = (is_new, &self.task) {
                            is_its_task(&store, session.id(), &key, &task).await?;
                        }
                        session
                    }
                }
            }
        };
        match self.task.is_none() && task.is_empty() {
            true => talk::talk(&mut work, session).await,
            false => work.finish(session).await,
        }
    }

    /// A file where the task should be is the old way to say `-a`.
    fn is_no_file(&self, settings: &Settings) -> Result<()> {
        let Some(task) = self.task.as_deref().filter(|_| self.agent.is_none()) else { return Ok(()) };
        let is_agent = [".toml", ".md"].iter().any(|end| task.ends_with(end));
        match is_agent && settings.here.join(task).is_file() {
            true => Err(unclear(format!("{task} is a file, and a task is words: `rath run -a {task}` runs its agent"))),
            false => Ok(()),
        }
    }

    async fn program(&self, settings: &Settings, earlier: Option<&(SessionId, Arc<dyn Store>)>) -> Result<Program> {
        let config = settings.layers()?.config;
        let text = match (&self.agent, earlier) {
            (Some(file), _) => Some(read(file)?),
            (None, Some((id, store))) => text_of(store, *id, &Ancestry::of(store, *id).await?).await?,
            (None, None) => None,
        };
        let agent = match text.map(Program::parse).transpose()? {
            None => AgentSpec::usual(config.run.tools.clone())?,
            Some(Program::Agent(agent)) => *agent,
            Some(file @ Program::RunFile { .. }) => {
                if self.model.is_some() || self.budget.is_some() {
                    return Err(unclear(
                        "a run file has its own model and budgets: -m and --budget are for agents in Markdown",
                    ));
                }
                return Ok(file);
            }
        };
        let budget = self.budget.clone().or_else(|| agent.budget.clone()).or(config.run.budget);
        let model = match self.model.clone().or_else(|| agent.model.clone()) {
            Some(model) => model,
            None => Providers::new(settings)?.usual().await?,
        };
        // Whoever names a model wants that one.
        let fallback = if self.model.is_some() { Vec::new() } else { agent.fallback };
        let agent = AgentSpec { model: Some(model), fallback, budget, ..agent };
        Ok(Program::Agent(Box::new(agent)).with_models(|name| Providers::lasting(settings, name)))
    }

    /// The task; none where a conversation is to begin.
    fn task(&self, program: &Program) -> Result<Option<String>> {
        let from_stdin = || -> Result<Option<String>> {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).context("reading the task")?;
            Ok(Some(text).filter(|text| !text.trim().is_empty()))
        };
        match (&self.task, program.task()) {
            (Some(task), _) if task == "-" => from_stdin()?.context("standard input holds no task").map(Some),
            (Some(task), _) if task.trim().is_empty() => Err(unclear("the task is empty: say what is to be done")),
            (Some(task), _) => Ok(Some(task.clone())),
            (None, Some(task)) => Ok(Some(task)),
            (None, None) if !std::io::stdin().is_terminal() && !is_stdin(self.agent.as_deref()) => from_stdin(),
            (None, None) => Ok(None),
        }
    }
}

fn is_stdin(file: Option<&Path>) -> bool {
    file.is_some_and(|file| file.as_os_str() == "-")
}

/// The first line of a task, for lists of sessions.
fn title_of(task: &str) -> Option<String> {
    const LONG: usize = 72;
    let line = task.trim().lines().next()?.trim();
    let title = match line.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    (!title.is_empty()).then_some(title)
}

/// Makes a store in this directory: whoever runs an agent wants its records.
fn make_store(settings: &Settings) -> Result<Option<PathBuf>> {
    let store = settings.here.join(crate::settings::STORE_DIR);
    let is_new = !store.exists();
    init::make(&store)?;
    if is_new {
        output::remark(format_args!("made a store in {}", settings.shown(&store)));
    }
    Ok(is_new.then_some(store))
}

/// A run has the task that it began with.
async fn is_its_task(store: &Arc<dyn Store>, id: SessionId, key: &str, task: &str) -> Result<()> {
    let view = View::of(store, id, None).await?;
    let first = store.scan(Scan::session(id, 0, u64::MAX - 1).kinds(&[Kind::User]).limit(1)).await?.records;
    let Some(first) = first.first() else { return Ok(()) };
    let began_with = view.content(&first.body::<User>()?.text).await?;
    match began_with == task {
        true => Ok(()),
        false => Err(unclear(format!(
            "the run {key:?} began with another task: {}\n  help: without a task it is resumed; `rath run --continue {} WORDS` \
             tells it more; another key begins another run",
            output::harmless(&title_of(&began_with).unwrap_or_default()),
            id.short()
        ))),
    }
}

/// The text that a run is made of, on this line of it.
async fn text_of(store: &Arc<dyn Store>, id: SessionId, ancestry: &Ancestry) -> Result<Option<String>> {
    match ancestry.program.clone() {
        Some(program) => Ok(Some(View::of(store, id, None).await?.content(&Content::Blob(program)).await?)),
        None => Ok(None),
    }
}

fn read(file: &PathBuf) -> Result<String> {
    if is_stdin(Some(file)) {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("reading the agent")?;
        return Ok(text);
    }
    let what = || format!("reading {}", file.display());
    let mut text = String::new();
    let most = LONGEST_FILE + 1;
    std::fs::File::open(file).with_context(what)?.take(most).read_to_string(&mut text).with_context(what)?;
    match text.len() as u64 == most {
        true => Err(unclear(format!("{} is too long for an agent", file.display()))),
        false => Ok(text),
    }
}

/// No agent's file is longer.
const LONGEST_FILE: u64 = 4 << 20;

/// Why the session of a run could not be placed. An error keeps its type: its code is found by it.
fn not_placed(error: anyhow::Error) -> rath::Error {
    match error.downcast::<rath::workshop::Error>() {
        Ok(rath::workshop::Error::Session(error)) => error,
        Ok(error) => ErrorKind::Coded { code: error.code().into(), why: error.into() }.into(),
        Err(error) => ErrorKind::Workflow(error.into()).into(),
    }
}

/// A run that is not over cannot be told more before it is.
fn still_open(id: SessionId, error: rath::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Open { .. } => anyhow::Error::new(error).context(format!(
            "session {} is not over yet: `rath resume {}` goes on with it, `rath cancel {}` ends it",
            id.short(),
            id.short(),
            id.short()
        )),
        _ => error.into(),
    }
}
