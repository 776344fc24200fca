//! Sessions that are idle or locked by another process: messages to them, and what `rath tail` reports.

use std::fs::File;

use serde_json::Value;

use crate::runs::{ASKING, ended, project, question, root, short, start, until, waits};
use crate::workspace::{TestProject, command, lines, text};

/// An agent with one answer.
const SAYING: &str =
    "task = \"Say it.\"\n[agents.sayer]\nprompt = \"You say.\"\n[[turn]]\notherwise = true\ntext = \"Said.\"\n";

/// An agent that has a model of its own.
const AGENT: &str = "---\nname: asker\ntools: [ask_human]\n---\nYou ask.\n";

/// Both output streams of a command that succeeds.
fn says(project: &TestProject, arguments: &[&str]) -> (String, String) {
    let out = project.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

fn records(project: &TestProject, session: &str) -> usize {
    lines(&project.ok(&["log", "--json", session])).len()
}

#[test]
fn a_queued_message_is_reported_as_json() {
    let project = project(ASKING);
    let mut child = start(&project, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&project).is_some()));
    let session = root(&project).unwrap();
    for words in [&["say", &session, "Hello?"][..], &["cancel", &session, "--why", "enough"]] {
        let left = project.json(words);
        assert_eq!(
            (&left["session"], left["holder"]["process"].as_u64()),
            (&session.as_str().into(), Some(child.id().into()))
        );
        assert!(left["left"].is_string(), "{left}");
    }
    assert_eq!(ended(child).0, Some(1));
    project.sound();
}

#[test]
fn a_message_to_a_finished_run_is_recorded_and_not_answered() {
    let project = project(SAYING);
    project.ok(&["run", "-a", "run.toml", "-q"]);
    let session = root(&project).unwrap();
    let (added, said) = says(&project, &["say", &session, "And then?"]);
    assert_eq!(added, format!("{}@{}\n", short(&session), records(&project, &session) - 1));
    let help = format!("`rath run -c {} TASK`", short(&session));
    assert!(said.contains("the run is done; no agent answers now") && said.contains(&help), "{said}");
    let again = project.json(&["say", &session, "Well?"]);
    assert_eq!((&again["run"], &again["seq"]), (&"done".into(), &(records(&project, &session) - 1).into()));
    assert!(again["help"].as_str().unwrap().contains(&help), "{again}");
    // The advice works.
    assert_eq!(project.ok(&["run", "--continue", &session, "-q", "Now."]), "Said.");
    let shown = project.json(&["show", &session])["context"].to_string();
    assert!(shown.contains("And then?") && shown.contains("Well?"), "{shown}");
    // A session without a run has no agent.
    let plain = project.ok(&["new", "plain"]);
    assert!(says(&project, &["say", &plain, "A note."]).1.contains("has no agent that answers"));
}

#[test]
fn a_message_to_a_waiting_run_is_queued() {
    let project = project(ASKING);
    project.fails(5, &["run", "-a", "run.toml", "-q"]);
    let session = root(&project).unwrap();
    let (_, said) = says(&project, &["say", &session, "Hurry."]);
    assert!(said.contains("queued until the session is resumed") && said.contains("rath inbox"), "{said}");
    let left = project.json(&["say", &session, "Please."]);
    assert_eq!((&left["run"], &left["holder"]), (&"waiting".into(), &Value::Null));
}

#[test]
fn cancelling_an_idle_session_reports_that_nothing_is_open() {
    let project = project(SAYING);
    project.ok(&["run", "-a", "run.toml", "-q"]);
    let session = root(&project).unwrap();
    let before = records(&project, &session);
    let (added, said) = says(&project, &["cancel", &session]);
    assert_eq!(added, "", "no record was added");
    assert!(said.contains(&format!("nothing to cancel in session {}: the run is done", short(&session))), "{said}");
    assert!(said.contains("rath run -c"), "{said}");
    let idle = project.json(&["cancel", &session]);
    assert_eq!((&idle["stopped"], &idle["run"], &idle["seq"]), (&false.into(), &"done".into(), &(before - 1).into()));
    assert_eq!(records(&project, &session), before);
    let plain = project.ok(&["new", "plain"]);
    let (_, said) = says(&project, &["cancel", &plain]);
    assert!(
        said.contains("no process works on it") && said.contains(&format!("`rath session close {plain}`")),
        "{said}"
    );
    project.ok(&["close", &plain]);
}

#[test]
fn a_message_is_delivered_once() {
    let project = project(ASKING);
    let mut child = start(&project, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&project).is_some()));
    let session = root(&project).unwrap();
    project.ok(&["cancel", &session, "--why", "enough"]);
    let (_, _, mut said) = ended(child);
    for look in ["show", "log", "steps"] {
        said += &project.ok(&[look, &session]);
    }
    said += &project.fails(1, &["resume", &session, "-q"]);
    assert!(said.contains("cancelled: requested by person ada: enough"), "{said}");
    assert!(!said.contains("cancelled: cancelled"), "{said}");
    // The same for a failed run.
    project.put("fails.toml", SAYING.replace("text = \"Said.\"", "fails = [{ why = \"broken\", retry = false }]"));
    project.fails(1, &["run", "-a", "fails.toml", "-q"]);
    let said = project.fails(1, &["resume", "@", "-q"]);
    assert!(said.contains("error: model scripted did not answer: broken"), "{said}");
}

#[test]
fn a_run_reports_the_error_code_of_its_workspace() {
    let project = project(SAYING);
    for (place, code) in [(["--on", "nope"], "unknown-backend"), (["--in", "nope"], "no-directory")] {
        assert_eq!(project.code(&[&["new", "x"][..], &place].concat()), code);
        assert_eq!(project.code(&[&["run", "-a", "run.toml"][..], &place].concat()), code);
    }
}

/// Starts a run that waits for its model, and kills it. Returns its session.
fn killed(project: &TestProject) -> String {
    project.put("agent.md", AGENT);
    project.put("script.toml", "[[turn]]\ndelay_ms = 600000\ntext = \"Late.\"\n");
    let arguments =
        ["run", "-a", "agent.md", "-m", "scripted/script.toml", "--on", "host", "--in", "work", "-q", "Go."];
    let mut child = start(project, &arguments);
    let asks = || root(project).is_some_and(|session| project.last(&session, "model_requested").is_some());
    assert!(until(&mut child, asks));
    child.kill().unwrap();
    child.wait().unwrap();
    root(project).unwrap()
}

#[test]
fn tail_reports_a_killed_run_and_follows_its_resumption() {
    let project = project(SAYING);
    let session = killed(&project);
    let told = format!("no process works on session {}: its process ended before the work was done", short(&session));
    // A script lets tail exit.
    let said = project.fails(1, &["tail", "--while-held", &session]);
    assert!(said.contains(&told) && said.contains(&format!("`rath resume {}`", short(&session))), "{said}");
    // Another process may resume the run.
    let heard = project.path("heard");
    let mut watching =
        command(project.root(), &["tail", &session]).stderr(File::create(&heard).unwrap()).spawn().unwrap();
    assert!(until(&mut watching, || project.read("heard").contains(&told)));
    assert!(watching.try_wait().unwrap().is_none(), "it watches on");
    project.put("script.toml", "[[turn]]\ntext = \"Done.\"\n");
    assert_eq!(project.ok(&["resume", &session, "-q"]), "Done.");
    let (code, seen, _) = ended(watching);
    assert_eq!(code, Some(0));
    assert!(seen.trim_end().lines().last().unwrap().starts_with("◂ run done"), "{seen}");
    assert_eq!(project.read("heard").matches("no process works on").count(), 1);
}

#[test]
fn tail_reports_what_a_run_waits_for() {
    let project = project(ASKING);
    project.fails(5, &["run", "-a", "run.toml", "-q"]);
    let said = project.fails(5, &["tail", "--while-held"]);
    assert!(said.contains("it waits for an answer") && said.contains("rath inbox"), "{said}");
}

#[test]
fn a_scripted_run_is_resumed_from_any_directory() {
    let project = project(SAYING);
    project.put("agent.md", AGENT);
    let script = "[[turn]]\ncall = [{ tool = \"ask_human\", arguments = { question = \"Go on?\" } }]\n[[turn]]\ntext = \"Done.\"\n";
    project.put("work/script.toml", script);
    let begin =
        ["--store", "../.rath", "run", "-a", "../agent.md", "-m", "scripted/script.toml", "--on", "host", "-q", "Ask."];
    let begun = command(&project.path("work"), &begin).output().unwrap();
    assert_eq!(begun.status.code(), Some(5), "{}", text(&begun.stderr));
    let session = root(&project).unwrap();
    project.ok(&["answer", &session, "yes"]);
    let gone = project.path("work/gone.toml");
    std::fs::rename(project.path("work/script.toml"), &gone).unwrap();
    let said = project.fails(1, &["resume", &session, "-q"]);
    let wanted = project.path("work").canonicalize().unwrap().join("script.toml");
    assert!(said.contains(&format!("cannot read script {}", wanted.display())), "{said}");
    std::fs::rename(gone, project.path("work/script.toml")).unwrap();
    assert_eq!(project.ok(&["resume", &session, "-q"]), "Done.");
}

/// An irreversible call that is interrupted the first time.
const PAYING: &str = "task = \"Pay.\"\n[agents.payer]\nprompt = \"You pay.\"\ntools = [\"shell\"]\n\
    [[turn]]\nwhen = \"Pay.\"\ncall = [{ tool = \"shell\", arguments = { command = \"PAY\" } }]\n\
    [[turn]]\notherwise = true\ntext = \"Paid.\"\n";

#[test]
fn a_fork_inside_a_call_asks_whether_the_call_happened() {
    let project = project(PAYING);
    let paid = project.path("paid");
    let pay = format!("echo paid >> {0}; [ $(wc -l < {0}) -gt 1 ] || sleep 600", paid.display());
    project.put("run.toml", PAYING.replace("PAY", &pay));
    let mut child = start(&project, &["run", "-a", "run.toml", "--on", "host", "--in", "work", "-y", "-q"]);
    assert!(until(&mut child, || paid.exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    let session = root(&project).unwrap();
    let log = lines(&project.ok(&["log", "--json", &session]));
    let begun = log.iter().find(|record| record["header"]["kind"] == "tool_started").unwrap();
    let fork = project.ok(&["fork", &format!("{session}@{}", begun["header"]["seq"]), "another way"]).trim().to_owned();
    for (answer, payments) in [("it was paid, receipt 17", 1), ("no", 2)] {
        let fork = project.ok(&["fork", &fork, answer]).trim().to_owned();
        // The fork is resumed like the original, and does not repeat the call without asking.
        project.fails(5, &["resume", &fork, "-q"]);
        let asked = question(&project);
        assert!(project.ok(&["inbox"]).contains("Did it happen?"));
        assert_eq!(project.read("paid").lines().count(), 1);
        project.ok(&["answer", &asked, answer]);
        assert_eq!(project.ok(&["resume", &fork, "-q"]), "Paid.");
        assert_eq!(project.read("paid").lines().count(), payments);
        let context = project.json(&["show", &fork])["context"].clone();
        assert!(project.last(&fork, "tool_result").is_some(), "the model is shown the call with its result: {context}");
        if payments == 1 {
            assert!(context.to_string().contains("receipt 17"), "{context}");
        }
    }
    project.sound();
}
