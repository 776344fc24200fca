//! Background commands of an agent: they are killed with their process, and their changes are recorded.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{TestProject, command, lines, text};

fn project(turns: &str) -> TestProject {
    let project = TestProject::new();
    project.put("run.toml", format!("task = \"Go.\"\n[agents.a]\ntools = [\"coding\"]\n{turns}"));
    project.put("work/notes", "one\n");
    project
}

/// Every record of a kind, in order.
fn records(project: &TestProject, kind: &str) -> Vec<Value> {
    let log = text(&project.run(&["log", "@", "--json"]).stdout);
    lines(&log).into_iter().filter(|record| record["header"]["kind"] == kind).collect()
}

#[test]
fn a_background_command_of_a_killed_process_is_lost_and_its_name_is_not_reused() {
    if !isolates() {
        return;
    }
    let project = project(
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
    let mut child = command(project.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    for _ in 0..600 {
        if records(&project, "tool_started").len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    child.wait().unwrap();
    // /tmp survives, so the repeated call does not sleep.
    project.ok(&["resume", "-q"]);
    let seen = project.json(&["show", "@"])["context"].to_string();
    for wanted in [
        "on\\n[bg-1 was stopped because the process that started it ended; start it again if you need it]",
        "Running as bg-2.",
        "bg-1 was stopped because the process that started it ended; start it again",
        "bg-2 has ended",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
}

#[test]
fn changes_of_a_background_command_are_recorded_as_its_own() {
    if !isolates() {
        return;
    }
    let project = project(
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
    let out = project.run(&["run", "-a", "run.toml", "--in", "work"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(!text(&out.stderr).contains("not in the session yet"), "{}", text(&out.stderr));
    for started in records(&project, "tool_started") {
        assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
    }
    let beside: Vec<Value> = records(&project, "tool_finished")
        .into_iter()
        .filter(|record| record["body"]["call"].as_str().is_some_and(|call| call.starts_with("beside-")))
        .collect();
    assert!(!beside.is_empty());
    assert!(beside.iter().all(|record| record["body"]["remarks"][0] == "changed while bg-1 ran in the background"));
    let changed = text(&project.run(&["diff", "@", "--stat"]).stdout);
    assert!(changed.contains("early") && changed.contains("late"), "{changed}");
    project.ok(&["apply", "@"]);
    assert_eq!(project.read("work/late"), "x\n");
    project.sound();
}

/// The recorded changes of a call.
fn changed(record: &Value) -> Vec<&str> {
    let changes = record["body"]["changed"]["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    changes.iter().filter_map(|change| change["path"].as_str()).collect()
}

/// The record of changes between calls, and the records of the calls.
fn apart(project: &TestProject) -> (Vec<Value>, Vec<Value>) {
    let is_beside = |record: &Value| record["body"]["call"].as_str().is_some_and(|call| call.starts_with("beside-"));
    records(project, "tool_finished").into_iter().partition(is_beside)
}

/// Starts the run, and kills it shortly after this many calls have started or finished.
fn killed_after(project: &TestProject, kind: &str, calls: usize, moment: u64) {
    let mut child = command(project.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    let is_call = |record: &Value| record["body"]["call"].as_str().is_some_and(|call| !call.starts_with("beside-"));
    for _ in 0..600 {
        if records(project, kind).iter().filter(|record| is_call(record)).count() == calls {
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
fn a_background_command_that_ends_between_calls_is_not_attributed_to_the_next_call() {
    if !isolates() {
        return;
    }
    let project = project(&BETWEEN.replace("/tmp/HANG", "mine"));
    project.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]);
    let (beside, calls) = apart(&project);
    assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
    assert_eq!(beside[0]["body"]["remarks"][0], "changed while bg-1 ran in the background");
    assert_eq!(changed(&calls[1]), ["mine"], "{calls:?}");
    project.sound();
}

#[test]
fn a_finished_background_command_survives_the_repetition_of_a_later_call() {
    if !isolates() {
        return;
    }
    let project = project(&BETWEEN.replace("/tmp/HANG", "/tmp/again"));
    killed_after(&project, "tool_started", 2, 300);
    project.ok(&["resume", "-q"]);
    for restored in records(&project, "restored") {
        assert_eq!(changed(&restored), ["mine"], "{restored}");
    }
    let stat = text(&project.run(&["diff", "@", "--stat"]).stdout);
    assert!(stat.contains("frombg") && stat.contains("mine"), "{stat}");
    project.sound();
}

#[test]
fn changes_of_a_background_command_of_a_killed_process_are_recorded_as_its_own() {
    if !isolates() {
        return;
    }
    for first in [
        r#"{ tool = "shell", arguments = { command = ": > mine" } }"#,
        r#"{ tool = "read", arguments = { path = "notes" } }"#,
    ] {
        let project = project(&format!(
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
        killed_after(&project, "tool_finished", 1, 1000);
        project.ok(&["resume", "-q"]);
        for started in records(&project, "tool_started") {
            assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
        }
        let (beside, _) = apart(&project);
        assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
        let stat = text(&project.run(&["diff", "@", "--stat"]).stdout);
        assert!(stat.contains("frombg") && stat.contains("mine"), "{stat}");
        project.sound();
    }
}

/// The supervisor process of the only sandbox below a directory.
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
fn a_background_command_of_a_lost_sandbox_is_lost_and_its_name_is_not_reused() {
    if !isolates() {
        return;
    }
    let project = project(
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
    let mut child = command(project.root(), &["run", "-a", "run.toml", "--in", "work", "-q"]).spawn().unwrap();
    for _ in 0..600 {
        if records(&project, "tool_finished").len() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(1000));
    let anchor = anchor_below(project.root()).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &anchor]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let seen = project.json(&["show", "@"])["context"].to_string();
    for wanted in [
        "on\\n[bg-1 was stopped because its sandbox was lost; start it again if you need it]",
        "Running as bg-2.",
        "bg-1 was stopped because its sandbox was lost; start it again",
        "bg-2 has ended",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    assert_eq!(records(&project, "sandbox_lost").len(), 1);
    for started in records(&project, "tool_started") {
        assert!(started["body"]["outside"].is_null(), "nobody else was there: {started}");
    }
    let (beside, _) = apart(&project);
    assert_eq!(beside.iter().map(changed).collect::<Vec<_>>(), [["frombg"]], "{beside:?}");
    project.sound();
}
