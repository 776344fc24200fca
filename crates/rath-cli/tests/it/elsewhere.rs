//! Sessions and stores from elsewhere: nothing that was allowed there counts here.

use std::process::Command;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{Bench, command, text};

/// An agent that runs one command, told what.
fn runs(line: &str) -> String {
    format!(
        r#"
task = "Do it."
[agents.worker]
prompt = "You work."
tools = ["shell"]
[[turn]]
call = [{{ tool = "shell", arguments = {{ command = "{line}" }} }}]
[[turn]]
text = "Done."
[[turn]]
call = [{{ tool = "shell", arguments = {{ command = "{line}" }} }}]
[[turn]]
text = "Done again."
"#
    )
}

/// What runs on the host leaves this behind.
const MARK: &str = "ran";

struct Elsewhere {
    bench: Bench,
    session: String,
    question: String,
}

impl Elsewhere {
    /// A session of another store that waits for an answer before a command on the host.
    fn waiting() -> Self {
        let bench = Bench::new();
        bench.put("run.toml", runs(&format!("touch {}", bench.path(MARK).display())));
        bench.fails(5, &["run", "-a", "run.toml", "--on", "host", "--in", "work", "-q"]);
        let asked = bench.ok(&["inbox", "--json"]);
        let asked: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
        let session = asked["session"].as_str().unwrap().to_owned();
        let question = format!("{session}@{}", asked["at"]["seq"]);
        Self { bench, session, question }
    }

    /// Takes its bundle into another store, and says what that said.
    fn imported(&self) -> String {
        let Self { bench, session, .. } = self;
        bench.ok(&["export", session, "--bundle", "bundle"]);
        bench.ok(&["init", "here"]);
        let out = bench.run(&["--store", "here/.rath", "import", "bundle", "bundle"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    }

    fn here(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let out = self.bench.run(&[&["--store", "here/.rath"], arguments].concat());
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    }

    fn has_run(&self) -> bool {
        self.bench.path(MARK).exists()
    }
}

#[test]
fn a_bundle_runs_nothing_until_a_person_gives_it_a_place_and_answers() {
    let there = Elsewhere::waiting();
    there.bench.ok(&["answer", &there.question, "always"]);
    let said = there.imported();
    assert!(said.contains("on host (not isolated)") && said.contains("had 1 permission"), "{said}");
    assert!(said.contains("rath place"), "{said}");
    let session = there.session.as_str();
    for arguments in [
        &["resume", session][..],
        &["resume", session, "-y"],
        &["resume", session, "--fork"],
        &["exec", session, "--", "true"],
    ] {
        let (code, _, said) = there.here(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("came from elsewhere") && said.contains("host (not isolated)"), "{arguments:?}: {said}");
        assert!(!there.has_run(), "{arguments:?}");
    }
    let (_, state, _) = there.here(&["state", session, "--json"]);
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(state["placement"].is_null(), "{state}");
    // A person gives it a place; what it wants to do is asked again.
    let (code, _, said) = there.here(&["place", session, "--on", "host", "--in", "work"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = there.here(&["resume", session]);
    assert_eq!(code, Some(5), "{said}");
    assert!(!there.has_run());
    let (_, asked, _) = there.here(&["inbox", "--json"]);
    let asked: Vec<Value> = asked.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let question = format!("{session}@{}", asked[0]["at"]["seq"]);
    assert_ne!(question, there.question);
    assert_eq!(there.here(&["answer", &question, "yes"]).0, Some(0));
    let (code, _, said) = there.here(&["resume", session]);
    assert_eq!(code, Some(0), "{said}");
    assert!(there.has_run());
    assert_eq!(there.here(&["verify"]).0, Some(0));
}

#[test]
fn a_question_of_elsewhere_is_not_answered_here() {
    let there = Elsewhere::waiting();
    there.imported();
    let (_, asked, _) = there.here(&["inbox", "--json"]);
    assert_eq!(asked, "");
    let (code, _, said) = there.here(&["answer", &there.question, "yes"]);
    assert!(code == Some(1) && said.contains("was asked elsewhere"), "{said}");
    assert!(!there.has_run());
    assert_eq!(there.here(&["resume", &there.session, "-y"]).0, Some(1));
    assert!(!there.has_run());
}

#[test]
fn a_run_that_is_over_goes_on_only_after_it_was_given_a_place() {
    let there = Elsewhere::waiting();
    there.bench.ok(&["answer", &there.question, "always"]);
    there.bench.ok(&["resume", &there.session]);
    std::fs::remove_file(there.bench.path(MARK)).unwrap();
    there.imported();
    let (code, _, said) = there.here(&["run", "--continue", &there.session, "Again."]);
    assert!(code == Some(1) && said.contains("came from elsewhere"), "{said}");
    assert!(!there.has_run());
    assert_eq!(there.here(&["place", &there.session, "--on", "host", "--in", "work"]).0, Some(0));
    let (code, _, said) = there.here(&["resume", &there.session]);
    assert_eq!(code, Some(5), "the permission of there does not count: {said}");
    assert!(!there.has_run());
}

#[test]
fn a_fork_inherits_nothing_of_elsewhere() {
    let there = Elsewhere::waiting();
    there.bench.ok(&["answer", &there.question, "always"]);
    there.imported();
    for point in [there.session.clone(), format!("{}@3", there.session), there.question.clone()] {
        let (code, fork, said) = there.here(&["fork", &point, "why"]);
        assert_eq!(code, Some(0), "{said}");
        let fork = fork.trim();
        let (_, state, _) = there.here(&["state", fork, "--json"]);
        let state: Value = serde_json::from_str(&state).unwrap();
        assert!(state["placement"].is_null() && state["granted"].as_array().is_none_or(Vec::is_empty), "{state}");
        let (code, _, said) = there.here(&["exec", fork, "--", "true"]);
        assert!(code == Some(1) && said.contains("came from elsewhere"), "{said}");
        let (code, _, said) = there.here(&["fork", fork, "once more"]);
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(there.here(&["verify"]).0, Some(0));
}

#[test]
fn a_session_of_this_store_that_went_on_elsewhere_starts_over() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.ok(&["export", &session, "--bundle", "there"]);
    bench.ok(&["init", "other"]);
    let other = |arguments: &[&str]| bench.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "there"]);
    other(&["add", &session, "More of it."]);
    other(&["place", &session, "--on", "host", "--in-place", "work"]);
    other(&["export", &session, "--bundle", "back"]);
    assert!(bench.run(&["exec", &session, "--", "true"]).status.success());
    // What went on here, too, is kept as a fork.
    let said = text(&bench.run(&["import", "bundle", "back", "--as-fork"]).stdout);
    assert!(said.contains("kept as fork"), "{said}");
    let rows = bench.ok(&["log", "--json"]);
    let mut rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    let fork = rows.find(|row| !row["origin"].is_null()).unwrap()["id"].as_str().unwrap().to_owned();
    let said = bench.fails(1, &["exec", &fork, "--", "true"]);
    assert!(said.contains("came from elsewhere"), "{said}");
    assert!(bench.run(&["exec", &session, "--", "true"]).status.success(), "this line is of here");
    bench.sound();
}

#[test]
fn records_that_go_on_with_a_session_of_this_store_take_its_place() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.ok(&["export", &session, "--bundle", "there"]);
    bench.ok(&["init", "other"]);
    let other = |arguments: &[&str]| bench.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "there"]);
    other(&["add", &session, "More of it."]);
    other(&["export", &session, "--bundle", "back"]);
    bench.ok(&["import", "bundle", "back"]);
    let said = bench.fails(1, &["exec", &session, "--", "true"]);
    assert!(said.contains("came from elsewhere"), "{said}");
    bench.ok(&["place", &session, "--on", "host", "--in", "work"]);
    bench.ok(&["exec", &session, "--", "true"]);
    bench.sound();
}

#[test]
fn in_place_elsewhere_is_no_directory_of_here() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/mine", "mine");
    bench.put("run.toml", runs("rm mine"));
    bench.ok(&["run", "-a", "run.toml", "--in", "work", "--in-place", "-q", "-y"]);
    let rows = bench.ok(&["log", "--json"]);
    let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    let session = row["id"].as_str().unwrap();
    bench.ok(&["export", session, "--bundle", "bundle"]);
    bench.ok(&["init", "here"]);
    bench.put("work/mine", "mine");
    let said = text(&bench.run(&["--store", "here/.rath", "import", "bundle", "bundle"]).stderr);
    assert!(said.contains("in place in"), "{said}");
    bench.fails(1, &["--store", "here/.rath", "exec", session, "--", "rm", "mine"]);
    assert_eq!(bench.read("work/mine"), "mine");
}

/// Copies a store, as a person would.
fn copy(bench: &Bench, to: &str) {
    std::fs::create_dir_all(bench.path(to)).unwrap();
    let copied = Command::new("cp").arg("-a").arg(bench.path(".rath")).arg(bench.path(to)).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_store_of_another_user_runs_nothing_and_one_that_was_moved_is_ours() {
    let there = Elsewhere::waiting();
    let Elsewhere { bench, session, question } = &there;
    bench.ok(&["answer", question, "always"]);
    copy(bench, "moved");
    copy(bench, "theirs");
    // Whoever has another home is another user.
    let as_another = |arguments: &[&str]| {
        let arguments = [&["--store", "theirs/.rath"], arguments].concat();
        let out = command(bench.root(), &arguments).env("HOME", bench.path("theirs")).output().unwrap();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (_, state, _) = as_another(&["state", session, "--json"]);
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(state["placement"].is_null(), "{state}");
    let (code, fork, said) = as_another(&["fork", session, "before it is ours"]);
    assert_eq!(code, Some(0), "{said}");
    for arguments in [&["resume", session][..], &["exec", session, "--", "true"], &["exec", fork.trim(), "--", "true"]]
    {
        let (code, _, said) = as_another(arguments);
        assert!(code == Some(1) && said.contains("came from elsewhere"), "{arguments:?}: {said}");
        assert!(!there.has_run());
    }
    let (code, _, said) = as_another(&["place", session, "--on", "host", "--in", "work"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(as_another(&["exec", session, "--", "true"]).0, Some(0));
    assert_eq!(as_another(&["verify"]).0, Some(0));
    // Now it is theirs, and no longer ours.
    let (code, _, said) = {
        let out = bench.run(&["--store", "theirs/.rath", "exec", session, "--", "true"]);
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    assert!(code == Some(1) && said.contains("came from elsewhere"), "{said}");
    let out = bench.run(&["--store", "moved/.rath", "resume", session]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(there.has_run());
}

#[test]
fn a_verifier_that_was_exchanged_is_named() {
    let there = Elsewhere::waiting();
    there.bench.ok(&["export", &there.session, "--bundle", "bundle"]);
    let path = there.bench.path("bundle/verify.py");
    std::fs::write(&path, "print('sound')\n").unwrap();
    let sums = there.bench.read("bundle/SHA256SUMS");
    let fresh = rath::Digest::of(b"print('sound')\n");
    let line = |line: &str| match line.ends_with("  verify.py") {
        true => format!("{fresh}  verify.py\n"),
        false => format!("{line}\n"),
    };
    there.bench.put("bundle/SHA256SUMS", sums.lines().map(line).collect::<String>());
    there.bench.ok(&["init", "here"]);
    let (code, _, said) = there.here(&["import", "bundle", "bundle"]);
    assert!(code == Some(0) && said.contains("verify.py in the bundle is not one"), "{said}");
}

#[test]
fn nobody_writes_to_the_operator_session_by_hand() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try", "--message", "hi"]);
    bench.ok(&["hold", &session, "--why", "case 7"]);
    bench.ok(&["release", &session, "--why", "closed"]);
    for arguments in [
        &["close", "operator"][..],
        &["label", "operator", "--title", "mine"],
        &["say", "operator", "Ada Lovelace called."],
        &["merge", "operator", &session],
        &["merge", &session, "operator"],
        &["cancel", "operator"],
        &["place", "operator", "--in", "work"],
    ] {
        let before = bench.ok(&["log", "--json", "operator"]);
        let out = bench.run(arguments);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("operator session"), "{arguments:?}: {said}");
        assert_eq!(bench.ok(&["log", "--json", "operator"]), before, "{arguments:?}");
    }
    bench.ok(&["erase", &session, "--why", "ticket 12", "--yes"]);
    bench.sound();
}

#[test]
fn an_operator_session_that_was_closed_goes_on() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("closed")).unwrap();
    // Made by commit 7edc415: `rath close operator` after a hold.
    let database = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/operator-closed.db");
    std::fs::copy(database, bench.path("closed/rath.db")).unwrap();
    let on = |arguments: &[&str]| bench.ok(&[&["--store", "closed"], arguments].concat());
    let rows = on(&["log", "--json"]);
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let session = rows.iter().find(|row| row["title"] == "t").unwrap()["id"].as_str().unwrap().to_owned();
    on(&["hold", &session, "--why", "case 8"]);
    on(&["release", &session, "--why", "closed"]);
    on(&["checkpoint"]);
    on(&["erase", &session, "--why", "ticket 12", "--yes"]);
    let kinds = on(&["log", "--json", "operator"]);
    let kinds = kinds.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kinds: Vec<_> = kinds.map(|record| record["header"]["kind"].as_str().unwrap().to_owned()).collect();
    let closed = kinds.iter().position(|kind| kind == "closed").unwrap();
    assert_eq!(kinds[closed + 1..], ["note", "held", "released", "checkpointed", "erased"]);
    on(&["verify"]);
    on(&["doctor", "--offline"]);
    on(&["export", "operator", "--bundle", "account"]);
    let python = Command::new("python3").arg(bench.path("account/verify.py")).arg(bench.path("account")).output();
    if let Ok(out) = python {
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    }
}
