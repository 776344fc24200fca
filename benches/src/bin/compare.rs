//! Both sides of a benchmark in one run: ours, the peers' in a virtual environment, the machine's limits.
//! The first word is the area: `ledger` or `placement`.

#![allow(clippy::disallowed_methods, reason = "it runs the other binaries and the peers' script")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rath_bench::Row;
use serde_json::Value;

/// Our rows, the row of the peers' script that does the same work, and the unit it is in.
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
    ("list 10000 sessions", "list_10000_ms"),
    ("exec `true` through host, evidence recorded in memory (floor: bare fork+exec)", "exec_true_us"),
    ("write 1 KiB through the backend", "file_write_us"),
    ("read 1 KiB through the backend", "file_read_us"),
];

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let area = words.next().unwrap_or_default();
    ensure!(["ledger", "placement"].contains(&area.as_str()), "there is no benchmark {area:?}: ledger or placement");
    let flags: Vec<String> = words.collect();
    for flag in &flags {
        if !["--json", "--quick", "--no-peers"].contains(&flag.as_str()) {
            bail!("unknown flag {flag}");
        }
    }
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let quick = if has("--quick") { &["--quick"][..] } else { &[] };
    let beside = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    eprintln!("our side:");
    let mut ours = rows(&output(&beside.join(&area), quick)?)?;
    match area.as_str() {
        "ledger" => ours.extend(rows(&output(&beside.join("ledger_memory"), &[])?)?),
        _ => ours.extend(rows(&output(&beside.join("placement_local"), quick)?)?),
    }
    let peers = match has("--no-peers") {
        true => BTreeMap::new(),
        false => peers(&area, quick)?,
    };
    let mut table = Vec::new();
    for row in ours {
        let same = SAME_WORK.iter().find(|(name, _)| *name == row.name).and_then(|(_, peer)| peers.get(*peer));
        table.extend(against(row, same.map(Vec::as_slice).unwrap_or_default()));
    }
    match has("--json") {
        true => table.iter().for_each(Row::print),
        false => show(&table),
    }
    Ok(())
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

/// Sets up the peers once and runs their side. Figures by row, then by peer.
fn peers(area: &str, quick: &[&str]) -> Result<BTreeMap<String, Vec<(String, f64)>>> {
    let venv = root().join("target/peers");
    let python = venv.join("bin/python");
    if !venv.join("ready").exists() {
        eprintln!("setting up the peers in target/peers (once)");
        output(Path::new("python3"), &["-m", "venv", "target/peers"])?;
        output(&python, &["-m", "pip", "install", "--quiet", "-r", "benches/peers/requirements.txt"])?;
        std::fs::write(venv.join("ready"), "")?;
    }
    eprintln!("their side (some minutes):");
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

/// The row once per peer. OpenRath's milliseconds per durable append become a rate, as ours is.
fn against(row: Row, peers: &[(String, f64)]) -> Vec<Row> {
    if peers.is_empty() {
        return vec![row];
    }
    let one = |(name, value): &(String, f64)| {
        let mut row = row.clone();
        let value = if row.unit == "1/s" && row.name.ends_with("one writer") { 1000.0 / value } else { *value };
        row.peer = Some(value);
        row.peer_name = Some(name.clone());
        // How many times faster than OpenRath a row must be.
        let wanted = match row.name.as_str() {
            name if name.starts_with("1,000 forks") => Some(100.0),
            name if name.ends_with("1 KiB through the backend") => Some(5.0),
            _ => None,
        };
        if let Some(wanted) = wanted.filter(|_| name == "openrath") {
            row.target = Some(value / wanted);
            row.pass = row.ours.map(|ours| ours <= value / wanted);
        }
        row
    };
    peers.iter().map(one).collect()
}

fn show(table: &[Row]) {
    let figure = |value: Option<f64>| match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    };
    println!(
        "{:<80} {:>5} {:>10} {:>10} {:>10} {:>12} {:>9}  pass",
        "row", "unit", "ours", "floor", "target", "peer", "better ×"
    );
    for row in table {
        let ratio = match (row.ours, row.peer) {
            (Some(ours), Some(peer)) if row.unit == "1/s" => Some(ours / peer),
            (Some(ours), Some(peer)) => Some(peer / ours),
            _ => None,
        };
        println!(
            "{:<80} {:>5} {:>10} {:>10} {:>10} {:>12} {:>9}  {} {}",
            row.name,
            row.unit,
            figure(row.ours),
            figure(row.floor),
            figure(row.target),
            figure(row.peer),
            figure(ratio),
            match row.pass {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            },
            row.peer_name.as_deref().unwrap_or("")
        );
    }
}
