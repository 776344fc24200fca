//! The part of the demo in which an agent works, is killed, and goes on.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rath::agent::{Event, Listener};
use rath::agent_file::RunFile;
use rath::body::{CallOutcome, ToolFinished, ToolStarted, Verdict};
use rath::store::{Post, Posted, Scan, Which};
use rath::{Actor, ErrorKind, Kind, SessionId, Store, Time, View, Workshop};

use super::Teller;
use crate::output::{self, style};
use crate::providers::Providers;
use crate::settings::Settings;

const RUN_FILE: &str = include_str!("fix.toml");
const PROGRAM: &str = include_str!("version.sh");
const TESTS: &str = include_str!("run.sh");

/// The key of the run.
const KEY: &str = "demo";

/// How long the other process may take to come to its second turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets an agent mend a failing test; its process is killed in the middle, and another one goes on.
pub(super) async fn tell(
    settings: &Settings,
    story: &Teller<'_>,
    workshop: &Arc<Workshop>,
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

    story.chapter(7, "An agent mends a failing test, in the sandbox; its process is killed in the middle")?;
    let at = settings.shown(&file);
    story.tell(style::dim(format!("$ rath run -a {at} --key {KEY} --in {}", settings.shown(&repository))))?;
    let mut child = start(root, &file, &repository)?;
    let seen = until_second_turn(workshop.store(), &mut child).await;
    child.kill()?;
    child.wait()?;
    let id = seen?;
    let view = View::of(workshop.store(), id, None).await?;
    for record in view.own().await? {
        if let Ok(finished) = record.body::<ToolFinished>() {
            let shown = finished.output.iter().find_map(|output| output.text.clone()).unwrap_or_default();
            let failing: Vec<_> = shown.lines().filter(|line| line.starts_with("FAILED")).collect();
            if !failing.is_empty() {
                let failing = failing.iter().map(|line| line.trim_start_matches("FAILED").trim());
                story.tell(format_args!("{}: exit 1: {}", record.point(), failing.collect::<Vec<_>>().join("; ")))?;
            }
        }
    }
    let at = view.reference().seq;
    story.tell(format_args!("{} after {} records, while the model was asked", style::bad("kill -9"), at + 1))?;

    story.chapter(8, "Another process goes on: what was done is not done again, and a person is asked")?;
    story.tell(style::dim(format!("$ rath resume {}", id.short())))?;
    let agent = RunFile::parse(RUN_FILE)?.agent(&Providers::new(settings)?)?;
    let text = loop {
        let mut session = workshop.store().resume(id, settings.actor_of(workshop.store(), id).await?).await?;
        session.equip_shared(workshop.clone());
        let (listener, told) = listening();
        session.equip(listener);
        let went_on = session.go_on(&agent).await;
        for line in told.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            story.tell(line)?;
        }
        match went_on {
            Ok(session) => break session.text().await?.unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                drop(error);
                story.tell(style::dim(format!("$ rath answer {} yes", id.short())))?;
                answer(workshop.store(), id).await?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    story.tell(format_args!("fixer: {text}"))?;
    ensure!(once(workshop.store(), id).await?, "a finished call was made twice");
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
    // What it says is on the record.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("starting another rath")
}

/// Waits until the other process asks the model for the second time.
async fn until_second_turn(store: &Arc<dyn Store>, child: &mut Child) -> Result<SessionId> {
    let begun = Time::now();
    loop {
        if let Some(row) = store.sessions(Which::Run(KEY.into()).into()).await?.first() {
            let scan = Scan::session(row.id, 0, row.seq).kinds(&[Kind::ModelRequested]);
            if store.scan(scan).await?.records.len() >= 2 {
                return Ok(row.id);
            }
        }
        if let Some(status) = child.try_wait()? {
            bail!("the other process ended by itself: {status}");
        }
        let waited = Duration::from_micros(Time::now().micros_since(begun));
        ensure!(waited < PATIENCE, "the other process does not get on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

type Told = Arc<Mutex<Vec<String>>>;

/// Collects what happens.
fn listening() -> (Listener, Told) {
    let told = Told::default();
    let hears = told.clone();
    let listener = Listener::new(move |event| {
        let agent = event.agent;
        let line = match event.what {
            Event::CallFinished { tool, finished } => {
                let how = match finished.outcome {
                    CallOutcome::Done => style::good("done"),
                    _ => style::bad("failed"),
                };
                format!("{agent} called {tool}: {how}")
            }
            Event::Asked { shown } => format!("{agent} {} {}", style::label("asks:"), output::harmless(&shown)),
            _ => return,
        };
        hears.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    });
    (listener, told)
}

async fn answer(store: &Arc<dyn Store>, id: SessionId) -> Result<()> {
    let asks = View::of(store, id, None).await?.pending().asks;
    let ask = asks.first().context("nothing is asked")?;
    let what = Posted::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict: Verdict::Yes, why: None };
    Ok(store.post(Post::new(id, Actor::person("ada"), what)).await?)
}

/// Whether every call that ended was begun once.
async fn once(store: &Arc<dyn Store>, id: SessionId) -> Result<bool> {
    let records = View::of(store, id, None).await?.own().await?;
    let started = records.iter().filter_map(|record| record.body::<ToolStarted>().ok());
    let mut calls: Vec<_> = started.map(|started| (started.call, started.tool)).collect();
    let all = calls.len();
    calls.sort();
    calls.dedup();
    Ok(calls.len() == all)
}
