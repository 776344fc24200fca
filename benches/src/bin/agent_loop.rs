//! The benchmark of the agent loop: the cost of a turn, and of resuming a long run.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rath::agent::Budget;
use rath::prelude::*;
use rath::sandbox::{Backend as _, Local, Overlay, Registry, SandboxSpec};
use rath::session::SNAPSHOT_EVERY;
use rath::workspace::{Options, Workspace};
use rath::workspaces::PlacementSpec;
use rath_bench::{Better, Row, median, micros, millis, sync_floor, time};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "loop";

/// Adds two numbers.
#[tool(effect = "pure")]
fn add(a: i64, b: i64) -> String {
    (a + b).to_string()
}

/// Returns 4 KiB of text.
#[tool(effect = "pure")]
fn dump() -> String {
    "0123456789abcdef".repeat(256)
}

/// The start times of turns.
#[derive(Default)]
struct Clock(std::sync::Mutex<Vec<Instant>>);

impl Clock {
    fn tick(&self) {
        if let Ok(mut ticks) = self.0.lock() {
            ticks.push(Instant::now());
        }
    }

    /// The median time of the turns `from..to`, in microseconds.
    fn between(&self, from: usize, to: usize) -> f64 {
        let ticks = self.0.lock().map(|ticks| ticks.clone()).unwrap_or_default();
        let spans = ticks[from..to.min(ticks.len())].windows(2).map(|pair| micros(pair[1] - pair[0]));
        median(spans.collect())
    }
}

/// An agent that calls a tool `turns` times and then finishes.
fn caller(turns: u64, clock: Arc<Clock>) -> Agent {
    let model = Scripted::from_fn(move |seen| {
        clock.tick();
        match seen.turn < turns {
            true => Turn::new().call("add", json!({ "a": 1, "b": 2 })),
            false => Turn::new().text("Goodbye."),
        }
    });
    Agent::new("caller").prompt("Add.").model(model).tools(add).budget(Budget::UNLIMITED)
}

fn asked(store: &Arc<dyn Store>) -> Result<Session> {
    let mut session = store.create(Actor::program("bench"));
    session.user("Add one and two, again and again.")?;
    Ok(session)
}

async fn turns(store: &Arc<dyn Store>, turns: u64) -> Result<(Arc<Clock>, Session)> {
    let clock = Arc::new(Clock::default());
    let session = caller(turns, clock.clone()).forward(asked(store)?).await?;
    Ok((clock, session))
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|word| word == "--quick");
    let only: Option<String> = std::env::args().skip_while(|word| word != "--only").nth(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let dir = tempfile::Builder::new().prefix("rath-loop-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        // First, so that memory used by other measurements is not counted.
        if wanted("many") {
            many(dir.path(), quick).await?;
        }
        if wanted("memory") {
            in_memory(quick).await?;
        }
        if wanted("durable") {
            durable(dir.path(), quick).await?;
        }
        if wanted("workspace") {
            workspace(dir.path(), quick).await?;
        }
        if wanted("disk") {
            on_disk(dir.path(), quick).await?;
        }
        if wanted("resume") {
            resume(dir.path(), quick).await?;
        }
        if wanted("state") {
            state(dir.path(), quick).await?;
        }
        Ok(())
    })
}

async fn in_memory(quick: bool) -> Result<()> {
    let last = if quick { 2_000 } else { 10_000 };
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (clock, _) = turns(&InMemory::new(), last + 200).await?;
        early.push(clock.between(5, 205));
        late.push(clock.between(last as usize - 200, last as usize));
    }
    let (early, late) = (median(early), median(late));
    Row::new(AREA, "one turn in memory, at turn 10", "µs", early, 25.0, Better::Less).print();
    let name = format!("one turn in memory, at turn {last} (target: 1.3 × turn 10)");
    Row::new(AREA, &name, "µs", late, early * 1.3, Better::Less).print();
    Ok(())
}

async fn durable(dir: &Path, quick: bool) -> Result<()> {
    let n = if quick { 200 } else { 1_000 };
    let (floor, _) = sync_floor(dir, 4096, 300)?;
    let store = Embedded::create(dir.join("durable"))?;
    // The WAL of a store in use has reached its size. A new WAL still grows, which makes syncs slower.
    turns(&store, 100).await?;
    let (clock, _) = turns(&store, n).await?;
    let (early, late) = (clock.between(5, 105), clock.between(n as usize - 100, n as usize));
    let (after, _) = sync_floor(dir, 4096, 300)?;
    let floor = micros(std::time::Duration::from_secs_f64(f64::midpoint(floor, after)));
    let row = Row::new(AREA, "one turn durable, at turn 10", "µs", early, floor * 1.3 + 100.0, Better::Less);
    row.floor(floor).print();
    let name = format!("one turn durable, at turn {n}");
    Row::new(AREA, &name, "µs", late, floor * 1.3 + 100.0, Better::Less).floor(floor).print();
    Ok(())
}

/// Measures a turn whose call writes a file with the backend `local`, the save of such a file alone, and the syncs of
/// the turn alone. The measurements alternate, because the speed of a disk varies.
async fn workspace(dir: &Path, quick: bool) -> Result<()> {
    let (rounds, each) = if quick { (2, 30) } else { (5, 60) };
    let store = Embedded::create(dir.join("workspace"))?;
    let home = dir.join("home");
    let workspaces = Arc::new(Workspaces::new(store.clone(), home, Registry::new().with(Arc::new(Local::new()))));
    let (mut turns, mut floors, mut saves) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        floors.push(sync_floor(dir, 4096, 100)?.0 * 1e6);
        turns.push(workspace_turn(&store, &workspaces, round, each).await?);
        floors.push(sync_floor(dir, 4096, 100)?.0 * 1e6);
        saves.push(save_alone(&store, dir, round, each).await?);
    }
    let (turn, floor, save) = (median(turns), median(floors), median(saves));
    let target = floor * 2.6 + 100.0 + save;
    let name = "one turn durable, a workspace tool in local (target: 2.6 syncs + 100 µs + save)";
    Row::new(AREA, name, "µs", turn, target, Better::Less).floor(floor).print();
    let name = "the save alone: one file written through the sandbox, looked at, put into a pack";
    Row::new(AREA, name, "µs", save, save, Better::Less).bare().print();
    Ok(())
}

/// Measures a turn of a session with layered files, as forks have.
async fn workspace_turn(store: &Arc<dyn Store>, workspaces: &Arc<Workspaces>, round: u64, turns: u64) -> Result<f64> {
    let mut session = asked(store)?;
    workspaces.assign(&mut session, PlacementSpec::empty("local")).await?;
    session.provide_shared(workspaces.clone());
    let clock = Arc::new(Clock::default());
    let ticking = clock.clone();
    let model = Scripted::from_fn(move |seen| {
        ticking.tick();
        match seen.turn < turns {
            // Each round writes different content, because content that is stored already is not written again.
            true => {
                let content = format!("turn {} of {round}\n", seen.turn);
                Turn::new().call("write", json!({ "path": "file", "content": content }))
            }
            false => Turn::new().text("Goodbye."),
        }
    });
    let agent = Agent::new("writer").model(model).tools(tools::coding()).budget(Budget::UNLIMITED);
    agent.forward(session).await?;
    Ok(clock.between(5, turns as usize))
}

/// Measures only the files of such a turn: a file is written through the sandbox and saved, also in layers.
async fn save_alone(store: &Arc<dyn Store>, dir: &Path, round: u64, times: u64) -> Result<f64> {
    let dir = dir.join(format!("save-{round}"));
    let (home, begin, sandbox) = (dir.join("home"), dir.join("begin"), dir.join("sandbox"));
    for made in [&home, &begin, &sandbox] {
        std::fs::create_dir_all(made)?;
    }
    let options = Options { anywhere: true, ..Options::default() };
    let (mut empty, _) = Workspace::open(store.clone(), &begin, &dir.join("begin-state"), &options)?;
    let version = empty.save()?.version;
    let (mut workspace, _) =
        Workspace::create_layered(store.clone(), &home, &home.join("layered"), &version, &options)?;
    let overlay = workspace.overlay().map(|over| Overlay { lowers: over.lowers, upper: over.upper, work: over.work });
    let spec = SandboxSpec {
        overlay,
        mount_path: Some("/workspace".into()),
        ..SandboxSpec::new(workspace.directory(), &sandbox)
    };
    let sandbox = Local::new().open(spec).await?;
    let mut saves = Vec::new();
    for at in 0..times {
        let start = Instant::now();
        sandbox.write("file".as_ref(), format!("save {at} of {round}\n").as_bytes(), None).await?;
        workspace.save()?;
        saves.push(micros(start.elapsed()));
    }
    sandbox.close().await?;
    Ok(median(saves))
}

async fn on_disk(dir: &Path, quick: bool) -> Result<()> {
    let n: u64 = if quick { 200 } else { 1_000 };
    let path = dir.join("disk");
    let store = Embedded::create(&path)?;
    let model = Scripted::from_fn(move |seen| match seen.turn < n {
        true => Turn::new().text(format!("{:06}{}", seen.turn, "words ".repeat(340))).call("dump", json!({})),
        false => Turn::new().text("Goodbye."),
    });
    let agent = Agent::new("dumper").model(model).tools(dump).budget(Budget::UNLIMITED);
    let first = agent.forward(asked(&store)?).await?;
    drop(first);
    Embedded::open_as(&path, "bench")?.checkpoint()?;
    let once = disk(&path);
    let second = agent.forward(asked(&store)?).await?;
    drop(second);
    Embedded::open_as(&path, "bench")?.checkpoint()?;
    let per_turn = (disk(&path) - once) as f64 / n as f64;
    let content = 2048.0 + 4096.0;
    let name = format!("disk for a turn with a 2 KiB answer and 4 KiB output, {n} turns");
    Row::new(AREA, &name, "B", per_turn, 4096.0 + 1.5 * content, Better::Less).floor(content).print();
    Ok(())
}

fn disk(path: &Path) -> u64 {
    rath::workspace::disk_use(path)
}

/// The peak resident memory of this process in MB.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib / 1000.0)
}

async fn many(dir: &Path, quick: bool) -> Result<()> {
    let (sessions, each) = if quick { (200, 20) } else { (1_000, 20) };
    let store = Embedded::create(dir.join("many"))?;
    let start = Instant::now();
    let tasks: Vec<_> = (0..sessions)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { turns(&store, each).await.map(|(_, session)| session.head().seq) })
        })
        .collect();
    for task in tasks {
        ensure!(task.await?? > 6 * each, "a session is short");
    }
    let took = start.elapsed().as_secs_f64();
    Row::new(AREA, &format!("{sessions} sessions × {each} turns at once, durable"), "s", took, 4.0, Better::Less)
        .print();
    let name = format!("resident memory at its highest, {sessions} sessions × {each} turns");
    Row::new(AREA, &name, "MB", resident()?, 100.0, Better::Less).print();
    Ok(())
}

/// Measures resuming two runs that wait for an answer: one with a single long agent step, one with many short steps.
async fn resume(dir: &Path, quick: bool) -> Result<()> {
    let n: u64 = if quick { 1_000 } else { 10_000 };
    let path = dir.join("resume");
    let store = Embedded::create(&path)?;
    let long = long(n);
    let waiting = |ended: Result<Session, Error>| ended.err().is_some_and(|error| error.code() == "waiting");
    ensure!(waiting(store.run("long", Actor::program("bench"), &long, prepared).await), "the run asked no question");
    let short = short(n);
    ensure!(waiting(store.run("short", Actor::program("bench"), &short, prepared).await), "the run asked no question");
    drop(store);
    for key in ["long", "short"] {
        let mut took = Vec::new();
        for _ in 0..5 {
            let store = Embedded::open(&path)?;
            let start = Instant::now();
            let session = store.begin_run(key, Actor::program("bench"), prepared).await?;
            let ended = match key {
                "long" => session.execute(&long).await,
                _ => session.execute(&short).await,
            };
            took.push(millis(start.elapsed()));
            ensure!(ended.is_err_and(|error| error.code() == "waiting"), "the run did not reach its question");
        }
        let what = if key == "long" { "one agent step" } else { "an agent step each" };
        let name = format!("resume a run of {n} turns, {what}, to its first live step");
        Row::new(AREA, &name, "ms", median(took), 200.0, Better::Less).print();
    }
    Ok(())
}

async fn prepared(session: &mut Session) -> Result<(), Error> {
    session.user("Go on and on.").map(drop)
}

fn long(turns: u64) -> Agent {
    let model = Scripted::from_fn(move |seen| match seen.turn < turns {
        true => Turn::new().call("add", json!({ "a": 1, "b": 2 })),
        false => Turn::new().call("ask_human", json!({ "question": "Enough?" })),
    });
    Agent::new("long").model(model).tools((add, tools::ask_human)).budget(Budget::UNLIMITED)
}

fn short(turns: u64) -> impl Workflow {
    let one = caller(1, Arc::default());
    move |mut session: Session| {
        let one = one.clone();
        async move {
            for _ in 0..turns {
                session = one.forward(session).await?;
            }
            match session.ask("Enough?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        }
    }
}

async fn state(dir: &Path, quick: bool) -> Result<()> {
    let n: u64 = if quick { 2_000 } else { 16_667 };
    let store = Embedded::create(dir.join("state"))?;
    let (_, session) = turns(&store, n).await?;
    let (id, last) = (session.id(), session.head().seq);
    drop(session);
    let mut slowest: f64 = 0.0;
    for at in 0..40 {
        let seq = last * at / 40 + (at * 97) % SNAPSHOT_EVERY.min(last / 40);
        let (took, view) = time(|| pollster::block_on(View::of(&store, id, Some(seq))));
        ensure!(view?.usage().requests <= n + 1, "too much");
        slowest = slowest.max(millis(took));
    }
    let name = format!("state S@k of {} records, the slowest of 40 places", last + 1);
    Row::new(AREA, &name, "ms", slowest, 50.0, Better::Less).print();
    Ok(())
}
