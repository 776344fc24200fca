//! The chapters of the demo in which a run is killed and resumed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rath::agent::{Event, Observer};
use rath::agent_file::RunFile;
use rath::body::{CallOutcome, ToolFinished, ToolStarted, Verdict};
use rath::store::{Post, PostContent, Scan, SessionFilter};
use rath::{Actor, ErrorKind, Kind, SessionId, Store, Time, View, Workspaces};

use super::Narrator;
use crate::output::{self, style};
use crate::providers::Providers;
use crate::settings::Settings;

const RUN_FILE: &str = include_str!("fix.toml");
const PROGRAM: &str = include_str!("version.sh");
const TESTS: &str = include_str!("run.sh");

/// The key of the run.
const KEY: &str = "demo";

/// How long the other process may take to reach its second turn.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Has an agent fix a failing test, kills its process in the middle, and resumes the run in this process.
pub(super) async fn show(
    settings: &Settings,
    story: &Narrator<'_>,
    workspaces: &Arc<Workspaces>,
    dir: &Path,
    root: &Path,
) -> Result<SessionId> {
    let repository = dir.join("version");
    std::fs::create_dir_all(repository.join("tests"))?;
    std::fs::write(repository.join("version.sh"), PROGRAM)?;
    std::fs::write(repository.join("tests/run.sh"), TESTS)?;
    std::fs::write(repository.join("CHANGES"), "- first version\n")?;
    let file = dir.join("fix.toml");
    std::fs::write(&file, RUN_FILE)?;

    story.chapter(7, "An agent fixes a failing test in the sandbox; its process is killed during a model request")?;
    let at = settings.shown(&file);
    story.line(style::dim(format!("$ rath run -a {at} --key {KEY} --in {}", settings.shown(&repository))))?;
    let mut child = start(root, &file, &repository)?;
    let seen = until_second_turn(workspaces.store(), &mut child).await;
    child.kill()?;
    child.wait()?;
    let id = seen?;
    let view = View::of(workspaces.store(), id, None).await?;
    for record in view.own_records().await? {
        if let Ok(finished) = record.body::<ToolFinished>() {
            let shown = finished.output.iter().find_map(|output| output.text.clone()).unwrap_or_default();
            let failing: Vec<_> = shown.lines().filter(|line| line.starts_with("FAILED")).collect();
            if !failing.is_empty() {
                let failing = failing.iter().map(|line| line.trim_start_matches("FAILED").trim());
                story.line(format_args!("{}: exit 1: {}", record.point(), failing.collect::<Vec<_>>().join("; ")))?;
            }
        }
    }
    let at = view.reference().seq;
    story.line(format_args!("{} after {} records, during a model request", style::bad("kill -9"), at + 1))?;

    story.chapter(8, "Another process resumes the run: finished calls are not repeated, and a question is answered")?;
    story.line(style::dim(format!("$ rath resume {}", id.short())))?;
    let agent = RunFile::parse(RUN_FILE)?.agent(&Providers::new(settings)?)?;
    let text = loop {
        let mut session = workspaces.store().resume(id, settings.actor_of(workspaces.store(), id).await?).await?;
        session.provide_shared(workspaces.clone());
        let (observer, lines) = collector();
        session.provide(observer);
        let result = session.execute(&agent).await;
        for line in lines.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            story.line(line)?;
        }
        match result {
            Ok(session) => break session.text().await?.unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                drop(error);
                story.line(style::dim(format!("$ rath answer {} yes", id.short())))?;
                answer(workspaces.store(), id).await?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    story.line(format_args!("fixer: {text}"))?;
    ensure!(no_call_repeated(workspaces.store(), id).await?, "a finished call was repeated");
    Ok(id)
}

#[allow(clippy::disallowed_methods, reason = "the demo kills a process of its own")]
fn start(root: &Path, file: &Path, repository: &Path) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["run", "--agent"])
        .arg(file)
        .args(["--key", KEY, "--quiet", "--store"])
        .arg(root)
        .arg("--in")
        .arg(repository);
    // Its output is not needed: the records have it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("starting another rath")
}

/// Waits until the other process has sent its second model request.
async fn until_second_turn(store: &Arc<dyn Store>, child: &mut Child) -> Result<SessionId> {
    let start = Time::now();
    loop {
        if let Some(row) = store.sessions(SessionFilter::Run(KEY.into()).into()).await?.first() {
            let scan = Scan::session(row.id, 0, row.seq).kinds(&[Kind::ModelRequested]);
            if store.scan(scan).await?.records.len() >= 2 {
                return Ok(row.id);
            }
        }
        if let Some(status) = child.try_wait()? {
            bail!("the other process exited: {status}");
        }
        let waited = Duration::from_micros(Time::now().micros_since(start));
        ensure!(waited < TIMEOUT, "the other process did not reach its second turn within 60 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

/// An observer that collects a line for each call and question.
fn collector() -> (Observer, Lines) {
    let lines = Lines::default();
    let collected = lines.clone();
    let observer = Observer::new(move |event| {
        let agent = event.agent;
        let line = match event.what {
            Event::CallFinished { tool, finished } => {
                let how = match finished.outcome {
                    CallOutcome::Done => style::good("done"),
                    _ => style::bad("failed"),
                };
                format!("{agent} called {tool}: {how}")
            }
            Event::Asked { shown } => format!("{agent} {} {}", style::label("asks:"), output::escaped(&shown)),
            _ => return,
        };
        collected.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    });
    (observer, lines)
}

async fn answer(store: &Arc<dyn Store>, id: SessionId) -> Result<()> {
    let asks = View::of(store, id, None).await?.pending().asks;
    let ask = asks.first().context("there is no question")?;
    let what =
        PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict: Verdict::Yes, why: None };
    Ok(store.post(Post::new(id, Actor::person("ada"), what)).await?)
}

/// Whether every finished call was started once.
async fn no_call_repeated(store: &Arc<dyn Store>, id: SessionId) -> Result<bool> {
    let records = View::of(store, id, None).await?.own_records().await?;
    let started = records.iter().filter_map(|record| record.body::<ToolStarted>().ok());
    let mut calls: Vec<_> = started.map(|started| (started.call, started.tool)).collect();
    let all = calls.len();
    calls.sort();
    calls.dedup();
    Ok(calls.len() == all)
}
