//! Runs from the command line: questions, answers, kills, resumption, cancellation, changed agents.

use std::process::{Child, Output};
use std::time::Duration;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{TestProject, command, lines, text};

/// Sub-agents, parallel calls, a call that needs approval, a question.
const EVERYTHING: &str = r#"
title = "Everything"
task = "Do everything."
start = "lead"

[agents.lead]
prompt = "You lead."
tools = ["writer", "checker", "shell", "read", "ask_human"]
ask = ["shell"]

[agents.writer]
prompt = "You write."
description = "Writes."
tools = ["coding"]

[agents.checker]
prompt = "You check."
description = "Checks."
tools = ["reading"]
deny = { ls = "it is not for you" }

[[turn]]
agent = "lead"
text = "All at once."
call = [
    { tool = "writer", arguments = { task = "Write a." } },
    { tool = "checker", arguments = { task = "Check notes." } },
    { tool = "read", arguments = { path = "notes" } },
]
usage = { input_tokens = 100, output_tokens = 20 }
[[turn]]
agent = "lead"
call = [{ tool = "shell", arguments = { command = "echo three >> notes; cat notes" } }]
[[turn]]
agent = "lead"
call = [{ tool = "ask_human", arguments = { question = "Which name?" } }]
[[turn]]
agent = "lead"
text = "All in order."

[[turn]]
agent = "writer"
call = [
    { tool = "write", arguments = { path = "a", content = "a\n" } },
    { tool = "shell", arguments = { command = "cat a >> log" } },
]
[[turn]]
agent = "writer"
text = "Written."

[[turn]]
agent = "checker"
call = [{ tool = "read", arguments = { path = "notes" } }, { tool = "ls" }]
[[turn]]
agent = "checker"
text = "It is fine."
"#;

/// An agent with a question and one answer.
pub(crate) const ASKING: &str = r#"
task = "Ask."
[agents.asker]
prompt = "You ask."
tools = ["ask_human", "read"]
[[turn]]
call = [{ tool = "ask_human", arguments = { question = "Go on?" } }]
[[turn]]
text = "So be it."
"#;

pub(crate) fn project(file: &str) -> TestProject {
    let project = TestProject::new();
    project.put("work/notes", "one\ntwo\n");
    project.put("run.toml", file);
    project
}

/// The session that is not a fork.
pub(crate) fn root(project: &TestProject) -> Option<String> {
    sessions(project).into_iter().find(|row| row["origin"].is_null()).map(|row| row["id"].as_str().unwrap().to_owned())
}

fn sessions(project: &TestProject) -> Vec<Value> {
    lines(&project.ok(&["ls", "--json", "--all"]))
}

/// Every record of every session.
fn records(project: &TestProject) -> Vec<Value> {
    let all = sessions(project);
    let of = |row: &Value| lines(&project.ok(&["log", "--json", row["id"].as_str().unwrap()]));
    all.iter().flat_map(of).collect()
}

/// The final context of the model, without values that differ from run to run.
fn conversation(project: &TestProject, session: &str) -> Vec<Value> {
    let shown = project.json(&["show", session]);
    shown["context"].as_array().unwrap().iter().map(|message| message["said"].clone()).map(without_ids).collect()
}

fn without_ids(mut said: Value) -> Value {
    if let Some(fields) = said.as_object_mut() {
        fields.remove("finished");
    }
    said
}

/// Waits for a condition, or until the process has ended. Returns the condition.
pub(crate) fn until(child: &mut Child, mut is_so: impl FnMut() -> bool) -> bool {
    for _ in 0..3000 {
        if is_so() {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return is_so();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come to that");
}

pub(crate) fn start(project: &TestProject, arguments: &[&str]) -> Child {
    command(project.root(), arguments).spawn().unwrap()
}

pub(crate) fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

pub(crate) fn waits(project: &TestProject) -> Option<String> {
    let asked = lines(&project.ok(&["inbox", "--json"]));
    asked.iter().find(|line| line.get("asked").is_some()).map(|line| line["session"].as_str().unwrap().to_owned())
}

/// The record of the first question.
pub(crate) fn question(project: &TestProject) -> String {
    let asked = lines(&project.ok(&["inbox", "--json"]));
    let ask = asked.iter().find(|line| line.get("asked").is_some()).unwrap();
    format!("{}@{}", ask["session"].as_str().unwrap(), ask["at"]["seq"])
}

/// Setting the workspace publishes the session. The task must be published with it, or a killed run has no task.
#[test]
fn the_task_is_recorded_before_the_workspace() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("run.toml", "task = \"Go.\"\n[agents.a]\ntools = [\"coding\"]\n[[turn]]\ntext = \"Done.\"\n");
    project.put("work/notes", "one\n");
    project.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]);
    let records = lines(&project.ok(&["log", "@", "--json"]));
    let kinds: Vec<&str> = records.iter().filter_map(|record| record["header"]["kind"].as_str()).collect();
    let at = |kind: &str| kinds.iter().position(|is| *is == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"));
    assert!(at("user") < at("placed"), "{kinds:?}");
}

#[test]
fn a_run_asks_a_question_is_answered_and_finishes() {
    if !isolates() {
        return;
    }
    let project = project(EVERYTHING);
    project.fails(5, &["run", "-a", "run.toml", "--in", "work"]);
    let session = root(&project).unwrap();
    let asked = project.ok(&["inbox"]);
    assert!(asked.contains("wants to call shell") && asked.contains("yes | no"), "{asked}");
    let said = project.fails(2, &["answer", &question(&project), "perhaps"]);
    assert!(said.contains("yes-or-no"), "{said}");
    // An answer about a call names the record of the question, because the session may ask something else by now.
    let said = project.fails(2, &["answer", &session, "yes"]);
    assert!(
        said.contains("name the record of the question") && said.contains(&format!("{}@", short(&session))),
        "{said}"
    );
    assert_eq!(project.json(&["show", &session])["run"]["is"], "waiting");
    // The question is still open.
    project.fails(5, &["resume", &session, "-q"]);
    project.ok(&["answer", &question(&project), "yes", "--why", "it is only notes"]);
    project.fails(5, &["resume", &session, "-q"]);
    assert!(project.ok(&["inbox"]).contains("Which name?"));
    project.ok(&["answer", &session, "Ada"]);
    assert_eq!(project.ok(&["resume", &session, "-q"]), "All in order.");
    project.sound();

    // Each call ran once, also in branches whose call ids equal those of their parent.
    for (file, content) in [("a", "a"), ("log", "a"), ("notes", "one\ntwo\nthree")] {
        assert_eq!(project.ok(&["cat", &format!("{session}:{file}")]), content);
    }
    let shown = project.ok(&["show", &session]);
    let wanted = [
        "run: done",
        "▸ lead (agent, scripted)",
        "→ writer {\"task\":\"Write a.\"} [call-0-0]",
        "⇐ merged",
        "? agent lead asks to approve this call",
        "! person ada answers yes: it is only notes",
        "M notes (+1)",
        "+three",
        "Which name?",
        "◂ run done in",
    ];
    wanted.iter().for_each(|words| assert!(shown.contains(words), "no {words:?} in\n{shown}"));
    assert!(!project.ok(&["show", &session, "--no-diff"]).contains("+three"));
    assert!(project.ok(&["show", &session, "--patch"]).contains("+three"));
    assert!(project.ok(&["show", &session, "--all"]).contains("model_responded"));

    let steps = lines(&project.ok(&["steps", "--json", &session]));
    let names: Vec<_> =
        steps.iter().filter(|node| node["is"] == "step").map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "lead", "writer", "writer", "checker", "checker"]);
    let lead = &steps[1];
    assert_eq!((&lead["turns"], &lead["calls"], &lead["outcome"]), (&4.into(), &5.into(), &"done".into()));
    let branch = steps.iter().find(|node| node["is"] == "branch" && node["why"].as_str().unwrap().contains("checker"));
    let checker = project.ok(&["show", branch.unwrap()["session"].as_str().unwrap()]);
    assert!(checker.contains("failed: This call is not allowed: it is not for you"), "{checker}");
}

#[test]
fn the_context_of_a_model_is_shown_part_by_part() {
    if !isolates() {
        return;
    }
    let project = project(EVERYTHING);
    project.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&project).unwrap();
    let requests: Vec<Value> =
        records(&project).into_iter().filter(|record| record["header"]["kind"] == "model_requested").collect();
    assert_eq!(requests.len(), 6);
    for request in &requests {
        let at = format!("{}@{}", request["session"].as_str().unwrap(), request["seq"]);
        let shown = project.json(&["show", &at, "--context"]);
        assert_eq!(shown["rebuilt"], true, "{shown}");
        assert_eq!(shown["request"], request["body"]["request"]);
        for message in shown["messages"].as_array().unwrap() {
            assert!(message["bytes"].as_u64().unwrap() > 0, "{message}");
        }
    }
    // The last request of the lead is shown for later records too.
    let last = project.json(&["show", &format!("{session}@-0"), "--context"]);
    assert_eq!((&last["step"], &last["prompt"]), (&"lead".into(), &"You lead.".into()));
    assert_eq!(last["messages"].as_array().unwrap().len(), 5);
    assert!(last["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "writer"));
    // A sub-agent sees its task, not the conversation.
    let of_branch = requests.iter().find(|request| request["session"] != last["at"]["session"]).unwrap();
    let at = format!("{}@{}", of_branch["session"].as_str().unwrap(), of_branch["seq"]);
    let shown = project.ok(&["show", &at, "--context"]);
    assert!(shown.contains("last_answer@1") && !shown.contains("Do everything."), "{shown}");
    // There is no request before the first step: the context is shown.
    assert!(project.ok(&["show", &format!("{session}@3"), "--context"]).contains("Do everything."));
}

/// A run with slow branches, so that each part of it can be killed.
const SLOW: &str = r#"
task = "Take your time."
start = "lead"
[agents.lead]
tools = ["left", "right", "shell"]
[agents.left]
description = "Works."
tools = ["shell"]
[agents.right]
description = "Works."
tools = ["shell"]

[[turn]]
agent = "lead"
call = [{ tool = "left", arguments = { task = "Go." } }, { tool = "right", arguments = { task = "Go." } }]
[[turn]]
agent = "lead"
call = [{ tool = "shell", arguments = { command = "cat left right >> both; sleep 0.4; echo once >> both; cat both" } }]
[[turn]]
agent = "lead"
delay_ms = 400
text = "Done."

[[turn]]
agent = "left"
call = [{ tool = "shell", arguments = { command = "echo left >> left; sleep 0.4; cat left" } }]
[[turn]]
agent = "left"
text = "Left."
[[turn]]
agent = "right"
call = [{ tool = "shell", arguments = { command = "echo right >> right; sleep 0.8; cat right" } }]
[[turn]]
agent = "right"
delay_ms = 200
text = "Right."
"#;

#[test]
fn a_run_that_is_killed_ends_like_one_that_is_not() {
    if !isolates() {
        return;
    }
    let whole = project(SLOW);
    assert_eq!(whole.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]), "Done.");
    let wanted = conversation(&whole, &root(&whole).unwrap());

    let project = project(SLOW);
    let begun = |project: &TestProject, kind: &str, words: &str| {
        records(project).iter().any(|record| record["header"]["kind"] == kind && record.to_string().contains(words))
    };
    let last = |project: &TestProject, kind: &str| {
        let log = lines(&project.ok(&["log", "--json", &root(project).unwrap()]));
        log.last().is_some_and(|record| record["header"]["kind"] == kind)
    };
    // The process is killed at visible points: in a branch's command, after the first of two merges, in the parent's
    // own command, and during the last model request.
    let moments: [&dyn Fn(&TestProject) -> bool; 4] = [
        &|project| root(project).is_some() && begun(project, "tool_started", "\"tool\":\"shell\""),
        &|project| begun(project, "tool_finished", "Left."),
        &|project| last(project, "tool_started") && begun(project, "merged", "take_in"),
        &|project| last(project, "model_requested") && begun(project, "tool_result", "call-1-0"),
    ];
    let mut killed = 0;
    for moment in moments {
        let mut child = match root(&project) {
            None => start(&project, &["run", "-a", "run.toml", "--in", "work", "-q"]),
            Some(session) => start(&project, &["resume", &session, "-q"]),
        };
        let seen = until(&mut child, || moment(&project));
        killed += usize::from(seen && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        project.sound();
    }
    assert!(killed >= 3, "only {killed} were killed at work");
    let session = root(&project).unwrap();
    assert_eq!(project.json(&["show", &session])["run"]["is"], "interrupted");
    assert_eq!(project.ok(&["resume", &session, "-q"]), "Done.");
    assert_eq!(conversation(&project, &session), wanted);
    for (file, content) in [("left", "left"), ("right", "right"), ("both", "left\nright\nonce")] {
        assert_eq!(project.ok(&["cat", &format!("{session}:{file}")]), content, "{file}");
    }
    project.sound();
    // The transcript shows the crashes.
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("interrupted; repeated"), "{shown}");
    assert!(shown.contains("✗ request with unknown outcome"), "{shown}");
}

/// A run with one command, which a signal interrupts: its changes are undone, and it runs again.
const HALF_DONE: &str = r#"
task = "Take your time."
start = "lead"
[agents.lead]
tools = ["shell"]

[[turn]]
call = [{ tool = "shell", arguments = { command = "echo half >> file; sleep 1; echo done >> file" } }]
[[turn]]
text = "Done."
"#;

#[test]
fn a_run_that_is_terminated_is_resumed() {
    use rustix::process::{Pid, Signal, kill_process};
    if !isolates() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        for keyed in [false, true] {
            let project = project(HALF_DONE);
            let run: &[&str] = match keyed {
                true => &["run", "-a", "run.toml", "--in", "work", "--key", "nightly", "-q"],
                false => &["run", "-a", "run.toml", "--in", "work", "-q"],
            };
            let mut child = start(&project, run);
            let is_working = || {
                let is_started = |record: &Value| record["header"]["kind"] == "tool_started";
                root(&project).is_some_and(|session| {
                    let own = project.own(&session).join("file");
                    records(&project).iter().any(is_started) && std::fs::read(own).is_ok_and(|text| text == b"half\n")
                })
            };
            assert!(until(&mut child, is_working), "it ended before it was terminated");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let (ended, _, said) = ended(child);
            assert_eq!(ended, Some(code), "{said}");
            let session = root(&project).unwrap();
            assert_eq!(project.json(&["show", &session])["run"]["is"], "interrupted");
            let resumed = if keyed { project.ok(run) } else { project.ok(&["resume", &session, "-q"]) };
            assert_eq!(resumed, "Done.");
            assert_eq!(project.ok(&["cat", &format!("{session}:file")]), "half\ndone");
            project.sound();
        }
    }
}

#[test]
fn a_run_that_waits_is_answered_by_another_process() {
    let project = project(ASKING);
    let mut child = start(&project, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&project).is_some()));
    let session = root(&project).unwrap();
    let shown = project.json(&["show", &session]);
    assert_eq!((&shown["run"]["is"], shown["run"]["process"].as_u64()), (&"waiting".into(), Some(child.id().into())));
    let watching = start(&project, &["tail", &session]);
    let counting = start(&project, &["tail", "--json", "-n", "1000", &session]);
    project.ok(&["answer", &session, "yes"]);
    assert_eq!(ended(child), (Some(0), "So be it.\n".into(), format!("session {}\n", short(&session))));
    // The process that follows the session sees its end.
    let (code, seen, _) = ended(watching);
    assert_eq!(code, Some(0));
    assert!(
        seen.contains("answers yes") && seen.trim_end().lines().last().unwrap().starts_with("◂ run done"),
        "{seen}"
    );
    let (code, seen, _) = ended(counting);
    assert_eq!(code, Some(0));
    assert_eq!(lines(&seen), lines(&project.ok(&["log", "--json", &session])));
    // A second answer finds no open question; a late answer by record is recorded and changes nothing.
    project.fails(1, &["answer", &session, "no"]);
    let log = lines(&project.ok(&["log", "--json", &session]));
    let asked = log.iter().find(|record| record["header"]["kind"] == "asked").unwrap()["header"]["seq"].clone();
    let late = project.run(&["answer", &format!("{session}@{asked}"), "no"]);
    assert!(late.status.success() && text(&late.stderr).contains("changes nothing"), "{}", text(&late.stderr));
    assert!(project.fails(1, &["answer", &format!("{session}@1"), "no"]).contains("is not a question"));
    assert_eq!(project.ok(&["resume", &session, "-q"]), "So be it.");
    project.sound();
}

pub(crate) fn short(session: &str) -> String {
    session.replace('-', "")[20..28].to_owned()
}

#[test]
fn a_run_is_stopped_while_it_works_and_while_it_does_not() {
    let held = project(ASKING);
    let mut child = start(&held, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&held).is_some()));
    let session = root(&held).unwrap();
    held.ok(&["cancel", &session, "--why", "enough"]);
    let (code, _, said) = ended(child);
    assert_eq!(code, Some(1));
    assert!(said.contains("enough"), "{said}");

    let left = project(ASKING);
    left.fails(5, &["run", "-a", "run.toml", "-q"]);
    let other = root(&left).unwrap();
    left.ok(&["cancel", &other, "--why", "enough"]);

    for (project, session) in [(held, session), (left, other)] {
        assert_eq!(project.json(&["show", &session])["run"]["is"], "cancelled");
        assert!(project.ok(&["show", &session]).contains("✗ cancelled"));
        assert_eq!(waits(&project), None);
        let steps = lines(&project.ok(&["steps", "--json", &session]));
        assert!(steps.iter().all(|step| step["outcome"] == "cancelled"), "{steps:?}");
        // A cancelled run stays cancelled.
        let said = project.fails(1, &["resume", &session, "-q"]);
        assert!(said.contains("cancelled"), "{said}");
        project.sound();
    }
}

#[test]
fn a_message_reaches_a_running_run() {
    let project = project(ASKING);
    let mut child = start(&project, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&project).is_some()));
    let session = root(&project).unwrap();
    project.ok(&["say", &session, "And be quick."]);
    project.ok(&["answer", &session, "yes"]);
    assert_eq!(ended(child).0, Some(0));
    let said = project.last(&session, "user").unwrap();
    assert_eq!(said["text"], "And be quick.");
    let answer = records(&project).into_iter().rfind(|record| record["header"]["kind"] == "model_requested").unwrap();
    let shown = project.ok(&["show", &format!("{session}@{}", answer["seq"]), "--context"]);
    assert!(shown.contains("And be quick."), "{shown}");
}

#[test]
fn a_changed_run_file_stops_the_run_and_is_reported() {
    let project = project(ASKING);
    project.fails(5, &["run", "-a", "run.toml", "-q"]);
    let session = root(&project).unwrap();
    let changed = ASKING.replace("You ask.", "You shout.").replace("\"ask_human\", \"read\"", "\"ask_human\"");
    project.put("changed.toml", &changed);
    let said = project.fails(3, &["resume", &session, "--file", "changed.toml"]);
    assert!(said.contains("prompt: \"You ask.\" was recorded, now it is \"You shout.\""), "{said}");
    assert!(said.contains("tools: read was removed"), "{said}");
    assert!(!said.contains("ask_human is"), "{said}");
    assert!(said.contains("--fork"), "{said}");
    // Nothing was recorded, and the original agent still resumes.
    assert_eq!(project.json(&["show", &session])["run"]["is"], "waiting");

    let quiet = changed.replace("call = [{ tool = \"ask_human\", arguments", "text = \"I know.\"\n#");
    project.put("changed.toml", quiet);
    let done = project.json(&["resume", &session, "--file", "changed.toml", "--fork", "-q"]);
    assert_eq!((&done["outcome"], &done["text"]), (&"done".into(), &"I know.".into()));
    let fork = sessions(&project).into_iter().find(|row| !row["origin"].is_null()).unwrap();
    assert_eq!(done["session"], fork["id"]);
    let fork = fork["id"].as_str().unwrap();
    let shown = project.ok(&["show", fork]);
    assert!(shown.contains("⑂ forked from") && shown.contains("run: done"), "{shown}");
    assert!(project.ok(&["steps", fork]).contains("done in"));
    // Resuming again continues the same fork, by the run or by its own id.
    for again in [&["resume", &session, "--file", "changed.toml", "--fork", "-q"][..], &["resume", fork, "-q"]] {
        assert_eq!(project.json(again)["session"], fork);
        assert_eq!(sessions(&project).len(), 2);
    }
    project.ok(&["answer", &session, "yes"]);
    assert_eq!(project.ok(&["resume", &session, "-q"]), "So be it.");
    project.sound();
}

#[test]
fn an_invalid_run_file_is_reported_and_nothing_is_stored() {
    let agents = "[agents.a]\n[agents.b]\n";
    for (file, words) in [
        ("task = ", "nor a run file"),
        ("task = \"x\"", "agents"),
        (&format!("task = \"x\"\n{agents}"), "several agents and no start"),
        (&format!("task = \"x\"\nstart = \"c\"\n{agents}"), "unknown agent \"c\""),
        ("task = \"x\"\n[agents.a]\ntools = [\"fly\"]", "unknown tool or agent \"fly\""),
        ("task = \"x\"\n[agents.a]\ntools = [\"a\"]", "in a cycle"),
        ("task = \"x\"\n[agents.a]\nprompts = \"x\"", "prompts"),
        ("task = \"x\"\n[agents.a]\n[[turn]]\nsays = \"x\"", "says"),
    ] {
        let project = project(file);
        let said = project.fails(1, &["run", "-a", "run.toml"]);
        assert!(said.contains(words), "{file}\n{said}");
        assert_eq!(sessions(&project), Vec::<Value>::new(), "{file}");
    }
    let untold = project("[agents.a]\n[[turn]]\ntext = \"x\"");
    assert!(untold.fails(2, &["run", "-a", "run.toml"]).contains("no task"));
    assert_eq!(sessions(&untold), Vec::<Value>::new());
    let project = project(ASKING);
    assert!(project.fails(1, &["run", "-a", "nowhere.toml"]).contains("nowhere.toml"));
    assert_eq!(sessions(&project), Vec::<Value>::new());
}

#[test]
fn a_long_session_is_shown() {
    let project = project(
        "task = \"Go on.\"\n[agents.a]\ntools = [\"read\"]\n[[turn]]\notherwise = true\ncall = [{ tool = \"fly\" }]\n",
    );
    project.put("run.toml", project.read("run.toml").replace("[agents.a]\n", "[agents.a]\nturns = 300\n"));
    let said = project.fails(1, &["run", "-a", "run.toml", "-q"]);
    assert!(said.contains("300 turns"), "{said}");
    let session = root(&project).unwrap();
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("run: failed") && shown.contains("✗ failed:"), "{shown}");
    assert_eq!(shown.matches("Unknown tool").count(), 300);
    assert!(project.ok(&["steps", &session]).contains("failed in"));
    assert!(project.ok(&["tail", &session, "-n", "3"]).contains("◂ run failed"));
    assert!(project.ok(&["tail", &session, "-n", "3", "--no-follow"]).contains("◂ run failed"));
    let state = project.json(&["state", &format!("{session}@8")]);
    assert!(state["steps"][1]["run"]["phase"].is_string(), "{state}");
    assert!(state["next"]["is"].is_string(), "{state}");
}

/// A sub-agent that asks before it writes.
const BELOW: &str = r#"
task = "Have it written."
start = "lead"
[agents.lead]
tools = ["writer"]
[agents.writer]
description = "Writes."
tools = ["write"]
ask = ["write"]
[[turn]]
agent = "lead"
call = [{ tool = "writer", arguments = { task = "Write." } }]
[[turn]]
agent = "lead"
text = "It is written."
[[turn]]
agent = "writer"
call = [{ tool = "write", arguments = { path = "a", content = "a\n" } }]
[[turn]]
agent = "writer"
text = "Written."
"#;

#[test]
fn a_branch_asks_and_the_run_waits() {
    if !isolates() {
        return;
    }
    let project = project(BELOW);
    project.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let (session, branch) = (root(&project).unwrap(), waits(&project).unwrap());
    assert_ne!(session, branch);
    let run = project.json(&["show", &session])["run"].clone();
    assert_eq!((&run["is"], &run["waiting"][0]["about"]), (&"waiting".into(), &"approval".into()));
    assert!(project.ok(&["show", &session]).contains(&format!("(rath answer {}@", short(&branch))));
    project.ok(&["answer", &question(&project), "no", "--why", "not today"]);
    assert_eq!(project.ok(&["resume", &session, "-q"]), "It is written.");
    let shown = project.ok(&["show", &branch]);
    assert!(shown.contains("! person ada answers no: not today"), "{shown}");
    assert!(shown.contains("← failed: ada did not allow this call: not today"), "{shown}");
    project.sound();
}

#[test]
fn a_run_whose_branch_asks_can_be_stopped() {
    if !isolates() {
        return;
    }
    let project = project(BELOW);
    project.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&project).unwrap();
    project.ok(&["cancel", &session]);
    assert_eq!(project.json(&["show", &session])["run"]["is"], "cancelled");
    project.sound();
}

#[test]
fn output_of_a_run_cannot_control_the_terminal() {
    if !isolates() {
        return;
    }
    let escape = r"\u001b[2J";
    let project = project(&format!(
        r#"
title = "a{escape}b"
task = "go{escape}"
start = "x{escape}"
[agents."x{escape}"]
prompt = "p{escape}"
tools = ["shell", "ask_human"]
[[turn]]
reasoning = "r{escape}"
text = "t{escape}"
call = [
    {{ tool = "fly{escape}", id = "i{escape}", arguments = {{ a = "v{escape}" }} }},
    {{ tool = "shell", arguments = {{ command = "printf '\\033[2J' | tee \"$(printf 'f\\033[2J')\"; echo; exit 1" }} }},
]
[[turn]]
fails = [{{ times = 1, why = "w{escape}", after_ms = 1 }}]
call = [{{ tool = "ask_human", arguments = {{ question = "q{escape}" }} }}]
[[turn]]
text = "end{escape}"
stop = "s{escape}"
"#
    ));
    project.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&project).unwrap();
    project.ok(&["answer", &session, "a\u{1b}[2J", "--why", "y\u{1b}[2J"]);
    let looks: [&[&str]; 7] = [
        &["show"],
        &["show", "--patch"],
        &["show", "--all"],
        &["show", "--context"],
        &["steps"],
        &["state"],
        &["tail", "--no-follow", "-n", "100"],
    ];
    for look in looks {
        let shown = project.ok(&[look, &[&session]].concat());
        assert!(!shown.contains('\u{1b}'), "{look:?}\n{shown}");
        assert!(shown.contains("\\u{1b}[2J"), "{look:?}\n{shown}");
    }
    project.ok(&["resume", &session, "-q"]);
    assert!(!project.ok(&["show", &session]).contains('\u{1b}'));
}

#[test]
fn an_irreversible_call_needs_approval() {
    // The first time, the command kills the process that runs it.
    let project = project(
        r#"
task = "Once."
[agents.a]
tools = ["shell"]
[[turn]]
call = [{ tool = "shell", arguments = { command = "test -e begun || { : > begun; kill -9 $PPID; exit; }; echo once >> once" } }]
[[turn]]
text = "Done."
"#,
    );
    let out = project.run(&["run", "-a", "run.toml", "--on", "host", "--in", "work", "-q", "-y"]);
    assert_eq!(out.status.code(), None, "{}", text(&out.stderr));
    let session = root(&project).unwrap();
    project.fails(5, &["resume", &session, "-q"]);
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("waiting: a call with unknown outcome"), "{shown}");
    assert!(shown.contains("asks whether this call happened"), "{shown}");
    let state = project.ok(&["state", &session]);
    assert!(state.contains("irreversible, question open"), "{state}");
    project.ok(&["answer", &question(&project), "no"]);
    assert_eq!(project.ok(&["resume", &session, "-q"]), "Done.");
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("attempt 2") && shown.contains("not isolated"), "{shown}");
    assert_eq!(project.ok(&["cat", &format!("{session}:once")]), "once");
    project.sound();
}

/// Two sub-agents that write the same file, and one that fails.
const AT_ODDS: &str = r#"
task = "Write."
start = "lead"
[agents.lead]
tools = ["one", "two", "broken"]
[agents.one]
tools = ["coding"]
[agents.two]
tools = ["coding"]
[agents.broken]
tools = ["coding"]

[[turn]]
agent = "lead"
call = [{ tool = "broken", arguments = { task = "Go." } }, { tool = "one", arguments = { task = "Go." } }, { tool = "two", arguments = { task = "Go." } }]
[[turn]]
agent = "lead"
text = "Written."
[[turn]]
agent = "one"
call = [{ tool = "write", arguments = { path = "notes", content = "of one\n" } }]
[[turn]]
agent = "two"
call = [{ tool = "write", arguments = { path = "notes", content = "of two\n" } }]
[[turn]]
agent = "broken"
call = [{ tool = "write", arguments = { path = "notes", content = "of neither\n" } }]
[[turn]]
agent = "broken"
fails = [{ why = "broken", retry = false }]
[[turn]]
otherwise = true
text = "Done."
"#;

#[test]
fn merges_of_sub_agents_are_shown() {
    if !isolates() {
        return;
    }
    let project = project(AT_ODDS);
    assert_eq!(project.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]), "Written.");
    let session = root(&project).unwrap();
    assert_eq!(project.ok(&["cat", &format!("{session}:notes")]), "of one");
    let shown = project.ok(&["show", &session]);
    for words in ["of broken, without its files", "of two (rath show", "conflict: notes (both changed it)"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let seen = conversation(&project, &session).iter().map(Value::to_string).collect::<String>();
    assert!(seen.contains("version was kept:") && seen.contains("- notes (both changed it)"), "{seen}");
    assert!(seen.contains("The call failed, so none of its file changes were merged."), "{seen}");
    project.sound();
}
