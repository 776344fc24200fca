//! Measures the store: append, fork, open, read, list, verify. Prints one JSON row per line.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments")]

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use pollster::block_on;
use rath_audit::bundle::{Export, Import};
use rath_bench::{Better, Row, median, micros, millis, sync_floor, time};
use rath_core::store::{Query, Store};
use rath_core::{Actor, Digest, InMemory, Session, View};
use rath_store::Embedded;

/// The allocator of the `rath` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "ledger";

/// A note whose body has 500 bytes.
fn payload() -> String {
    "x".repeat(500 - r#"{"text":""}"#.len())
}

/// A measurement, which prints its rows.
type Measure = fn(&Sizes, &Path) -> Result<()>;

struct Sizes {
    long: usize,
    million: usize,
    durable: usize,
    sessions: usize,
    repeat: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1)).cloned();
    let sizes = match quick {
        true => Sizes { long: 5_000, million: 20_000, durable: 100, sessions: 500, repeat: 5 },
        false => Sizes { long: 100_000, million: 1_000_000, durable: 1_000, sessions: 10_000, repeat: 7 },
    };
    let dir = tempfile::Builder::new().prefix("rath-bench-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let rows: [(&str, Measure); 11] = [
        ("append_memory", append_memory),
        ("append_durable", append_durable),
        ("disk", disk),
        ("fork", fork),
        ("forks_1000", forks_1000),
        ("open", open),
        ("context", context),
        ("list", list),
        ("verify", verify),
        ("bundle", bundle),
        ("bundle_zip", bundle_zip),
    ];
    for (name, row) in rows {
        if only.as_ref().is_none_or(|only| only == name) {
            eprintln!("  {name} …");
            let dir = dir.path().join(name);
            std::fs::create_dir_all(&dir)?;
            row(&sizes, &dir).with_context(|| format!("row {name}"))?;
        }
    }
    Ok(())
}

fn session_of(store: &Arc<dyn Store>, records: usize) -> Session {
    let mut session = Session::create(store, Actor::program("bench"));
    let text = payload();
    for _ in 1..records {
        session.user(text.clone()).expect("append");
    }
    session
}

fn append_memory(sizes: &Sizes, _: &Path) -> Result<()> {
    let store = InMemory::new();
    let text = payload();
    for (name, length) in
        [("append 500 B in memory, at 10 records", 10), ("append 500 B in memory, at 100,000 records", sizes.long)]
    {
        let mut each = Vec::new();
        for _ in 0..sizes.repeat {
            let mut session = session_of(&store, length);
            let texts: Vec<String> = (0..1000).map(|_| text.clone()).collect();
            let (took, ()) = time(|| texts.into_iter().for_each(|text| assert!(session.user(text).is_ok())));
            each.push(micros(took) / 1000.0);
        }
        // The limit: two hashes over the bytes of a record.
        let (header, body) = (vec![b'h'; 360], vec![b'b'; 516]);
        let (floor, _) =
            time(|| (0..1000).map(|_| Digest::of(&header).0[0] ^ Digest::of(&body).0[0]).fold(0, |a, b| a ^ b));
        Row::new(AREA, name, "µs", median(each), 2.0, Better::Less).floor(micros(floor) / 1000.0).print();
    }
    Ok(())
}

fn append_durable(sizes: &Sizes, dir: &Path) -> Result<()> {
    let text = payload();
    let (mut one, mut eight, mut floors, mut syncs) = (vec![], vec![], vec![], vec![]);
    for turn in 0..sizes.repeat {
        // The size of a stored record: header, salt and body.
        let (sync, rate) = sync_floor(dir, 860, sizes.durable)?;
        syncs.push(sync);
        floors.push(rate);
        let store = Embedded::create(dir.join(format!("one-{turn}")))?;
        let mut session = Session::create(&store, Actor::program("bench"));
        block_on(session.publish())?;
        let (took, done) = time(|| {
            (0..sizes.durable).try_for_each(|_| {
                session.user(text.clone())?;
                block_on(session.publish())
            })
        });
        done?;
        one.push(sizes.durable as f64 / took.as_secs_f64());
        let store = Embedded::create(dir.join(format!("eight-{turn}")))?;
        let sessions: Vec<_> = (0..8)
            .map(|_| {
                let mut session = Session::create(&store, Actor::program("bench"));
                block_on(session.publish()).map(|()| session)
            })
            .collect::<Result<_, _>>()?;
        let (took, ()) = time(|| {
            std::thread::scope(|scope| {
                for mut session in sessions {
                    let text = &text;
                    scope.spawn(move || {
                        for _ in 0..sizes.durable {
                            session.user(text.clone()).expect("append");
                            block_on(session.publish()).expect("publish");
                        }
                    });
                }
            });
        });
        eight.push(8.0 * sizes.durable as f64 / took.as_secs_f64());
    }
    let (one, eight, floor, sync) = (median(one), median(eight), median(floors), median(syncs));
    let slow_disk = sync >= 0.5e-3;
    let share = if slow_disk { 0.9 } else { 0.7 };
    let times = if slow_disk { 4.0 } else { 2.5 };
    Row::new(AREA, "one fdatasync of this disk, now", "ms", sync * 1e3, f64::NAN, Better::Less).bare().print();
    Row::new(AREA, "durable append 500 B, one writer", "1/s", one, share * floor, Better::More).floor(floor).print();
    Row::new(AREA, "durable append 500 B, 8 sessions at once", "1/s", eight, times * one, Better::More)
        .floor(floor)
        .print();
    Ok(())
}

fn disk(sizes: &Sizes, dir: &Path) -> Result<()> {
    for count in [sizes.durable, sizes.durable * 10] {
        let path = dir.join(format!("disk-{count}"));
        let store = Embedded::create(&path)?;
        let empty = size_of(&path)?;
        let mut session = Session::create(&store, Actor::program("bench"));
        for _ in 0..count {
            session.user(payload())?;
            block_on(session.publish())?;
        }
        // Includes the index of record ids, which is built at the first lookup.
        block_on(store.get(rath_core::store::Lookup::Prefix("0000000000".into())))?;
        drop(session);
        drop(store);
        Embedded::open_as(&path, "bench")?.checkpoint()?;
        let each = (size_of(&path)? - empty) as f64 / count as f64;
        let name = format!("disk for a 500 B record, one commit each, {count} records");
        Row::new(AREA, &name, "B", each, 2.5 * 500.0, Better::Less).floor(500.0).print();
    }
    Ok(())
}

fn size_of(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => size_of(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

fn fork(sizes: &Sizes, dir: &Path) -> Result<()> {
    let store = InMemory::new();
    let session = session_of(&store, sizes.long);
    let short = session_of(&store, 10);
    let measure = |session: &Session| {
        let mut each = Vec::new();
        for _ in 0..sizes.repeat {
            let mut forks = Vec::with_capacity(1000);
            let (took, ()) = time(|| (0..1000).for_each(|_| forks.push(session.fork("try"))));
            each.push(micros(took) / 1000.0);
        }
        median(each)
    };
    let (long, short) = (measure(&session), measure(&short));
    Row::new(AREA, "fork in memory, of 100,000 records", "µs", long, 2.0, Better::Less).print();
    Row::new(AREA, "fork in memory, of 10 records", "µs", short, 2.0, Better::Less).print();
    let store = Embedded::create(dir.join("store"))?;
    let mut session = session_of(&store, sizes.long);
    block_on(session.publish())?;
    let mut small = session_of(&store, 10);
    block_on(small.publish())?;
    let measure = |session: &Session| -> Result<f64> {
        let mut each = Vec::new();
        for _ in 0..50 {
            let (took, done) = time(|| {
                let mut fork = session.fork("try");
                block_on(fork.publish())
            });
            done?;
            each.push(millis(took));
        }
        Ok(median(each))
    };
    let short = measure(&small)?;
    let long = measure(&session)?;
    let (sync, _) = sync_floor(dir, 500, 100)?;
    Row::new(
        AREA,
        "fork durable, of 100,000 records (target: twice one of 10 records)",
        "ms",
        long,
        2.0 * short,
        Better::Less,
    )
    .floor(sync * 1e3)
    .print();
    Ok(())
}

fn forks_1000(sizes: &Sizes, _: &Path) -> Result<()> {
    let store = InMemory::new();
    let session = session_of(&store, sizes.long / 10);
    let mut each = Vec::new();
    for _ in 0..sizes.repeat {
        let mut forks = Vec::with_capacity(1000);
        let (took, ()) = time(|| {
            for _ in 0..1000 {
                let mut fork = session.fork("try");
                fork.user("one more").expect("append");
                forks.push(fork);
            }
        });
        each.push(millis(took));
    }
    Row::new(
        AREA,
        "1,000 forks of a 10,000-record session, one record each",
        "ms",
        median(each),
        f64::NAN,
        Better::Less,
    )
    .bare()
    .print();
    Ok(())
}

fn open(sizes: &Sizes, dir: &Path) -> Result<()> {
    let path = dir.join("store");
    let id = million(sizes, &path)?;
    let mut opened = Vec::new();
    let mut ready = Vec::new();
    for _ in 0..sizes.repeat {
        let (took, store) = time(|| Embedded::open(&path));
        opened.push(millis(took));
        let store = store?;
        let (took, session) = time(|| block_on(Session::open(&store, id, Actor::program("bench"))));
        let mut session = session?;
        session.user("ready")?;
        ready.push(millis(took));
    }
    let store = Embedded::open(&path)?;
    let (took, found) = time(|| block_on(store.get(rath_core::store::Lookup::Prefix("0123456789abcdef".into()))));
    found?;
    let name = format!("first question by record id to a store with {} records", sizes.million);
    Row::new(AREA, &name, "ms", millis(took), f64::NAN, Better::Less).bare().print();
    let name = format!("open a store with {} records", sizes.million);
    Row::new(AREA, &name, "ms", median(opened), 10.0, Better::Less).print();
    let name = format!("open a session of {} records, ready to append", sizes.long);
    Row::new(AREA, &name, "ms", median(ready), 10.0, Better::Less).print();
    Ok(())
}

/// Fills a store with a million records. One of the sessions is long; returns its id.
fn million(sizes: &Sizes, path: &Path) -> Result<rath_core::SessionId> {
    let store = Embedded::create(path)?;
    let mut id = None;
    let text = payload();
    for _ in 0..sizes.million / sizes.long {
        let mut session = Session::create(&store, Actor::program("bench"));
        for record in 1..sizes.long {
            session.user(text.clone())?;
            if record % 1000 == 0 {
                block_on(session.publish())?;
            }
        }
        block_on(session.publish())?;
        id = Some(session.id());
    }
    id.context("no session")
}

/// A record as one line of JSON.
#[derive(serde::Deserialize)]
#[allow(dead_code, reason = "the fields are only parsed")]
struct Line {
    header: rath_core::Header,
    body: serde_json::Map<String, serde_json::Value>,
}

fn context(sizes: &Sizes, dir: &Path) -> Result<()> {
    let path = dir.join("store");
    let store = Embedded::create(&path)?;
    let mut session = Session::create(&store, Actor::program("bench"));
    let text = payload();
    for record in 1..sizes.long {
        session.user(text.clone())?;
        // As many records per commit as in a turn with a few tool calls.
        if record % 8 == 0 {
            block_on(session.publish())?;
        }
    }
    block_on(session.publish())?;
    let id = session.id();
    drop(session);
    // The limit: reading and parsing the same records from a JSON file, without hashing.
    let file = dir.join("same.jsonl");
    let mut lines = String::new();
    for record in block_on(async { View::of(&store, id, None).await?.own_records().await })? {
        let part = |bytes| std::str::from_utf8(bytes).map(str::to_owned);
        let (header, body) = (part(record.header_bytes())?, part(record.body_bytes().unwrap_or_default())?);
        lines.push_str(&format!("{{\"header\":{header},\"body\":{body}}}\n"));
    }
    std::fs::write(&file, &lines)?;
    let (mut floor, mut ours) = (vec![], vec![]);
    for _ in 0..sizes.repeat {
        let (took, parsed) = time(|| -> Result<usize> {
            let text = std::fs::read_to_string(&file)?;
            let parsed: Vec<Line> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            Ok(parsed.len())
        });
        anyhow::ensure!(parsed? == sizes.long);
        floor.push(millis(took));
        let (took, read) = time(|| block_on(async { View::of(&store, id, None).await?.context().await }));
        anyhow::ensure!(read?.len() == sizes.long - 1);
        ours.push(millis(took));
    }
    let floor = median(floor);
    let name = format!("read the context of {} records", sizes.long);
    Row::new(AREA, &name, "ms", median(ours), 2.0 * floor, Better::Less).floor(floor).print();
    Ok(())
}

fn list(sizes: &Sizes, dir: &Path) -> Result<()> {
    let store = Embedded::create(dir.join("store"))?;
    let root = session_of(&store, 10);
    let mut batch = Vec::new();
    for n in 0..sizes.sessions {
        let mut session =
            if n % 2 == 0 { root.fork("listed") } else { Session::create(&store, Actor::program("bench")) };
        session.set_title(format!("session {n}"))?;
        session.user(payload())?;
        batch.push(session);
    }
    std::thread::scope(|scope| {
        for chunk in batch.chunks_mut(sizes.sessions.div_ceil(16)) {
            scope.spawn(move || chunk.iter_mut().for_each(|session| block_on(session.publish()).expect("publish")));
        }
    });
    let mut each = Vec::new();
    for _ in 0..sizes.repeat {
        let (took, rows) = time(|| block_on(store.sessions(Query::default())));
        anyhow::ensure!(rows?.len() >= sizes.sessions);
        each.push(millis(took));
    }
    let name = format!("list {} sessions", sizes.sessions);
    Row::new(AREA, &name, "ms", median(each), 20.0, Better::Less).print();
    Ok(())
}

fn verify(sizes: &Sizes, dir: &Path) -> Result<()> {
    let path = dir.join("store");
    million(sizes, &path)?;
    let store = Embedded::open_as(&path, "bench")?;
    let mut ours = Vec::new();
    let mut bytes = 0;
    for _ in 0..3.max(sizes.repeat / 2) {
        let (took, report) = time(|| store.verify(None, &mut |_, _| {}));
        let report = report?;
        anyhow::ensure!(report.is_valid(), "{:?}", report.findings);
        bytes = report.bytes;
        ours.push(millis(took));
    }
    // The limit: hashing the same headers and bodies from memory.
    let each = bytes as usize / sizes.million;
    let (header, body) = (vec![b'h'; each - 516], vec![b'b'; 516]);
    let (floor, _) =
        time(|| (0..sizes.million).map(|_| Digest::of(&header).0[0] ^ Digest::of(&body).0[0]).fold(0, |a, b| a ^ b));
    let name = format!("verify {} records", sizes.million);
    Row::new(AREA, &name, "ms", median(ours), 3.0 * millis(floor), Better::Less).floor(millis(floor)).print();
    Ok(())
}

fn bundle(sizes: &Sizes, dir: &Path) -> Result<()> {
    let name = format!("export + import of {} records", sizes.long);
    let mut floors = Vec::new();
    let took = there_and_back(sizes, dir, "bundle", &mut |path| {
        // The limit: writing and reading the same bytes, and hashing them once for each direction.
        let records = std::fs::read(path.join("records.jsonl"))?;
        let copy = path.join("copy");
        let (took, done) = time(|| -> std::io::Result<u8> {
            std::fs::write(&copy, &records)?;
            Ok(Digest::of(&records).0[0] ^ Digest::of(&std::fs::read(&copy)?).0[0])
        });
        done?;
        floors.push(millis(took));
        Ok(())
    })?;
    Row::new(AREA, &name, "ms", took, f64::NAN, Better::Less).floor(median(floors)).print();
    Ok(())
}

fn bundle_zip(sizes: &Sizes, dir: &Path) -> Result<()> {
    let name = format!("export + import of {} records, as a zip", sizes.long);
    let took = there_and_back(sizes, dir, "bundle.zip", &mut |_| Ok(()))?;
    Row::new(AREA, &name, "ms", took, f64::NAN, Better::Less).bare().print();
    Ok(())
}

/// Measures the export of a session to a bundle and its import into an empty store, in milliseconds. Calls `after` with
/// the bundle of each round.
fn there_and_back(sizes: &Sizes, dir: &Path, name: &str, after: &mut dyn FnMut(&Path) -> Result<()>) -> Result<f64> {
    let store = Embedded::create(dir.join("from"))?;
    let mut session = session_of(&store, sizes.long);
    block_on(session.publish())?;
    let export = Export::of(session.id(), None);
    let (mut times, mut halves) = (Vec::new(), (Vec::new(), Vec::new()));
    for turn in 0..sizes.repeat {
        let at = dir.join(format!("round-{turn}"));
        let path = at.join(name);
        let into = Embedded::create(at.join("into"))?;
        let (took, done) = time(|| -> Result<u64> {
            let (out, done) = time(|| block_on(export.write(&store, &path, &mut |_| {})));
            done?;
            halves.0.push(millis(out));
            let actor = Actor::program("bench");
            let (back, done) = time(|| block_on(Import::default().read(&into, &actor, &path, &mut |_| {})));
            halves.1.push(millis(back));
            Ok(done?.records)
        });
        anyhow::ensure!(done? == sizes.long as u64, "not all records were imported");
        times.push(millis(took));
        after(&path)?;
        // Freeing the memory of this round lets the next one reuse it, so page faults are not measured.
        drop(into);
        std::fs::remove_dir_all(at)?;
    }
    eprintln!("    export {:.0} ms, import {:.0} ms", median(halves.0), median(halves.1));
    Ok(median(times))
}
