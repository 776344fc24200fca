//! Imported sessions and stores of other users: their workspaces and permissions have no effect here.

use std::process::Command;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{TestProject, command, lines, text};

/// An agent that runs this command.
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

/// The file that the command creates on the host.
const MARK: &str = "ran";

struct Elsewhere {
    project: TestProject,
    session: String,
    question: String,
}

impl Elsewhere {
    /// A session of another store that waits for an answer before a command on the host.
    fn waiting() -> Self {
        let project = TestProject::new();
        project.put("run.toml", runs(&format!("touch {}", project.path(MARK).display())));
        project.fails(5, &["run", "-a", "run.toml", "--on", "host", "--in", "work", "-q"]);
        let asked = project.ok(&["inbox", "--json"]);
        let asked = lines(&asked).remove(0);
        let session = asked["session"].as_str().unwrap().to_owned();
        let question = format!("{session}@{}", asked["at"]["seq"]);
        Self { project, session, question }
    }

    /// Imports its bundle into another store, and returns the output.
    fn imported(&self) -> String {
        let Self { project, session, .. } = self;
        project.ok(&["export", session, "--bundle", "bundle"]);
        project.ok(&["init", "here"]);
        let out = project.run(&["--store", "here/.rath", "import", "bundle", "bundle"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    }

    fn here(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let out = self.project.run(&[&["--store", "here/.rath"], arguments].concat());
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    }

    fn has_run(&self) -> bool {
        self.project.path(MARK).exists()
    }
}

#[test]
fn an_imported_session_runs_nothing_without_a_workspace_and_an_answer() {
    let there = Elsewhere::waiting();
    there.project.ok(&["answer", &there.question, "always"]);
    let said = there.imported();
    assert!(said.contains("on host (not isolated)") && said.contains("had 1 permission"), "{said}");
    assert!(said.contains("rath workspace set"), "{said}");
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
    // The user sets a workspace; the call needs approval again.
    let (code, _, said) = there.here(&["place", session, "--on", "host", "--in", "work"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = there.here(&["resume", session]);
    assert_eq!(code, Some(5), "{said}");
    assert!(!there.has_run());
    let (_, asked, _) = there.here(&["inbox", "--json"]);
    let asked = lines(&asked);
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
fn a_question_of_an_imported_session_is_not_answered_here() {
    let there = Elsewhere::waiting();
    there.imported();
    let (_, asked, _) = there.here(&["inbox", "--json"]);
    assert!(lines(&asked).is_empty(), "{asked}");
    let (code, _, said) = there.here(&["answer", &there.question, "yes"]);
    assert!(code == Some(1) && said.contains("was asked in another store"), "{said}");
    assert!(!there.has_run());
    assert_eq!(there.here(&["resume", &there.session, "-y"]).0, Some(1));
    assert!(!there.has_run());
}

#[test]
fn an_imported_run_continues_only_after_its_workspace_is_set() {
    let there = Elsewhere::waiting();
    there.project.ok(&["answer", &there.question, "always"]);
    there.project.ok(&["resume", &there.session]);
    std::fs::remove_file(there.project.path(MARK)).unwrap();
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
fn a_fork_of_an_imported_session_inherits_no_permissions() {
    let there = Elsewhere::waiting();
    there.project.ok(&["answer", &there.question, "always"]);
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
fn a_session_extended_elsewhere_needs_a_new_workspace() {
    let project = TestProject::new();
    let session = project.copied();
    project.ok(&["export", &session, "--bundle", "there"]);
    project.ok(&["init", "other"]);
    let other = |arguments: &[&str]| project.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "there"]);
    other(&["add", &session, "More of it."]);
    other(&["place", &session, "--on", "host", "--in-place", "work"]);
    other(&["export", &session, "--bundle", "back"]);
    assert!(project.run(&["exec", &session, "--", "true"]).status.success());
    // The session was extended here too, so the bundle's records become a fork.
    let said = text(&project.run(&["import", "bundle", "back", "--as-fork"]).stdout);
    assert!(said.contains("imported as fork"), "{said}");
    let rows = project.ok(&["ls", "--json", "--all"]);
    let fork =
        lines(&rows).into_iter().find(|row| !row["origin"].is_null()).unwrap()["id"].as_str().unwrap().to_owned();
    let said = project.fails(1, &["exec", &fork, "--", "true"]);
    assert!(said.contains("came from elsewhere"), "{said}");
    assert!(project.run(&["exec", &session, "--", "true"]).status.success(), "this line is of here");
    project.sound();
}

#[test]
fn imported_records_that_extend_a_session_remove_its_workspace() {
    let project = TestProject::new();
    let session = project.copied();
    project.ok(&["export", &session, "--bundle", "there"]);
    project.ok(&["init", "other"]);
    let other = |arguments: &[&str]| project.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "there"]);
    other(&["add", &session, "More of it."]);
    other(&["export", &session, "--bundle", "back"]);
    project.ok(&["import", "bundle", "back"]);
    let said = project.fails(1, &["exec", &session, "--", "true"]);
    assert!(said.contains("came from elsewhere"), "{said}");
    project.ok(&["place", &session, "--on", "host", "--in", "work"]);
    project.ok(&["exec", &session, "--", "true"]);
    project.sound();
}

#[test]
fn an_imported_in_place_session_does_not_touch_a_directory_here() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/mine", "mine");
    project.put("run.toml", runs("rm mine"));
    project.ok(&["run", "-a", "run.toml", "--in", "work", "--in-place", "-q", "-y"]);
    let rows = project.ok(&["ls", "--json", "--all"]);
    let row = lines(&rows).remove(0);
    let session = row["id"].as_str().unwrap();
    project.ok(&["export", session, "--bundle", "bundle"]);
    project.ok(&["init", "here"]);
    project.put("work/mine", "mine");
    let said = text(&project.run(&["--store", "here/.rath", "import", "bundle", "bundle"]).stderr);
    assert!(said.contains("in place in"), "{said}");
    project.fails(1, &["--store", "here/.rath", "exec", session, "--", "rm", "mine"]);
    assert_eq!(project.read("work/mine"), "mine");
}

/// Copies a store, like `cp -r`.
fn copy(project: &TestProject, to: &str) {
    std::fs::create_dir_all(project.path(to)).unwrap();
    let copied = Command::new("cp").arg("-a").arg(project.path(".rath")).arg(project.path(to)).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_store_of_another_user_runs_nothing_and_a_moved_one_still_works() {
    let there = Elsewhere::waiting();
    let Elsewhere { project, session, question } = &there;
    project.ok(&["answer", question, "always"]);
    copy(project, "moved");
    copy(project, "theirs");
    // Another home directory counts as another user.
    let as_another = |arguments: &[&str]| {
        let arguments = [&["--store", "theirs/.rath"], arguments].concat();
        let out = command(project.root(), &arguments).env("HOME", project.path("theirs")).output().unwrap();
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
    // Now the store belongs to the other user.
    let (code, _, said) = {
        let out = project.run(&["--store", "theirs/.rath", "exec", session, "--", "true"]);
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    assert!(code == Some(1) && said.contains("came from elsewhere"), "{said}");
    let out = project.run(&["--store", "moved/.rath", "resume", session]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(there.has_run());
}

#[test]
fn a_replaced_verifier_is_reported() {
    let there = Elsewhere::waiting();
    there.project.ok(&["export", &there.session, "--bundle", "bundle"]);
    let path = there.project.path("bundle/verify.py");
    std::fs::write(&path, "print('sound')\n").unwrap();
    let sums = there.project.read("bundle/SHA256SUMS");
    let fresh = rath::Digest::of(b"print('sound')\n");
    let line = |line: &str| match line.ends_with("  verify.py") {
        true => format!("{fresh}  verify.py\n"),
        false => format!("{line}\n"),
    };
    there.project.put("bundle/SHA256SUMS", sums.lines().map(line).collect::<String>());
    there.project.ok(&["init", "here"]);
    let (code, _, said) = there.here(&["import", "bundle", "bundle"]);
    assert!(code == Some(0) && said.contains("verify.py in the bundle is not one"), "{said}");
}

#[test]
fn the_audit_session_refuses_writes() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try", "--message", "hi"]);
    project.ok(&["hold", &session, "--why", "case 7"]);
    project.ok(&["release", &session, "--why", "closed"]);
    for arguments in [
        &["close", "operator"][..],
        &["label", "operator", "--title", "mine"],
        &["say", "operator", "Ada Lovelace called."],
        &["merge", "operator", &session],
        &["merge", &session, "operator"],
        &["cancel", "operator"],
        &["place", "operator", "--in", "work"],
    ] {
        let before = project.ok(&["log", "--json", "operator"]);
        let out = project.run(arguments);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("operator session"), "{arguments:?}: {said}");
        assert_eq!(project.ok(&["log", "--json", "operator"]), before, "{arguments:?}");
    }
    project.ok(&["erase", &session, "--why", "ticket 12", "--yes"]);
    project.sound();
}

#[test]
fn a_closed_audit_session_is_continued() {
    let project = TestProject::new();
    std::fs::create_dir(project.path("closed")).unwrap();
    // Made by commit 7edc415: `rath close operator` after a hold.
    let database = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/operator-closed.db");
    std::fs::copy(database, project.path("closed/rath.db")).unwrap();
    let on = |arguments: &[&str]| project.ok(&[&["--store", "closed"], arguments].concat());
    let rows = on(&["ls", "--json", "--all"]);
    let rows = lines(&rows);
    let session = rows.iter().find(|row| row["title"] == "t").unwrap()["id"].as_str().unwrap().to_owned();
    on(&["hold", &session, "--why", "case 8"]);
    on(&["release", &session, "--why", "closed"]);
    on(&["checkpoint"]);
    on(&["erase", &session, "--why", "ticket 12", "--yes"]);
    let kinds = on(&["log", "--json", "operator"]);
    let kinds: Vec<_> =
        lines(&kinds).iter().map(|record| record["header"]["kind"].as_str().unwrap().to_owned()).collect();
    let closed = kinds.iter().position(|kind| kind == "closed").unwrap();
    assert_eq!(kinds[closed + 1..], ["note", "held", "released", "checkpointed", "erased"]);
    on(&["verify"]);
    on(&["doctor", "--offline"]);
    on(&["export", "operator", "--bundle", "account"]);
    let python = Command::new("python3").arg(project.path("account/verify.py")).arg(project.path("account")).output();
    if let Ok(out) = python {
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    }
}
