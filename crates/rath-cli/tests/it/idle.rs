//! Sessions that nobody works on, or another process: what becomes of words to them, and what a watcher is told.

use std::fs::File;

use serde_json::Value;

use crate::runs::{ASKING, bench, ended, lines, question, root, short, start, until, waits};
use crate::workspace::{Bench, command, text};

/// One agent that says one thing.
const SAYING: &str =
    "task = \"Say it.\"\n[agents.sayer]\nprompt = \"You say.\"\n[[turn]]\notherwise = true\ntext = \"Said.\"\n";

/// An agent that has a model of its own.
const AGENT: &str = "---\nname: asker\ntools: [ask_human]\n---\nYou ask.\n";

/// What a command says on both streams, where it goes well.
fn says(bench: &Bench, arguments: &[&str]) -> (String, String) {
    let out = bench.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

fn records(bench: &Bench, session: &str) -> usize {
    lines(&bench.ok(&["log", "--json", session])).len()
}

#[test]
fn what_is_left_with_a_process_is_json_too() {
    let bench = bench(ASKING);
    let mut child = start(&bench, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&bench).is_some()));
    let session = root(&bench).unwrap();
    for words in [&["say", &session, "Hello?"][..], &["cancel", &session, "--why", "enough"]] {
        let left = bench.json(words);
        assert_eq!(
            (&left["session"], left["holder"]["process"].as_u64()),
            (&session.as_str().into(), Some(child.id().into()))
        );
        assert!(left["left"].is_string(), "{left}");
    }
    assert_eq!(ended(child).0, Some(1));
    bench.sound();
}

#[test]
fn words_to_a_run_that_is_over_are_kept_and_nobody_answers() {
    let bench = bench(SAYING);
    bench.ok(&["run", "-a", "run.toml", "-q"]);
    let session = root(&bench).unwrap();
    let (added, said) = says(&bench, &["say", &session, "And then?"]);
    assert_eq!(added, format!("{}@{}\n", short(&session), records(&bench, &session) - 1));
    let help = format!("`rath run --continue {} WORDS`", short(&session));
    assert!(said.contains("the run is over, and nobody answers") && said.contains(&help), "{said}");
    let again = bench.json(&["say", &session, "Well?"]);
    assert_eq!((&again["run"], &again["seq"]), (&"done".into(), &(records(&bench, &session) - 1).into()));
    assert!(again["help"].as_str().unwrap().contains(&help), "{again}");
    // As it is said, so it is.
    assert_eq!(bench.ok(&["run", "--continue", &session, "-q", "Now."]), "Said.");
    let shown = bench.json(&["show", &session])["context"].to_string();
    assert!(shown.contains("And then?") && shown.contains("Well?"), "{shown}");
    // A session that is no run is written into, and that is all.
    let plain = bench.ok(&["new", "plain"]);
    assert_eq!(says(&bench, &["say", &plain, "A note."]).1, "");
}

#[test]
fn words_to_a_run_that_waits_wait_with_it() {
    let bench = bench(ASKING);
    bench.fails(5, &["run", "-a", "run.toml", "-q"]);
    let session = root(&bench).unwrap();
    let (_, said) = says(&bench, &["say", &session, "Hurry."]);
    assert!(said.contains("left until it goes on") && said.contains("rath answer"), "{said}");
    let left = bench.json(&["say", &session, "Please."]);
    assert_eq!((&left["run"], &left["holder"]), (&"waiting".into(), &Value::Null));
}

#[test]
fn where_there_is_nothing_to_stop_that_is_said() {
    let bench = bench(SAYING);
    bench.ok(&["run", "-a", "run.toml", "-q"]);
    let session = root(&bench).unwrap();
    let before = records(&bench, &session);
    let (added, said) = says(&bench, &["cancel", &session]);
    assert_eq!(added, "", "no record was added");
    assert!(said.contains(&format!("nothing to stop in session {}: the run is over", short(&session))), "{said}");
    assert!(said.contains("rath run --continue"), "{said}");
    let idle = bench.json(&["cancel", &session]);
    assert_eq!((&idle["stopped"], &idle["run"], &idle["seq"]), (&false.into(), &"done".into(), &(before - 1).into()));
    assert_eq!(records(&bench, &session), before);
    let plain = bench.ok(&["new", "plain"]);
    let (_, said) = says(&bench, &["cancel", &plain]);
    assert!(said.contains("nobody works on it") && said.contains(&format!("`rath close {plain}`")), "{said}");
    bench.ok(&["close", &plain]);
}

#[test]
fn no_word_is_said_twice() {
    let bench = bench(ASKING);
    let mut child = start(&bench, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&bench).is_some()));
    let session = root(&bench).unwrap();
    bench.ok(&["cancel", &session, "--why", "enough"]);
    let (_, _, mut said) = ended(child);
    for look in ["show", "log", "steps"] {
        said += &bench.ok(&[look, &session]);
    }
    said += &bench.fails(1, &["resume", &session, "-q"]);
    assert!(said.contains("cancelled: person ada said so: enough"), "{said}");
    assert!(!said.contains("cancelled: cancelled"), "{said}");
    // A run that failed, too.
    bench.put("fails.toml", SAYING.replace("text = \"Said.\"", "fails = [{ why = \"broken\", retry = false }]"));
    bench.fails(1, &["run", "-a", "fails.toml", "-q"]);
    let said = bench.fails(1, &["resume", "@", "-q"]);
    assert!(said.contains("error: model scripted did not answer: broken"), "{said}");
}

#[test]
fn a_run_fails_of_its_place_with_the_code_of_the_place() {
    let bench = bench(SAYING);
    for (place, code) in [(["--on", "nope"], "unknown-backend"), (["--in", "nope"], "no-directory")] {
        assert_eq!(bench.code(&[&["new", "x"][..], &place].concat()), code);
        assert_eq!(bench.code(&[&["run", "-a", "run.toml"][..], &place].concat()), code);
    }
}

/// Begins a run that waits for its model, and kills it. Returns its session.
fn killed(bench: &Bench) -> String {
    bench.put("agent.md", AGENT);
    bench.put("script.toml", "[[turn]]\ndelay_ms = 600000\ntext = \"Late.\"\n");
    let arguments =
        ["run", "-a", "agent.md", "-m", "scripted/script.toml", "--on", "host", "--in", "work", "-q", "Go."];
    let mut child = start(bench, &arguments);
    let asks = || root(bench).is_some_and(|session| bench.last(&session, "model_requested").is_some());
    assert!(until(&mut child, asks));
    child.kill().unwrap();
    child.wait().unwrap();
    root(bench).unwrap()
}

#[test]
fn who_watches_a_run_that_was_killed_is_told_and_sees_it_go_on() {
    let bench = bench(SAYING);
    let session = killed(&bench);
    let told =
        format!("nobody works on session {}: the process that did ended before its work was done", short(&session));
    // A script asks for an end.
    let said = bench.fails(1, &["tail", "--while-held", &session]);
    assert!(said.contains(&told) && said.contains(&format!("`rath resume {}`", short(&session))), "{said}");
    // A person may go on with it elsewhere.
    let heard = bench.path("heard");
    let mut watching =
        command(bench.root(), &["tail", &session]).stderr(File::create(&heard).unwrap()).spawn().unwrap();
    assert!(until(&mut watching, || bench.read("heard").contains(&told)));
    assert!(watching.try_wait().unwrap().is_none(), "it watches on");
    bench.put("script.toml", "[[turn]]\ntext = \"Done.\"\n");
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "Done.");
    let (code, seen, _) = ended(watching);
    assert_eq!(code, Some(0));
    assert!(seen.trim_end().lines().last().unwrap().starts_with("◂ run done"), "{seen}");
    assert_eq!(bench.read("heard").matches("nobody works on").count(), 1);
}

#[test]
fn who_watches_a_run_that_waits_is_told_what_for() {
    let bench = bench(ASKING);
    bench.fails(5, &["run", "-a", "run.toml", "-q"]);
    let said = bench.fails(5, &["tail", "--while-held"]);
    assert!(said.contains("it waits for an answer") && said.contains("rath inbox"), "{said}");
}

#[test]
fn a_script_is_found_from_wherever_its_run_is_resumed() {
    let bench = bench(SAYING);
    bench.put("agent.md", AGENT);
    let script = "[[turn]]\ncall = [{ tool = \"ask_human\", arguments = { question = \"Go on?\" } }]\n[[turn]]\ntext = \"Done.\"\n";
    bench.put("work/script.toml", script);
    let begin =
        ["--store", "../.rath", "run", "-a", "../agent.md", "-m", "scripted/script.toml", "--on", "host", "-q", "Ask."];
    let begun = command(&bench.path("work"), &begin).output().unwrap();
    assert_eq!(begun.status.code(), Some(5), "{}", text(&begun.stderr));
    let session = root(&bench).unwrap();
    bench.ok(&["answer", &session, "yes"]);
    let gone = bench.path("work/gone.toml");
    std::fs::rename(bench.path("work/script.toml"), &gone).unwrap();
    let said = bench.fails(1, &["resume", &session, "-q"]);
    let wanted = bench.path("work").canonicalize().unwrap().join("script.toml");
    assert!(said.contains(&format!("the script {} cannot be read", wanted.display())), "{said}");
    std::fs::rename(gone, bench.path("work/script.toml")).unwrap();
    assert_eq!(bench.ok(&["resume", &session, "-q"]), "Done.");
}

/// An irreversible call that does not come to its end the first time.
const PAYING: &str = "task = \"Pay.\"\n[agents.payer]\nprompt = \"You pay.\"\ntools = [\"shell\"]\n\
    [[turn]]\nwhen = \"Pay.\"\ncall = [{ tool = \"shell\", arguments = { command = \"PAY\" } }]\n\
    [[turn]]\notherwise = true\ntext = \"Paid.\"\n";

#[test]
fn a_fork_in_the_middle_of_a_call_asks_what_became_of_it() {
    let bench = bench(PAYING);
    let paid = bench.path("paid");
    let pay = format!("echo paid >> {0}; [ $(wc -l < {0}) -gt 1 ] || sleep 600", paid.display());
    bench.put("run.toml", PAYING.replace("PAY", &pay));
    let mut child = start(&bench, &["run", "-a", "run.toml", "--on", "host", "--in", "work", "-y", "-q"]);
    assert!(until(&mut child, || paid.exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    let session = root(&bench).unwrap();
    let log = lines(&bench.ok(&["log", "--json", &session]));
    let begun = log.iter().find(|record| record["header"]["kind"] == "tool_started").unwrap();
    let fork = bench.ok(&["fork", &format!("{session}@{}", begun["header"]["seq"]), "another way"]).trim().to_owned();
    for (answer, payments) in [("it was paid, receipt 17", 1), ("no", 2)] {
        let fork = bench.ok(&["fork", &fork, answer]).trim().to_owned();
        // It is resumed as what it was forked from, and does not make the call again unasked.
        bench.fails(5, &["resume", &fork, "-q"]);
        let asked = question(&bench);
        assert!(bench.ok(&["inbox"]).contains("Did it happen?"));
        assert_eq!(bench.read("paid").lines().count(), 1);
        bench.ok(&["answer", &asked, answer]);
        assert_eq!(bench.ok(&["resume", &fork, "-q"]), "Paid.");
        assert_eq!(bench.read("paid").lines().count(), payments);
        let context = bench.json(&["show", &fork])["context"].clone();
        assert!(bench.last(&fork, "tool_result").is_some(), "the model is shown the call with its result: {context}");
        if payments == 1 {
            assert!(context.to_string().contains("receipt 17"), "{context}");
        }
    }
    bench.sound();
}
