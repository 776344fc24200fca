//! Runs from the command line: asked, answered, killed, resumed, stopped, changed, and looked at.

use std::process::{Child, Output};
use std::time::Duration;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{Bench, command, text};

/// Sub-agents, calls that run together, a call that must be allowed, a question.
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

/// One agent that asks, and says one thing.
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

pub(crate) fn bench(file: &str) -> Bench {
    let bench = Bench::new();
    bench.put("work/notes", "one\ntwo\n");
    bench.put("run.toml", file);
    bench
}

/// The session that no other was forked from.
pub(crate) fn root(bench: &Bench) -> Option<String> {
    sessions(bench).into_iter().find(|row| row["origin"].is_null()).map(|row| row["id"].as_str().unwrap().to_owned())
}

fn sessions(bench: &Bench) -> Vec<Value> {
    lines(&bench.ok(&["log", "--json"]))
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// Every record of every session.
fn records(bench: &Bench) -> Vec<Value> {
    let all = sessions(bench);
    let of = |row: &Value| lines(&bench.ok(&["log", "--json", row["id"].as_str().unwrap()]));
    all.iter().flat_map(of).collect()
}

/// What the model was shown in the end, without what differs from run to run.
fn conversation(bench: &Bench, session: &str) -> Vec<Value> {
    let shown = bench.json(&["show", session]);
    shown["context"].as_array().unwrap().iter().map(|message| message["said"].clone()).map(without_ids).collect()
}

fn without_ids(mut said: Value) -> Value {
    if let Some(fields) = said.as_object_mut() {
        fields.remove("finished");
    }
    said
}

/// Waits until something is so, or the process has ended. Says whether it is so.
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

pub(crate) fn start(bench: &Bench, arguments: &[&str]) -> Child {
    command(bench.root(), arguments).spawn().unwrap()
}

pub(crate) fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

pub(crate) fn waits(bench: &Bench) -> Option<String> {
    let asked = lines(&bench.ok(&["inbox", "--json"]));
    asked.iter().find(|line| line.get("asked").is_some()).map(|line| line["session"].as_str().unwrap().to_owned())
}

/// The record that asks first.
pub(crate) fn question(bench: &Bench) -> String {
    let asked = lines(&bench.ok(&["inbox", "--json"]));
    let ask = asked.iter().find(|line| line.get("asked").is_some()).unwrap();
    format!("{}@{}", ask["session"].as_str().unwrap(), ask["at"]["seq"])
}

/// Placing publishes: what the run is for must be there with it, or a run that is killed then has no task.
#[test]
fn the_task_is_on_the_record_when_the_place_is() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("run.toml", "task = \"Go.\"\n[agents.a]\ntools = [\"coding\"]\n[[turn]]\ntext = \"Done.\"\n");
    bench.put("work/notes", "one\n");
    bench.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]);
    let records = lines(&bench.ok(&["log", "@", "--json"]));
    let kinds: Vec<&str> = records.iter().filter_map(|record| record["header"]["kind"].as_str()).collect();
    let at = |kind: &str| kinds.iter().position(|is| *is == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"));
    assert!(at("user") < at("placed"), "{kinds:?}");
}

#[test]
fn a_run_asks_is_answered_and_comes_to_its_end() {
    if !isolates() {
        return;
    }
    let bench = bench(EVERYTHING);
    bench.fails(5, &["run", "-a", "run.toml", "--in", "work"]);
    let session = root(&bench).unwrap();
    let asked = bench.ok(&["inbox"]);
    assert!(asked.contains("wants to call shell") && asked.contains("yes | no"), "{asked}");
    let said = bench.fails(2, &["answer", &question(&bench), "perhaps"]);
    assert!(said.contains("yes or no"), "{said}");
    // What decides on a call is answered where it was read, not whatever the session asks by now.
    let said = bench.fails(2, &["answer", &session, "yes"]);
    assert!(said.contains("name what you have read") && said.contains(&format!("{}@", short(&session))), "{said}");
    assert_eq!(bench.json(&["show", &session])["run"]["is"], "waiting");
    // Nothing was answered: it still waits.
    bench.fails(5, &["resume", &session, "-q"]);
    bench.ok(&["answer", &question(&bench), "yes", "--why", "it is only notes"]);
    bench.fails(5, &["resume", &session, "-q"]);
    assert!(bench.ok(&["inbox"]).contains("Which name?"));
    bench.ok(&["answer", &session, "Ada"]);
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "All in order.");
    bench.sound();

    // Once each, also in branches whose calls have the same ids as those of the line they were forked from.
    for (file, content) in [("a", "a"), ("log", "a"), ("notes", "one\ntwo\nthree")] {
        assert_eq!(bench.ok(&["cat", &format!("{session}:{file}")]), content);
    }
    let shown = bench.ok(&["show", &session]);
    let wanted = [
        "run: done",
        "▸ lead (agent, scripted)",
        "→ writer {\"task\":\"Write a.\"} [call-0-0]",
        "⇐ merged",
        "? agent lead asks to allow this call",
        "! person ada answers yes: it is only notes",
        "M notes (+1)",
        "+three",
        "Which name?",
        "◂ run done in",
    ];
    wanted.iter().for_each(|words| assert!(shown.contains(words), "no {words:?} in\n{shown}"));
    assert!(!bench.ok(&["show", &session, "--no-diff"]).contains("+three"));
    assert!(bench.ok(&["show", &session, "--patch"]).contains("+three"));
    assert!(bench.ok(&["show", &session, "--all"]).contains("model_responded"));

    let steps = lines(&bench.ok(&["steps", "--json", &session]));
    let names: Vec<_> =
        steps.iter().filter(|node| node["is"] == "step").map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "lead", "writer", "writer", "checker", "checker"]);
    let lead = &steps[1];
    assert_eq!((&lead["turns"], &lead["calls"], &lead["outcome"]), (&4.into(), &5.into(), &"done".into()));
    let branch = steps.iter().find(|node| node["is"] == "branch" && node["why"].as_str().unwrap().contains("checker"));
    let checker = bench.ok(&["show", branch.unwrap()["session"].as_str().unwrap()]);
    assert!(checker.contains("failed: This call is not allowed: it is not for you"), "{checker}");
}

#[test]
fn what_a_model_saw_is_shown_part_by_part() {
    if !isolates() {
        return;
    }
    let bench = bench(EVERYTHING);
    bench.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&bench).unwrap();
    let requests: Vec<Value> =
        records(&bench).into_iter().filter(|record| record["header"]["kind"] == "model_requested").collect();
    assert_eq!(requests.len(), 6);
    for request in &requests {
        let at = format!("{}@{}", request["session"].as_str().unwrap(), request["seq"]);
        let shown = bench.json(&["show", &at, "--context"]);
        assert_eq!(shown["rebuilt"], true, "{shown}");
        assert_eq!(shown["request"], request["body"]["request"]);
        for message in shown["messages"].as_array().unwrap() {
            assert!(message["bytes"].as_u64().unwrap() > 0, "{message}");
        }
    }
    // The last request of the lead: also from the records after it.
    let last = bench.json(&["show", &format!("{session}@-0"), "--context"]);
    assert_eq!((&last["step"], &last["prompt"]), (&"lead".into(), &"You lead.".into()));
    assert_eq!(last["messages"].as_array().unwrap().len(), 5);
    assert!(last["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "writer"));
    // A sub-agent sees its task, not the conversation.
    let of_branch = requests.iter().find(|request| request["session"] != last["at"]["session"]).unwrap();
    let at = format!("{}@{}", of_branch["session"].as_str().unwrap(), of_branch["seq"]);
    let shown = bench.ok(&["show", &at, "--context"]);
    assert!(shown.contains("last_answer@1") && !shown.contains("Do everything."), "{shown}");
    // Before the first step there was no request: the context as it is.
    assert!(bench.ok(&["show", &format!("{session}@3"), "--context"]).contains("Do everything."));
}

/// A run whose branches take a while, so that it can be killed in each of its parts.
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
    let whole = bench(SLOW);
    assert_eq!(whole.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]), "Done.");
    let wanted = conversation(&whole, &root(&whole).unwrap());

    let bench = bench(SLOW);
    let begun = |bench: &Bench, kind: &str, words: &str| {
        records(bench).iter().any(|record| record["header"]["kind"] == kind && record.to_string().contains(words))
    };
    let last = |bench: &Bench, kind: &str| {
        let log = lines(&bench.ok(&["log", "--json", &root(bench).unwrap()]));
        log.last().is_some_and(|record| record["header"]["kind"] == kind)
    };
    // Each process is killed when something can be seen of it: in a branch's command, after one of two branches came
    // back, in the command of the line itself, while the model is asked for the last time.
    let moments: [&dyn Fn(&Bench) -> bool; 4] = [
        &|bench| root(bench).is_some() && begun(bench, "tool_started", "\"tool\":\"shell\""),
        &|bench| begun(bench, "tool_finished", "Left."),
        &|bench| last(bench, "tool_started") && begun(bench, "merged", "take_in"),
        &|bench| last(bench, "model_requested") && begun(bench, "tool_result", "call-1-0"),
    ];
    let mut killed = 0;
    for moment in moments {
        let mut child = match root(&bench) {
            None => start(&bench, &["run", "-a", "run.toml", "--in", "work", "-q"]),
            Some(session) => start(&bench, &["resume", &session, "-q"]),
        };
        let seen = until(&mut child, || moment(&bench));
        killed += usize::from(seen && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        bench.sound();
    }
    assert!(killed >= 3, "only {killed} were killed at work");
    let session = root(&bench).unwrap();
    assert_eq!(bench.json(&["show", &session])["run"]["is"], "interrupted");
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "Done.");
    assert_eq!(conversation(&bench, &session), wanted);
    for (file, content) in [("left", "left"), ("right", "right"), ("both", "left\nright\nonce")] {
        assert_eq!(bench.ok(&["cat", &format!("{session}:{file}")]), content, "{file}");
    }
    bench.sound();
    // The traces of the crashes are told.
    let shown = bench.ok(&["show", &session]);
    assert!(shown.contains("it was interrupted, and is made again"), "{shown}");
    assert!(shown.contains("✗ request lost"), "{shown}");
}

/// A run with one command, which a signal ends in the middle: what it wrote by then is set back, and it runs again.
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
            let bench = bench(HALF_DONE);
            let run: &[&str] = match keyed {
                true => &["run", "-a", "run.toml", "--in", "work", "--key", "nightly", "-q"],
                false => &["run", "-a", "run.toml", "--in", "work", "-q"],
            };
            let mut child = start(&bench, run);
            let is_working = || {
                let is_started = |record: &Value| record["header"]["kind"] == "tool_started";
                root(&bench).is_some_and(|session| {
                    let own = bench.own(&session).join("file");
                    records(&bench).iter().any(is_started) && std::fs::read(own).is_ok_and(|text| text == b"half\n")
                })
            };
            assert!(until(&mut child, is_working), "it ended before it was terminated");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let (ended, _, said) = ended(child);
            assert_eq!(ended, Some(code), "{said}");
            let session = root(&bench).unwrap();
            assert_eq!(bench.json(&["show", &session])["run"]["is"], "interrupted");
            let resumed = if keyed { bench.ok(run) } else { bench.ok(&["resume", &session, "-q"]) };
            assert_eq!(resumed, "Done.");
            assert_eq!(bench.ok(&["cat", &format!("{session}:file")]), "half\ndone");
            bench.sound();
        }
    }
}

#[test]
fn a_run_that_waits_is_answered_by_another_process() {
    let bench = bench(ASKING);
    let mut child = start(&bench, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&bench).is_some()));
    let session = root(&bench).unwrap();
    let shown = bench.json(&["show", &session]);
    assert_eq!((&shown["run"]["is"], shown["run"]["process"].as_u64()), (&"waiting".into(), Some(child.id().into())));
    let watching = start(&bench, &["tail", &session]);
    let counting = start(&bench, &["tail", "--json", "-n", "1000", &session]);
    bench.ok(&["answer", &session, "yes"]);
    assert_eq!(ended(child), (Some(0), "So be it.\n".into(), format!("session {}\n", short(&session))));
    // Whoever watched has seen it end.
    let (code, seen, _) = ended(watching);
    assert_eq!(code, Some(0));
    assert!(
        seen.contains("answers yes") && seen.trim_end().lines().last().unwrap().starts_with("◂ run done"),
        "{seen}"
    );
    let (code, seen, _) = ended(counting);
    assert_eq!(code, Some(0));
    assert_eq!(lines(&seen), lines(&bench.ok(&["log", "--json", &session])));
    // A second answer finds nothing to answer; one to what was asked is kept, and changes nothing.
    bench.fails(1, &["answer", &session, "no"]);
    let log = lines(&bench.ok(&["log", "--json", &session]));
    let asked = log.iter().find(|record| record["header"]["kind"] == "asked").unwrap()["header"]["seq"].clone();
    let late = bench.run(&["answer", &format!("{session}@{asked}"), "no"]);
    assert!(late.status.success() && text(&late.stderr).contains("changes nothing"), "{}", text(&late.stderr));
    assert!(bench.fails(1, &["answer", &format!("{session}@1"), "no"]).contains("asks nothing"));
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "So be it.");
    bench.sound();
}

pub(crate) fn short(session: &str) -> String {
    session.replace('-', "")[20..28].to_owned()
}

#[test]
fn a_run_is_stopped_while_it_works_and_while_it_does_not() {
    let held = bench(ASKING);
    let mut child = start(&held, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&held).is_some()));
    let session = root(&held).unwrap();
    held.ok(&["cancel", &session, "--why", "enough"]);
    let (code, _, said) = ended(child);
    assert_eq!(code, Some(1));
    assert!(said.contains("enough"), "{said}");

    let left = bench(ASKING);
    left.fails(5, &["run", "-a", "run.toml", "-q"]);
    let other = root(&left).unwrap();
    left.ok(&["cancel", &other, "--why", "enough"]);

    for (bench, session) in [(held, session), (left, other)] {
        assert_eq!(bench.json(&["show", &session])["run"]["is"], "cancelled");
        assert!(bench.ok(&["show", &session]).contains("✗ cancelled"));
        assert_eq!(waits(&bench), None);
        let steps = lines(&bench.ok(&["steps", "--json", &session]));
        assert!(steps.iter().all(|step| step["outcome"] == "cancelled"), "{steps:?}");
        // What was stopped stays so.
        let said = bench.fails(1, &["resume", &session, "-q"]);
        assert!(said.contains("cancelled"), "{said}");
        bench.sound();
    }
}

#[test]
fn words_reach_a_run_while_it_works() {
    let bench = bench(ASKING);
    let mut child = start(&bench, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&bench).is_some()));
    let session = root(&bench).unwrap();
    bench.ok(&["say", &session, "And be quick."]);
    bench.ok(&["answer", &session, "yes"]);
    assert_eq!(ended(child).0, Some(0));
    let said = bench.last(&session, "user").unwrap();
    assert_eq!(said["text"], "And be quick.");
    let answer = records(&bench).into_iter().rfind(|record| record["header"]["kind"] == "model_requested").unwrap();
    let shown = bench.ok(&["show", &format!("{session}@{}", answer["seq"]), "--context"]);
    assert!(shown.contains("And be quick."), "{shown}");
}

#[test]
fn a_changed_run_stops_and_says_what_changed() {
    let bench = bench(ASKING);
    bench.fails(5, &["run", "-a", "run.toml", "-q"]);
    let session = root(&bench).unwrap();
    let changed = ASKING.replace("You ask.", "You shout.").replace("\"ask_human\", \"read\"", "\"ask_human\"");
    bench.put("changed.toml", &changed);
    let said = bench.fails(3, &["resume", &session, "--file", "changed.toml"]);
    assert!(said.contains("prompt: \"You ask.\" was recorded, now it is \"You shout.\""), "{said}");
    assert!(said.contains("tools: read is gone"), "{said}");
    assert!(!said.contains("ask_human is"), "{said}");
    assert!(said.contains("--fork"), "{said}");
    // Nothing came of it, and what is recorded still goes on.
    assert_eq!(bench.json(&["show", &session])["run"]["is"], "waiting");

    let quiet = changed.replace("call = [{ tool = \"ask_human\", arguments", "text = \"I know.\"\n#");
    bench.put("changed.toml", quiet);
    let done = bench.json(&["resume", &session, "--file", "changed.toml", "--fork", "-q"]);
    assert_eq!((&done["outcome"], &done["text"]), (&"done".into(), &"I know.".into()));
    let fork = sessions(&bench).into_iter().find(|row| !row["origin"].is_null()).unwrap();
    assert_eq!(done["session"], fork["id"]);
    let fork = fork["id"].as_str().unwrap();
    let shown = bench.ok(&["show", fork]);
    assert!(shown.contains("⑂ forked from") && shown.contains("run: done"), "{shown}");
    assert!(bench.ok(&["steps", fork]).contains("done in"));
    // Once more, on the same fork: by the name of the run, or by its own, with the file that it has been made of since.
    for again in [&["resume", &session, "--file", "changed.toml", "--fork", "-q"][..], &["resume", fork, "-q"]] {
        assert_eq!(bench.json(again)["session"], fork);
        assert_eq!(sessions(&bench).len(), 2);
    }
    bench.ok(&["answer", &session, "yes"]);
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "So be it.");
    bench.sound();
}

#[test]
fn a_run_file_that_cannot_be_run_says_why_and_stores_nothing() {
    let agents = "[agents.a]\n[agents.b]\n";
    for (file, words) in [
        ("task = ", "nor a run file"),
        ("task = \"x\"", "agents"),
        (&format!("task = \"x\"\n{agents}"), "say which agent begins"),
        (&format!("task = \"x\"\nstart = \"c\"\n{agents}"), "there is no agent \"c\""),
        ("task = \"x\"\n[agents.a]\ntools = [\"fly\"]", "there is no tool or agent \"fly\""),
        ("task = \"x\"\n[agents.a]\ntools = [\"a\"]", "in a circle"),
        ("task = \"x\"\n[agents.a]\nprompts = \"x\"", "prompts"),
        ("task = \"x\"\n[agents.a]\n[[turn]]\nsays = \"x\"", "says"),
    ] {
        let bench = bench(file);
        let said = bench.fails(1, &["run", "-a", "run.toml"]);
        assert!(said.contains(words), "{file}\n{said}");
        assert_eq!(sessions(&bench), Vec::<Value>::new(), "{file}");
    }
    let untold = bench("[agents.a]\n[[turn]]\ntext = \"x\"");
    assert!(untold.fails(2, &["run", "-a", "run.toml"]).contains("there is no task"));
    assert_eq!(sessions(&untold), Vec::<Value>::new());
    let bench = bench(ASKING);
    assert!(bench.fails(1, &["run", "-a", "nowhere.toml"]).contains("nowhere.toml"));
    assert_eq!(sessions(&bench), Vec::<Value>::new());
}

#[test]
fn a_long_session_is_shown() {
    let bench = bench(
        "task = \"Go on.\"\n[agents.a]\ntools = [\"read\"]\n[[turn]]\notherwise = true\ncall = [{ tool = \"fly\" }]\n",
    );
    bench.put("run.toml", bench.read("run.toml").replace("[agents.a]\n", "[agents.a]\nturns = 300\n"));
    let said = bench.fails(1, &["run", "-a", "run.toml", "-q"]);
    assert!(said.contains("300 turns"), "{said}");
    let session = root(&bench).unwrap();
    let shown = bench.ok(&["show", &session]);
    assert!(shown.contains("run: failed") && shown.contains("✗ failed:"), "{shown}");
    assert_eq!(shown.matches("There is no tool").count(), 300);
    assert!(bench.ok(&["steps", &session]).contains("failed in"));
    assert!(bench.ok(&["tail", &session, "-n", "3"]).contains("◂ run failed"));
    assert!(bench.ok(&["tail", &session, "-n", "3", "--no-follow"]).contains("◂ run failed"));
    let state = bench.json(&["state", &format!("{session}@8")]);
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
    let bench = bench(BELOW);
    bench.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let (session, branch) = (root(&bench).unwrap(), waits(&bench).unwrap());
    assert_ne!(session, branch);
    let run = bench.json(&["show", &session])["run"].clone();
    assert_eq!((&run["is"], &run["waiting"][0]["about"]), (&"waiting".into(), &"approval".into()));
    assert!(bench.ok(&["show", &session]).contains(&format!("(rath answer {}@", short(&branch))));
    bench.ok(&["answer", &question(&bench), "no", "--why", "not today"]);
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "It is written.");
    let shown = bench.ok(&["show", &branch]);
    assert!(shown.contains("! person ada answers no: not today"), "{shown}");
    assert!(shown.contains("← failed: ada did not allow this call: not today"), "{shown}");
    bench.sound();
}

#[test]
fn a_run_whose_branch_asks_can_be_stopped() {
    if !isolates() {
        return;
    }
    let bench = bench(BELOW);
    bench.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&bench).unwrap();
    bench.ok(&["cancel", &session]);
    assert_eq!(bench.json(&["show", &session])["run"]["is"], "cancelled");
    bench.sound();
}

#[test]
fn nothing_that_a_run_says_moves_the_cursor() {
    if !isolates() {
        return;
    }
    let escape = r"\u001b[2J";
    let bench = bench(&format!(
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
    bench.fails(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let session = root(&bench).unwrap();
    bench.ok(&["answer", &session, "a\u{1b}[2J", "--why", "y\u{1b}[2J"]);
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
        let shown = bench.ok(&[look, &[&session]].concat());
        assert!(!shown.contains('\u{1b}'), "{look:?}\n{shown}");
        assert!(shown.contains("\\u{1b}[2J"), "{look:?}\n{shown}");
    }
    bench.ok(&["resume", &session, "-q"]);
    assert!(!bench.ok(&["show", &session]).contains('\u{1b}'));
}

#[test]
fn a_call_that_cannot_be_taken_back_is_asked_about() {
    // The first time, the command kills the process that runs it.
    let bench = bench(
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
    let out = bench.run(&["run", "-a", "run.toml", "--on", "host", "--in", "work", "-q", "-y"]);
    assert_eq!(out.status.code(), None, "{}", text(&out.stderr));
    let session = root(&bench).unwrap();
    bench.fails(5, &["resume", &session, "-q"]);
    let shown = bench.ok(&["show", &session]);
    assert!(shown.contains("waiting: did a call happen?"), "{shown}");
    assert!(shown.contains("asks whether this call happened"), "{shown}");
    let state = bench.ok(&["state", &session]);
    assert!(state.contains("cannot be taken back, asked about, not answered"), "{state}");
    bench.ok(&["answer", &question(&bench), "no"]);
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "Done.");
    let shown = bench.ok(&["show", &session]);
    assert!(shown.contains("attempt 2") && shown.contains("not isolated"), "{shown}");
    assert_eq!(bench.ok(&["cat", &format!("{session}:once")]), "once");
    bench.sound();
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
fn what_sub_agents_bring_back_is_told() {
    if !isolates() {
        return;
    }
    let bench = bench(AT_ODDS);
    assert_eq!(bench.ok(&["run", "-a", "run.toml", "--in", "work", "-q"]), "Written.");
    let session = root(&bench).unwrap();
    assert_eq!(bench.ok(&["cat", &format!("{session}:notes")]), "of one");
    let shown = bench.ok(&["show", &session]);
    for words in ["of broken, its files left out", "of two (rath show", "conflict: notes (both changed it)"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let seen = conversation(&bench, &session).iter().map(Value::to_string).collect::<String>();
    assert!(seen.contains("stands there now:") && seen.contains("- notes (both changed it)"), "{seen}");
    assert!(seen.contains("Because it failed, nothing that it changed is in the files."), "{seen}");
    bench.sound();
}
