//! Commands that run on beside an agent: killed with their process, and seen in the files.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{Bench, command, text};

fn bench(turns: &str) -> Bench {
    let bench = Bench::new();
    bench.put("run.toml", format!("task = \"Go.\"\n[agents.a]\ntools = [\"coding\"]\n{turns}"));
    bench.put("work/notes", "one\n");
    bench
}

/// Every record of a kind, in order.
fn records(bench: &Bench, kind: &str) -> Vec<Value> {
    let log = text(&bench.run(&["log", "@", "--json"]).stdout);
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|record| record["header"]["kind"] == kind).collect()
}

#[test]
fn what_ran_when_its_process_was_killed_is_gone_and_its_name_is_not_given_again() {
    if !isolates() {
        return;
    }
    let bench = bench(
        r#"
[[turn]]
call = [{ tool = "shell", arguments = { command = "echo first; sleep 100", background = true } }]
[[turn]]
call = [{ tool = "shell", arguments = { command = "test -e /tmp/again || { : > /tmp/again; sleep 60; }; echo on" } }]
[[turn]]
call = [{ tool = "shell", arguments = { command = "echo second; sleep 100", background = true } }]
[[turn]]
call = [{ tool = "shell", arguments = { poll = "bg-1" } }]
[[turn]]
call = [{ tool = "shell", arguments = { kill = "bg-2" } }]
[[turn]]
text = "End."
"#,
    );
    let mut child = command(bench.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    for _ in 0..600 {
        if records(&bench, "tool_started").len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    child.wait().unwrap();
    // What is in /tmp stays: the call that is made again does not sleep.
    bench.ok(&["resume", "-q"]);
    let seen = bench.json(&["show", "@"])["context"].to_string();
    for wanted in [
        "on\\n[bg-1 is gone with the process that started it; start it again if you need it]",
        "It runs as bg-2.",
        "bg-1 is gone with the process that started it; start it again",
        "bg-2 has ended",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
}

#[test]
fn what_it_changes_is_its_own_whenever_that_is() {
    if !isolates() {
        return;
    }
    let bench = bench(
        r#"
[[turn]]
call = [{ tool = "shell", arguments = { command = "until test -e go; do sleep 0.02; done; sleep 0.5; echo x > early; until test -e on; do sleep 0.02; done; sleep 0.5; echo x > late; sleep 100", background = true } }]
[[turn]]
call = [{ tool = "shell", arguments = { command = ": > go" } }]
[[turn]]
delay_ms = 2000
call = [{ tool = "shell", arguments = { command = ": > on" } }]
[[turn]]
delay_ms = 2000
text = "End."
"#,
    );
    let out = bench.run(&["run", "-a", "run.toml", "--in", "work"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(!text(&out.stderr).contains("not in the session yet"), "{}", text(&out.stderr));
    for started in records(&bench, "tool_started") {
        assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
    }
    let beside: Vec<Value> = records(&bench, "tool_finished")
        .into_iter()
        .filter(|record| record["body"]["call"].as_str().is_some_and(|call| call.starts_with("beside-")))
        .collect();
    assert!(!beside.is_empty());
    assert!(beside.iter().all(|record| record["body"]["remarks"][0] == "changed while bg-1 ran in the background"));
    let changed = text(&bench.run(&["diff", "@", "--stat"]).stdout);
    assert!(changed.contains("early") && changed.contains("late"), "{changed}");
    bench.ok(&["apply", "@"]);
    assert_eq!(bench.read("work/late"), "x\n");
    bench.sound();
}

/// What a call is on record to have changed.
fn changed(record: &Value) -> Vec<&str> {
    let changes = record["body"]["changed"]["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    changes.iter().filter_map(|change| change["path"].as_str()).collect()
}

/// The record of what changed beside calls, and those of the calls.
fn apart(bench: &Bench) -> (Vec<Value>, Vec<Value>) {
    let is_beside = |record: &Value| record["body"]["call"].as_str().is_some_and(|call| call.starts_with("beside-"));
    records(bench, "tool_finished").into_iter().partition(is_beside)
}

/// Starts the run, and kills it a moment after so many calls have begun or ended.
fn killed_after(bench: &Bench, kind: &str, calls: usize, moment: u64) {
    let mut child = command(bench.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    let is_call = |record: &Value| record["body"]["call"].as_str().is_some_and(|call| !call.starts_with("beside-"));
    for _ in 0..600 {
        if records(bench, kind).iter().filter(|record| is_call(record)).count() == calls {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(moment));
    child.kill().unwrap();
    child.wait().unwrap();
}

const BETWEEN: &str = r#"
[[turn]]
call = [{ tool = "shell", arguments = { command = "sleep 0.3; echo x > frombg", background = true } }]
[[turn]]
delay_ms = 1500
call = [{ tool = "shell", arguments = { command = "echo y > mine; test -e /tmp/HANG || { : > /tmp/again; sleep 60; }" } }]
[[turn]]
text = "End."
"#;

#[test]
fn what_ended_between_two_calls_is_not_taken_for_the_second_one() {
    if !isolates() {
        return;
    }
    let bench = bench(&BETWEEN.replace("/tmp/HANG", "mine"));
    bench.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]);
    let (beside, calls) = apart(&bench);
    assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
    assert_eq!(beside[0]["body"]["remarks"][0], "changed while bg-1 ran in the background");
    assert_eq!(changed(&calls[1]), ["mine"], "{calls:?}");
    bench.sound();
}

#[test]
fn what_ended_before_a_call_stays_when_that_call_is_made_again() {
    if !isolates() {
        return;
    }
    let bench = bench(&BETWEEN.replace("/tmp/HANG", "/tmp/again"));
    killed_after(&bench, "tool_started", 2, 300);
    bench.ok(&["resume", "-q"]);
    for restored in records(&bench, "restored") {
        assert_eq!(changed(&restored), ["mine"], "{restored}");
    }
    let stat = text(&bench.run(&["diff", "@", "--stat"]).stdout);
    assert!(stat.contains("frombg") && stat.contains("mine"), "{stat}");
    bench.sound();
}

#[test]
fn what_a_killed_process_left_in_the_background_changed_is_its_own() {
    if !isolates() {
        return;
    }
    for first in [
        r#"{ tool = "shell", arguments = { command = ": > mine" } }"#,
        r#"{ tool = "read", arguments = { path = "notes" } }"#,
    ] {
        let bench = bench(&format!(
            r#"
[[turn]]
call = [{{ tool = "shell", arguments = {{ command = "sleep 0.3; echo x > frombg; sleep 100", background = true }} }}]
[[turn]]
delay_ms = 2500
call = [{first}]
[[turn]]
call = [{{ tool = "shell", arguments = {{ command = ": > mine" }} }}]
[[turn]]
text = "End."
"#
        ));
        killed_after(&bench, "tool_finished", 1, 1000);
        bench.ok(&["resume", "-q"]);
        for started in records(&bench, "tool_started") {
            assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
        }
        let (beside, _) = apart(&bench);
        assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
        let stat = text(&bench.run(&["diff", "@", "--stat"]).stdout);
        assert!(stat.contains("frombg") && stat.contains("mine"), "{stat}");
        bench.sound();
    }
}

/// The process that keeps the only sandbox below a directory.
fn anchor_below(directory: &Path) -> Option<String> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().find_map(|entry| {
        match entry.file_name() == "anchor.lock" {
            true => std::fs::read_to_string(entry.path()).ok().filter(|id| !id.is_empty()),
            false if entry.file_type().is_ok_and(|kind| kind.is_dir()) => anchor_below(&entry.path()),
            false => None,
        }
    })
}

#[test]
fn what_ran_when_its_sandbox_was_lost_is_gone_and_its_name_is_not_given_again() {
    if !isolates() {
        return;
    }
    let bench = bench(
        r#"
[[turn]]
call = [{ tool = "shell", arguments = { command = "sleep 0.3; echo x > frombg; sleep 100", background = true } }]
[[turn]]
delay_ms = 2000
call = [{ tool = "shell", arguments = { command = "echo on" } }]
[[turn]]
call = [{ tool = "shell", arguments = { command = "sleep 100", background = true } }]
[[turn]]
call = [{ tool = "shell", arguments = { poll = "bg-1" } }]
[[turn]]
call = [{ tool = "shell", arguments = { kill = "bg-2" } }]
[[turn]]
text = "End."
"#,
    );
    let mut child = command(bench.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    for _ in 0..600 {
        if records(&bench, "tool_finished").len() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(1000));
    let anchor = anchor_below(bench.root()).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &anchor]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let seen = bench.json(&["show", "@"])["context"].to_string();
    for wanted in [
        "on\\n[bg-1 is gone with the sandbox that it ran in; start it again if you need it]",
        "It runs as bg-2.",
        "bg-1 is gone with the sandbox that it ran in; start it again",
        "bg-2 has ended",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    assert_eq!(records(&bench, "sandbox_lost").len(), 1);
    for started in records(&bench, "tool_started") {
        assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
    }
    let (beside, _) = apart(&bench);
    assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
    bench.sound();
}
