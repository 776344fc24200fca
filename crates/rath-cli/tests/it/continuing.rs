//! Runs that continue later: events, `resume --ready` and `resume --again`.

use serde_json::Value;

use rath::RunOptions;
use rath::prelude::*;
use rath::workflow::wait_for;

use crate::workspace::{TestProject, lines, text};

/// Two agents, and a wait for an event between them.
const WAITS: &str = r#"
title = "Release"
task = "Release it."

[workflow]
kind = "chain"
run = ["notes", "approval", "announce"]

[workflow.steps.approval]
kind = "wait_for"
event = "approved"

[agents.notes]
prompt = "You write release notes."
[agents.announce]
prompt = "You announce releases."

[[turn]]
agent = "notes"
text = "Notes."
[[turn]]
agent = "announce"
text = "Announced."
"#;

/// An agent that needs two turns and may take `TURNS`, after one that needs one.
const LIMITED: &str = r#"
task = "Look."

[workflow]
kind = "chain"
run = ["first", "second"]

[agents.first]
prompt = "You look."
[agents.second]
prompt = "You look twice."
tools = ["read"]
turns = TURNS

[[turn]]
agent = "first"
text = "Seen."
[[turn]]
agent = "second"
call = [{ tool = "read", arguments = { path = "notes" } }]
[[turn]]
agent = "second"
text = "Seen twice."
"#;

fn project(file: &str) -> TestProject {
    let project = TestProject::new();
    project.put("work/notes", "one\n");
    project.put("run.toml", file);
    project
}

/// The session of a run that was started from a file and waits or fails.
fn started(project: &TestProject, code: i32) -> String {
    project.fails(code, &["run", "-q", "-a", "run.toml", "--in", "work"]);
    let rows = lines(&project.ok(&["ls", "--json", "--all"]));
    let root = rows.iter().find(|row| row["origin"].is_null()).unwrap();
    root["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_event_is_sent_and_the_ready_run_continues() {
    let project = project(WAITS);
    let session = started(&project, 5);
    let status = project.json(&["status", &session]);
    assert_eq!(status["run"]["is"], "waiting");
    assert_eq!(status["run"]["waits"][0]["name"], "approved", "{status}");
    let shown = project.ok(&["status", &session]);
    assert!(shown.contains("event approved") && shown.contains("--event approved JSON"), "{shown}");
    assert_eq!(project.ok(&["resume", "--ready"]), "", "nothing is ready");

    let said = project.fails(2, &["send", &session, "--event", "approved", "{oops"]);
    assert!(said.contains("the value of the event is not JSON") && said.contains("help: "), "{said}");
    let inbox = project.json(&["inbox"]);
    assert_eq!((inbox.as_array().unwrap().len(), &inbox[0]["for"]), (1, &"event".into()), "nothing is posted: {inbox}");
    assert!(project.ok(&["inbox"]).contains("Release waits for event approved"));
    project.ok(&["send", &session, "--event", "approved", r#"{"by": "ada"}"#]);
    assert!(project.ok(&["inbox"]).contains(r#"event approved with the value {"by": "ada"}"#));
    let shown = project.ok(&["status", &session]);
    assert!(shown.contains("queued") && shown.contains("what it waited for has come"), "{shown}");

    let out = project.run(&["resume", "--ready"]);
    let (said, printed) = (text(&out.stderr), text(&out.stdout));
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(printed.contains("Release: done (event approved has arrived)"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "one line each: {printed}");
    assert!(project.ok(&["show", &session]).contains("Announced."));
    assert!(project.json(&["inbox"]).as_array().unwrap().is_empty(), "the event is consumed");
    project.sound();
}

#[test]
fn ready_runs_are_reported_as_json_and_by_the_exit_code() {
    let project = project(WAITS);
    let first = started(&project, 5);
    project.put("run.toml", WAITS.replace("approval\", \"announce", "approval\", \"approval 2"));
    project.put(
        "run.toml",
        project.read("run.toml") + "\n[workflow.steps.\"approval 2\"]\nkind = \"wait_for\"\nevent = \"second\"\n",
    );
    project.fails(5, &["run", "-q", "-a", "run.toml", "--in", "work"]);
    let rows = lines(&project.ok(&["ls", "--json", "--all"]));
    let roots: Vec<&str> =
        rows.iter().filter(|row| row["origin"].is_null()).map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(roots.len(), 2);
    for root in &roots {
        project.ok(&["send", root, "--event", "approved"]);
    }
    let out = project.run(&["resume", "--ready", "--json"]);
    assert_eq!(out.status.code(), Some(5), "one of them waits again");
    let mut reports: Vec<Value> = text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    reports.sort_by_key(|report| report["session"] != first.as_str());
    let outcomes: Vec<&str> = reports.iter().map(|report| report["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "waiting"]);
    assert_eq!(reports[0]["schema"], "rath.resumed/1");
    assert_eq!(reports[0]["because"][0]["reason"], "event_queued");
    project.sound();
}

#[test]
fn a_run_of_a_program_names_the_program_to_start() {
    let project = TestProject::new();
    let store = Embedded::open(project.path(".rath")).unwrap();
    let options = RunOptions::from(Actor::program("ci")).workflow("review", "2");
    let input = async |session: &mut Session| session.user("Review it.").map(drop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = runtime.block_on(store.run("change 7", options, &wait_for("approved"), input));
    let session = run.unwrap_err().sessions()[0].id().to_string();
    drop(store);
    let said = project.fails(1, &["resume", &session]);
    assert!(said.contains("workflow review, version 2") && said.contains("Worker registers review"), "{said}");
    project.ok(&["send", &session, "--event", "approved", "true"]);
    let out = project.run(&["resume", "--ready"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), String::new()), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("of programs: 1 run"), "{}", text(&out.stderr));
}

#[test]
fn a_step_over_its_budget_runs_again_with_a_larger_one() {
    let project = project(&LIMITED.replace("TURNS", "1"));
    let session = started(&project, 1);
    let said = project.fails(1, &["resume", &session]);
    assert!(said.contains("--again` runs its failed steps again"), "{said}");
    project.put("larger.toml", LIMITED.replace("TURNS", "5"));
    let done = project.json(&["resume", &session, "--again", "-a", "larger.toml"]);
    assert_eq!((&done["outcome"], &done["text"]), (&"done".into(), &"Seen twice.".into()), "{done}");
    let continued = done["session"].as_str().unwrap();
    assert_ne!(continued, session);
    let requests = lines(&project.ok(&["log", "--json", &session]));
    let asked = |agent: &str| {
        let entered = |record: &&Value| record["header"]["kind"] == "step_entered" && record["body"]["name"] == agent;
        requests.iter().filter(entered).count()
    };
    assert_eq!((asked("first"), asked("second")), (1, 1), "the old session keeps its records");
    let again = lines(&project.ok(&["log", "--json", continued]));
    assert!(again.iter().all(|record| record["body"]["name"] != "first"), "a finished step does not run again");
    let said = project.fails(1, &["resume", continued, "--again"]);
    assert!(said.contains("no step of the run") && said.contains("help: "), "{said}");
    project.sound();
}
