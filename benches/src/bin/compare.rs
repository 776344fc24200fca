//! Runs all programs of a benchmark: ours, and those we compare with, in a Python virtual environment. The first
//! argument is the area: `ledger`, `placement`, `loop` or `compose`.

#![allow(clippy::disallowed_methods, reason = "it runs the other binaries and the peers' script")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rath_bench::Row;
use rath_bench::baseline::Baseline;
use serde_json::Value;

/// The areas, each with our benchmark programs. The script of the compared programs has the name of the area.
const AREAS: &[(&str, &[&str])] = &[
    ("ledger", &["ledger", "ledger_memory", "ledger_erase", "search", "simulation"]),
    ("placement", &["placement", "placement_local"]),
    ("loop", &["agent_loop", "decode", "encode", "terminal"]),
    ("compose", &["compose"]),
];

/// Our rows, each with the row of the peers' script that does the same work. A `*` matches the part of our name that
/// differs between runs; the first match counts.
const SAME_WORK: &[(&str, &str)] = &[
    ("append 500 B in memory, at 10 records", "append_memory_us_at_10"),
    ("append 500 B in memory, at 100,000 records", "append_memory_us_at_100000"),
    ("durable append 500 B, one writer", "append_durable_ms"),
    ("durable append 500 B, 8 sessions at once", "append_durable_8_per_s"),
    ("disk for a 500 B record, one commit each, 1000 records", "disk_bytes_per_record"),
    ("fork in memory, of 100,000 records", "fork_memory_us"),
    ("fork durable, of 100,000 records (target: twice one of 10 records)", "fork_durable_ms"),
    ("1,000 forks of a 10,000-record session, one record each", "forks_1000_ms"),
    ("open a session of 100000 records, ready to append", "load_100000_ms"),
    ("read the context of 100000 records", "context_100000_ms"),
    ("export + import of 100000 records", "write_and_load_100000_ms"),
    ("list 10000 sessions", "list_10000_ms"),
    ("exec `true` through host, evidence recorded in memory (floor: bare fork+exec)", "exec_true_us"),
    ("write 1 KiB through the backend", "file_write_us"),
    ("read 1 KiB through the backend", "file_read_us"),
    ("one turn in memory, at turn 10", "turn_memory_us_at_10"),
    ("one turn in memory, at turn *", "turn_memory_us_at_10000"),
    ("one turn durable, at turn 10", "turn_durable_us_at_10"),
    ("one turn durable, at turn *", "turn_durable_us_at_1000"),
    ("disk for a turn with a 2 KiB answer and 4 KiB output, *", "disk_bytes_per_turn"),
    ("* sessions × 20 turns at once, durable", "sessions_1000_s"),
    ("* branches with an answer each, durable, joined", "branches_durable_s"),
    ("* branches with an answer each, 64 at once, in memory", "branches_memory_s"),
    ("decode 1 MB of recorded SSE: Messages", "decode_messages_ms"),
    ("decode 1 MB of recorded SSE: Chat", "decode_chat_ms"),
    ("decode 1 MB of recorded SSE: Responses", "decode_responses_ms"),
];

/// How many times better than LangGraph a row must be. For other rows, LangGraph is only shown.
const WANTED_OF_LANGGRAPH: &[(&str, f64)] = &[("* branches with an answer each, durable, joined", 10.0)];

/// How many times better than OpenRath or a vendor's client a row must be, in addition to its own target.
const WANTED: &[(&str, f64)] = &[
    ("1,000 forks*", 100.0),
    ("export + import of 100000 records", 5.0),
    ("*1 KiB through the backend", 5.0),
    ("one turn in memory, at turn 10", 4.0),
    ("* sessions × 20 turns at once, durable", 1.0),
    ("decode 1 MB of recorded SSE: *", 10.0),
];

/// Looks up a name in one of the tables.
fn of<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let fits = |pattern: &str| match pattern.split_once('*') {
        Some((before, after)) => name.starts_with(before) && name.ends_with(after),
        None => name == pattern,
    };
    table.iter().find(|(pattern, _)| fits(pattern)).map(|(_, found)| *found)
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let area = words.next().unwrap_or_default();
    let programs = of(AREAS, &area).with_context(|| format!("there is no benchmark {area:?}: {}", areas()))?;
    let flags: Vec<String> = words.collect();
    for flag in &flags {
        if !["--json", "--quick", "--no-peers", "--keep"].contains(&flag.as_str()) {
            bail!("unknown flag {flag}");
        }
    }
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    ensure!(
        !(has("--quick") && has("--keep")),
        "--keep cannot be used with --quick: results of quick runs are not comparable"
    );
    let quick = if has("--quick") { &["--quick"][..] } else { &[] };
    let beside = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    eprintln!("our side:");
    let mut ours = Vec::new();
    for program in programs {
        ours.push((*program, rows(&output(&beside.join(program), quick)?)?));
    }
    let peers = match has("--no-peers") {
        true => BTreeMap::new(),
        false => peers(&area, quick)?,
    };
    let beside_peers = |row: Row| {
        let same = of(SAME_WORK, &row.name).and_then(|peer| peers.get(peer));
        against(row, same.map(Vec::as_slice).unwrap_or_default())
    };
    let tables = ours.into_iter().map(|(program, rows)| (program, rows.into_iter().flat_map(beside_peers).collect()));
    let tables: Vec<(&str, Vec<Row>)> = tables.collect();
    match has("--json") {
        true => tables.iter().flat_map(|(_, table)| table).for_each(Row::print),
        false => {
            tables.iter().for_each(|(program, table)| show(program, table));
            say_what_is_missed(tables.iter().flat_map(|(_, table)| table));
        }
    }
    let rows: Vec<Row> = tables.into_iter().flat_map(|(_, table)| table).collect();
    let path = root().join("benches/baseline.json");
    let mut baseline = Baseline::read(&path)?;
    if !has("--quick") {
        report_worse(&baseline, &area, &rows);
    }
    if has("--keep") {
        baseline.keep(&area, &rows);
        baseline.write(&path)?;
        eprintln!("saved to benches/baseline.json");
    }
    Ok(())
}

/// Prints the rows that got worse since the baseline.
fn report_worse(baseline: &Baseline, area: &str, rows: &[Row]) {
    let Some(origin) = baseline.origin(area) else {
        eprintln!("\nthere is no baseline for {area}: save one with --keep");
        return;
    };
    let worse = baseline.worse(area, rows);
    eprintln!("\n{} rows are at least 20 % worse than the baseline ({origin})", worse.len());
    for row in worse {
        let (was, is) = (figure(Some(row.was)), figure(Some(row.is)));
        eprintln!("  {:.1} times worse: {}: {is} {}, was {was} {}", row.factor, row.name, row.unit, row.unit);
    }
}

fn areas() -> String {
    AREAS.iter().map(|(area, _)| *area).collect::<Vec<_>>().join(", ")
}

fn rows(lines: &str) -> Result<Vec<Row>> {
    lines.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// The project's directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stderr(Stdio::inherit());
    command
}

fn output(program: &Path, arguments: &[&str]) -> Result<String> {
    let out = command(program, arguments).output().with_context(|| format!("starting {}", program.display()))?;
    ensure!(out.status.success(), "{} failed", program.display());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Installs the peers once and runs their script. Returns the results by row, then by peer.
fn peers(area: &str, quick: &[&str]) -> Result<BTreeMap<String, Vec<(String, f64)>>> {
    let venv = root().join("target/peers");
    let python = venv.join("bin/python");
    let wanted = std::fs::read_to_string(root().join("benches/peers/requirements.txt"))?;
    if std::fs::read_to_string(venv.join("ready")).ok().as_ref() != Some(&wanted) {
        eprintln!("setting up the peers in target/peers (once)");
        output(Path::new("python3"), &["-m", "venv", "target/peers"])?;
        output(&python, &["-m", "pip", "install", "--quiet", "-r", "benches/peers/requirements.txt"])?;
        std::fs::write(venv.join("ready"), wanted)?;
    }
    eprintln!("running the peers (takes some minutes):");
    let lines = output(&python, &[&[format!("benches/peers/{area}.py").as_str()], quick].concat())?;
    let mut found: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line)?;
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        match row["value"].as_f64() {
            Some(value) => found.entry(text("row")).or_default().push((text("peer"), value)),
            None => eprintln!("  {} of {}: {}", text("row"), text("peer"), text("note")),
        }
    }
    Ok(found)
}

/// Returns the row once per peer. OpenRath's milliseconds per durable append are converted to a rate.
fn against(row: Row, peers: &[(String, f64)]) -> Vec<Row> {
    if peers.is_empty() {
        return vec![row];
    }
    let one = |(name, value): &(String, f64)| {
        let mut row = row.clone();
        let value = if row.is_rate() && row.name.ends_with("one writer") { 1000.0 / value } else { *value };
        row.peer = Some(value);
        row.peer_name = Some(name.clone());
        let table = if name == "langgraph" { WANTED_OF_LANGGRAPH } else { WANTED };
        if let Some(wanted) = of(table, &row.name) {
            let target = row.target.map_or(value / wanted, |own| own.min(value / wanted));
            row.target = Some(target);
            row.pass = row.ours.map(|ours| ours <= target);
        }
        row
    };
    peers.iter().map(one).collect()
}

/// Formats a result with about four digits.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn show(program: &str, table: &[Row]) {
    if table.is_empty() {
        println!("\n{program}: no results");
        return;
    }
    println!(
        "\n{program:<80} {:>5} {:>10} {:>10} {:>8} {:>10} {:>12} {:>9}  pass",
        "unit", "ours", "floor", "× floor", "target", "peer", "better ×"
    );
    for row in table {
        let times = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
        let (over_floor, better) = if row.is_rate() {
            (times(row.floor, row.ours), times(row.ours, row.peer))
        } else {
            (times(row.ours, row.floor), times(row.peer, row.ours))
        };
        println!(
            "{:<80} {:>5} {:>10} {:>10} {:>8} {:>10} {:>12} {:>9}  {} {}",
            row.name,
            row.unit,
            figure(row.ours),
            figure(row.floor),
            figure(over_floor),
            figure(row.target),
            figure(row.peer),
            figure(better),
            match row.pass {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            },
            row.peer_name.as_deref().unwrap_or("")
        );
    }
}

/// Prints the missed targets. They are not an error, because the machine may be busy.
fn say_what_is_missed<'a>(rows: impl Iterator<Item = &'a Row>) {
    let mut rows: Vec<&Row> = rows.filter(|row| row.pass.is_some()).collect();
    // A row is listed once for each of its peers.
    rows.dedup_by(|one, other| one.name == other.name && one.target == other.target);
    let missed: Vec<_> = rows.iter().filter(|row| row.pass == Some(false)).collect();
    println!("\n{} of {} targets reached", rows.len() - missed.len(), rows.len());
    for Row { name, unit, ours, target, .. } in missed {
        println!("  missed: {name}: {} {unit}, target {} {unit}", figure(*ours), figure(*target));
    }
}
