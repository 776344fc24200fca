//! The benchmark of combinators: branches that run at the same time and are joined, and what a combinator costs.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rath::prelude::*;
use rath::workflow::{Join, chain, map, parallel};
use rath_bench::{Better, Row, median, micros, sync_floor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "compose";

/// The number of branches that run at the same time.
const AT_MOST: usize = 64;

fn main() -> Result<()> {
    let quick = std::env::args().any(|word| word == "--quick");
    let only: Option<String> = std::env::args().skip_while(|word| word != "--only").nth(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let dir = tempfile::Builder::new().prefix("rath-compose-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        // First, so that memory used by other measurements is not counted.
        if wanted("many") {
            many(quick).await?;
        }
        if wanted("durable") {
            durable(dir.path(), quick).await?;
        }
        if wanted("overhead") {
            overhead(quick).await?;
        }
        if wanted("syncs") {
            syncs(dir.path(), quick).await?;
        }
        Ok(())
    })
}

/// An agent that gives one answer.
fn answers() -> Agent {
    Agent::new("worker").prompt("Answer.").model(Scripted::new("scripted").say("The answer."))
}

async fn asked(session: &mut Session) -> Result<(), Error> {
    session.user("Answer for each.").map(drop)
}

/// Runs so many branches with a scripted agent each, joins them, and returns the seconds.
async fn branches(store: &Arc<dyn Store>, branches: usize) -> Result<f64> {
    let workflow = map("each", answers()).items(0..branches).at_most(AT_MOST);
    let start = Instant::now();
    let session = store.run("branches", Actor::program("bench"), &workflow, asked).await?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(session.usage().requests == branches as u64, "a branch is missing");
    ensure!(session.context().await?.len() == 2, "the answers are not one message");
    Ok(seconds)
}

async fn many(quick: bool) -> Result<()> {
    let n = if quick { 2_000 } else { 10_000 };
    let seconds = branches(&InMemory::new(), n).await?;
    let name = format!("{n} branches with an answer each, {AT_MOST} at once, in memory");
    Row::new(AREA, &name, "s", seconds, 3.0, Better::Less).print();
    let name = format!("resident memory at its highest, {n} branches");
    Row::new(AREA, &name, "MB", resident()?, 300.0, Better::Less).print();
    Ok(())
}

async fn durable(dir: &Path, quick: bool) -> Result<()> {
    let (n, rounds) = if quick { (200, 1) } else { (1_000, 3) };
    let mut took = Vec::new();
    for round in 0..rounds {
        let store = Embedded::create(dir.join(format!("durable-{round}")))?;
        took.push(branches(&store, n).await?);
    }
    let (floor, _) = sync_floor(dir, 4096, 300)?;
    let name = format!("{n} branches with an answer each, durable, joined");
    Row::new(AREA, &name, "s", median(took), f64::INFINITY, Better::Less).floor(floor).bare().print();
    Ok(())
}

/// A workflow that costs as little as possible.
async fn note(mut session: Session) -> Result<Session, Error> {
    session.user("A note.")?;
    Ok(session)
}

/// The same work without a combinator: two forks with a step each, at the same time, and a merge.
async fn by_hand(session: Session) -> Result<Session, Error> {
    let (a, b) = (session.fork("a"), session.fork("b"));
    let (a, b) = tokio::join!(a.step("a", note), b.step("b", note));
    session.merge([a?, b?], How::Append).await
}

async fn overhead(quick: bool) -> Result<()> {
    let rounds = if quick { 300 } else { 3_000 };
    let store = InMemory::new();
    let fresh = || store.create(Actor::program("bench"));
    let linked = chain("chain").then(note).then(note);
    let joined = parallel("parallel").branch("a", note).branch("b", note).join(Join::all());
    let (mut direct, mut chained, mut hand, mut combined) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let session = fresh();
        let start = Instant::now();
        note(note(session).await?).await?;
        direct.push(micros(start.elapsed()));

        let session = fresh();
        let start = Instant::now();
        linked.forward(session).await?;
        chained.push(micros(start.elapsed()));

        let session = fresh();
        let start = Instant::now();
        session.step("parallel", by_hand).await?;
        hand.push(micros(start.elapsed()));

        let session = fresh();
        let start = Instant::now();
        joined.forward(session).await?;
        combined.push(micros(start.elapsed()));
    }
    let cost = median(chained) - median(direct);
    Row::new(AREA, "chain of two over calling the two, in memory", "µs", cost, 20.0, Better::Less).print();
    let (hand, combined) = (median(hand), median(combined));
    let name = "parallel of two over forks, steps and a merge by hand, in memory";
    Row::new(AREA, name, "µs", combined - hand, 20.0, Better::Less).print();
    Ok(())
}

/// The same, durable. A branch is stored when it ends, which is one more sync for all branches that end together.
async fn syncs(dir: &Path, quick: bool) -> Result<()> {
    let rounds = if quick { 50 } else { 300 };
    let store = Embedded::create(dir.join("syncs"))?;
    let joined = parallel("parallel").branch("a", note).branch("b", note).join(Join::all());
    let (mut hand, mut combined) = (Vec::new(), Vec::new());
    let (before, _) = sync_floor(dir, 4096, 300)?;
    for round in 0..rounds {
        let start = Instant::now();
        let by_hand = |session: Session| session.step("parallel", by_hand);
        store.run(&format!("hand-{round}"), Actor::program("bench"), &by_hand, asked).await?;
        hand.push(micros(start.elapsed()));
        let start = Instant::now();
        store.run(&format!("combined-{round}"), Actor::program("bench"), &joined, asked).await?;
        combined.push(micros(start.elapsed()));
    }
    let (after, _) = sync_floor(dir, 4096, 300)?;
    let floor = f64::midpoint(before, after) * 1e6;
    let name = "parallel of two over the same by hand, durable (target: one sync + 20 µs)";
    let cost = median(combined) - median(hand);
    Row::new(AREA, name, "µs", cost, floor + 20.0, Better::Less).floor(floor).print();
    Ok(())
}

/// The peak resident memory of this process in MB.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib / 1000.0)
}
