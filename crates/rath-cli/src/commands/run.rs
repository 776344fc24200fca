use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use rath::agent::{Event, Listener, Patience};
use rath::{
    Ancestry, Blob, Cancel, Conditions, Content, Delta, ErrorKind, OnDivergence, Session, SessionId, Store, View,
    Workshop,
};
use serde_json::json;

use super::Answer;
use super::place::PlaceArgs;
use crate::expression;
use crate::output::{self, style};
use crate::runfile::RunFile;
use crate::settings::Settings;

/// Run agents from a file, on a new session
///
/// The file names agents, their tools and the script of a model; see `docs/runs.md`. The run can be killed at any
/// moment: `rath resume` goes on with it. A run that asks a person ends with exit code 5 and is resumed after
/// `rath answer`.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// The run file; `-` reads it from standard input
    file: PathBuf,
    /// What the first agent is asked, instead of the file's task
    task: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// The key of the run: the same key again resumes it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    going: Going,
}

/// Go on with a run that was interrupted, or waited for an answer
///
/// Steps that were finished are not run again. A call that was interrupted is made again where that is safe, with the
/// files set back; where it is not, you are asked.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Resume {
    /// The session of the run
    session: String,
    /// Another run file than the one it began with: what changed is shown, and it stops there
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where the agents no longer do what is recorded, go on on a fork; again, on the same fork
    #[arg(long)]
    fork: bool,
    #[command(flatten)]
    going: Going,
}

/// How a run goes on.
#[derive(clap::Args)]
struct Going {
    /// Wait for answers, instead of leaving with exit code 5
    #[arg(long)]
    wait: bool,
    /// Say nothing while it runs
    #[arg(long, short)]
    quiet: bool,
}

impl Run {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let text = read(&self.file)?;
        let file = RunFile::parse(&text)?;
        let agent = file.agent()?;
        let task = self
            .task
            .clone()
            .or(file.task)
            .context("the run has no task: write one after the file, or `task = \"…\"` in it")?;
        let workshop = Arc::new(settings.workshop(self.place.anywhere)?);
        let store = workshop.store().clone();
        let key = self.key.clone().unwrap_or_else(|| format!("rath-run-{}", &rath::fresh_name()[..12]));
        let program = Some(Blob::new(text.into_bytes(), "application/toml"));
        let conditions = Conditions { program, ..settings.actor().into() };
        let (place, title) = (&self.place, file.title);
        let prepared = store.begin_run(&key, conditions, async |session: &mut Session| {
            if let Some(title) = title {
                session.set_title(title)?;
            }
            if place.is_given() {
                let placed = place.apply(settings, &workshop, session).await;
                placed.map_err(|error| ErrorKind::Workflow(error.into()))?;
            }
            session.user(task)?;
            Ok(())
        });
        let session = prepared.await?;
        self.going.go_on(settings, &workshop, session, &agent, Some(&self.file)).await
    }
}

impl Resume {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = Arc::new(settings.workshop(true)?);
        let store = workshop.store().clone();
        let id = expression::resolve_session(&store, &self.session).await?;
        let ancestry = Ancestry::of(&store, id).await?;
        let text = match &self.file {
            Some(file) => read(file)?,
            None => program(&store, id, &ancestry).await?,
        };
        let agent = RunFile::parse(&text)?.agent()?;
        let conditions = Conditions {
            actor: settings.actor_of(&store, ancestry.root).await?,
            program: Some(Blob::new(text.into_bytes(), "application/toml")),
            on_divergence: if self.fork { OnDivergence::Fork } else { OnDivergence::Stop },
        };
        let session = store.resume(id, conditions).await?;
        self.going.go_on(settings, &workshop, session, &agent, self.file.as_deref()).await
    }
}

/// The text that a run is made of, on this line of it.
async fn program(store: &Arc<dyn Store>, id: SessionId, ancestry: &Ancestry) -> Result<String> {
    let program = ancestry.program.clone().with_context(|| not_ours(id))?;
    Ok(View::of(store, id, None).await?.content(&Content::Blob(program)).await?)
}

fn not_ours(id: SessionId) -> String {
    format!(
        "session {} is not of `rath run`: the program that began it resumes it, by its run key\n  help: `--file FILE` names a run file for it",
        id.short()
    )
}

fn read(file: &PathBuf) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("reading the run file")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

impl Going {
    async fn go_on(
        &self,
        settings: &Settings,
        workshop: &Arc<Workshop>,
        mut session: Session,
        agent: &rath::Agent,
        file: Option<&Path>,
    ) -> Result<Answer> {
        let first = session.id();
        output::remark(format_args!("session {}", style::session(first.short())));
        session.equip_shared(workshop.clone());
        session.equip(if self.wait { Patience::Wait } else { Patience::Leave });
        let silent = self.quiet || settings.json;
        if !silent {
            session.equip(teller(first, agent.name()));
        }
        stop_on_interrupt(settings, session.cancel_token())?;
        let done = session.go_on(agent).await;
        match done {
            Ok(session) => {
                if silent {
                    went_on(first, session.id());
                }
                let text = session.text().await?.unwrap_or_default();
                match settings.json {
                    true => output::json(&json!({
                        "session": session.id(), "head": session.head(), "outcome": "done", "text": text,
                        "usage": session.usage(),
                    }))?,
                    false => output::answer(output::harmless(&text))?,
                }
                Ok(Answer::Yes)
            }
            Err(error) => match error.kind() {
                ErrorKind::Waiting(id) => {
                    if silent {
                        went_on(first, *id);
                    }
                    let id = *id;
                    if settings.json {
                        output::json(&json!({ "session": id, "outcome": "waiting" }))?;
                    }
                    output::remark(format_args!(
                        "{} for an answer\n  help: `rath inbox` shows what is asked, `rath answer` answers, then `rath resume {}`",
                        style::label("waiting"),
                        id.short()
                    ));
                    Ok(Answer::Waiting)
                }
                ErrorKind::Diverged(_) => {
                    output::complain(settings, &error.into());
                    let file = file.map(|file| format!(" --file {}", file.display())).unwrap_or_default();
                    let command = format!("rath resume {}{file} --fork", first.short());
                    output::remark(format_args!("  help: `{command}` goes on from there on a fork"));
                    Ok(Answer::No)
                }
                _ => {
                    if let Some(session) = error.sessions().first().filter(|_| silent) {
                        went_on(first, session.id());
                    }
                    Err(error.into())
                }
            },
        }
    }
}

/// Ctrl-C stops the run cleanly; what it did is on the record.
fn stop_on_interrupt(settings: &Settings, token: Cancel) -> Result<()> {
    let interrupted = settings.interrupted()?;
    tokio::spawn(async move {
        interrupted.await;
        token.cancel("interrupted");
    });
    Ok(())
}

/// Says that a run goes on under another name: its agents had changed.
fn went_on(first: SessionId, now: SessionId) {
    if first != now {
        output::remark(format_args!("went on as session {}", style::session(now.short())));
    }
}

/// Tells on stderr what happens in a run that began on this session with this agent.
fn teller(first: SessionId, begins: &str) -> Listener {
    let begins = begins.to_owned();
    let heard: Mutex<HashMap<SessionId, String>> = Mutex::default();
    Listener::new(move |session, agent, event| {
        let who = style::record(output::harmless(agent));
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Began if agent == begins => went_on(first, session),
            Event::Heard(Delta::Text(text)) => heard.entry(session).or_default().push_str(text),
            Event::TurnOver => {
                if let Some(text) = heard.remove(&session).filter(|text| !text.trim().is_empty()) {
                    output::remark(format_args!("{who}: {}", output::harmless(text.trim())));
                }
            }
            Event::CallStarted { id, tool } => {
                output::remark(style::dim(output::harmless(&format!("  {agent} calls {tool} [{id}]"))));
            }
            Event::CallFinished { id, tool, failed } => {
                let how = if failed { "failed" } else { "done" };
                output::remark(style::dim(output::harmless(&format!("  {tool} {how} [{id}]"))));
            }
            Event::Asked { shown } => {
                output::remark(format_args!("{who} {} {}", style::label("asks:"), output::harmless(shown)))
            }
            Event::Retrying { why } => {
                output::remark(style::label(format!("  {agent}: {}, asking again", output::harmless(why))))
            }
            _ => {}
        }
    })
}
