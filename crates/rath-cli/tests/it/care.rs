//! Holds, erasure and retention from the command line.

use crate::workspace::{TestProject, text};

#[test]
fn a_reason_must_not_be_empty() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    for why in ["", "  "] {
        for arguments in [
            &["erase", &session, "--yes", "--why", why][..],
            &["hold", &session, "--why", why],
            &["gc", "--yes", "--why", why],
        ] {
            assert!(project.fails(2, arguments).contains("must not be empty"), "{arguments:?}");
        }
    }
    for about in ["", " ", "\u{ad}"] {
        let said = project.fails(2, &["erase", "--about", about, "--why", "ticket 12", "--yes"]);
        assert!(said.contains("--about needs a text"), "{said}");
    }
    let said = project.fails(2, &["erase", "--about", "Zo\u{eb}", "--why", "for Zoe\u{308}", "--yes"]);
    assert!(said.contains("the reason contains what is to be erased"), "{said}");
    project.ok(&["log", &session]);
}

#[test]
fn a_blob_added_by_an_import_is_searchable_and_its_loss_is_detected() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    let long = format!("xylophone {}", "words ".repeat(3_000));
    project.put("long", &long);
    project.ok(&["add", &session, "--file", "long"]);
    project.ok(&["export", &session, "--bundle", "without", "--no-blobs"]);
    project.ok(&["export", &session, "--bundle", "full"]);
    project.ok(&["init", "other"]);
    let other = |arguments: &[&str]| project.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "without"]);
    assert_eq!(text(&project.run(&["--store", "other/.rath", "grep", "xylophone"]).stdout), "");
    other(&["import", "bundle", "full"]);
    assert!(other(&["grep", "xylophone"]).contains("xylophone"));
    assert!(project.run(&["--store", "other/.rath", "doctor", "--offline"]).status.success());
    assert!(project.run(&["--store", "other/.rath", "verify"]).status.success());
    // The blob was present once, so its absence now is a loss, although an earlier bundle lacked it.
    let database = rusqlite::Connection::open(project.path("other/.rath/rath.db")).unwrap();
    database.execute_batch("DELETE FROM blobs WHERE bytes = (SELECT max(bytes) FROM blobs)").unwrap();
    drop(database);
    let out = project.run(&["--store", "other/.rath", "verify"]);
    let said = text(&out.stdout);
    assert!(out.status.code() == Some(3) && said.contains("is not in the store"), "{said}");
}

#[test]
fn show_names_who_erased_a_record_and_why() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try", "--message", "Ada Lovelace called."]);
    project.ok(&["add", &session, "--as", "assistant", "Who?"]);
    project.ok(&["add", &session, "Ada Lovelace."]);
    project.ok(&["erase", "--about", "Ada Lovelace", "--why", "ticket 12", "--yes"]);
    let shown = project.ok(&["show", &session]);
    let line = shown.lines().find(|line| line.contains("ticket 12")).unwrap_or_default();
    assert!(
        line.starts_with("2 records erased ") && line.contains(" by person ") && line.contains("rath show "),
        "{shown}"
    );
}

const NAME: &str = "Zebulon Quistgaard";

/// A session that wrote a name into a file of its copy, which is plain or an overlay.
fn wrote_a_name(project: &TestProject, layered: bool) -> String {
    project.put("work/kept.txt", "kept");
    let session = if layered { project.isolated() } else { project.copied() };
    project.sh(&session, &format!("echo '{NAME}' | tee log.txt"));
    session
}

/// The kinds of copies on this machine: whether they are isolated overlays.
fn ways() -> Vec<bool> {
    if crate::local::isolates() { vec![false, true] } else { vec![false] }
}

/// Whether any file of the store contains the name, compressed in a pack or not.
fn has_name(project: &TestProject) -> bool {
    !rath_testkit::traces::find(&project.path(".rath"), NAME).is_empty()
}

#[test]
fn erasing_a_whole_session_removes_its_copy_of_files() {
    for layered in ways() {
        let project = TestProject::new();
        let session = wrote_a_name(&project, layered);
        let place = project.copy(&session);
        assert!(place.exists() && has_name(&project));
        project.ok(&["erase", "--about", NAME, "--derived", "--why", "ticket 12", "--yes"]);
        assert!(place.exists(), "the session goes on");
        let out = project.run(&["erase", &session, "--why", "ticket 12", "--yes"]);
        let said = text(&out.stderr);
        assert!(out.status.success() && said.contains("1 copy of files on disk goes too"), "{said}");
        assert!(!place.exists() && !has_name(&project), "layered: {layered}");
        project.ok(&["sandbox", "prune", "--all"]);
        project.ok(&["gc"]);
        project.sound();
    }
}

#[test]
fn erasing_a_session_and_its_fork_in_turn_removes_their_files() {
    for parent_first in [true, false] {
        let project = TestProject::new();
        project.put("work/note.txt", NAME);
        let parent = project.ok(&["new", "a", "--in", "work"]);
        let fork = project.ok(&["fork", &parent, "why"]);
        let youngest = project.ok(&["fork", &fork, "a fork of the fork"]);
        let order = if parent_first { [&parent, &fork, &youngest] } else { [&fork, &parent, &youngest] };
        for session in order {
            assert_eq!(project.ok(&["cat", &format!("{youngest}:note.txt")]), NAME, "parent first: {parent_first}");
            project.ok(&["erase", session, "--why", "ticket 12", "--yes"]);
        }
        for session in order {
            let out = project.run(&["cat", &format!("{session}:note.txt")]);
            assert!(!out.status.success(), "parent first: {parent_first}: {}", text(&out.stdout));
        }
        assert!(!has_name(&project), "parent first: {parent_first}");
        project.sound();
    }
}

#[test]
fn a_hold_protects_the_files_of_an_erased_session() {
    let project = TestProject::new();
    project.put("work/note.txt", NAME);
    let parent = project.ok(&["new", "a", "--in", "work"]);
    let fork = project.ok(&["fork", &parent, "why"]);
    project.ok(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    project.ok(&["hold", &parent, "--why", "case 7"]);
    project.ok(&["erase", &fork, "--why", "ticket 12", "--yes"]);
    assert!(has_name(&project), "the hold covers the files");
    project.ok(&["release", &parent, "--why", "closed"]);
    // Only its files are left.
    project.ok(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    assert!(!has_name(&project));
    let out = project.run(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    assert!(text(&out.stderr).contains("there is nothing to erase"));
    project.sound();
}

#[test]
fn deleted_sessions_lose_their_copies_of_files() {
    for layered in ways() {
        let project = TestProject::new();
        let session = wrote_a_name(&project, layered);
        let place = project.copy(&session);
        // The clock must advance.
        project.ok(&["gc", "--older-than", "0h", "--yes"]);
        assert!(!place.exists() && !has_name(&project), "layered: {layered}");
        let left = std::fs::read_dir(project.path(".rath/workspaces")).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(left.iter().all(|name| !name.contains(&session)), "{left:?}");
        project.sound();
    }
}

#[test]
fn a_size_limit_includes_copies_of_files() {
    let project = TestProject::new();
    let old = project.copied();
    project.sh(&old, "head -c 3000000 /dev/zero > zeros");
    let place = project.copy(&old);
    let new = project.ok(&["new", "a new one"]);
    // Compressed, the contents are small; the copy is not.
    project.ok(&["gc", "--to-size", "2MB", "--yes"]);
    assert!(!place.exists());
    project.ok(&["show", &new]);
}

#[test]
fn an_abandoned_workspace_is_pruned_and_an_unreadable_one_is_skipped() {
    let project = TestProject::new();
    let (bad, good) = (wrote_a_name(&project, false), wrote_a_name(&project, false));
    let (bad_place, good_place) = (project.copy(&bad), project.copy(&good));
    std::fs::write(bad_place.with_file_name("restoring"), "no journal").unwrap();
    // An earlier version of rath did not remove workspaces.
    let lost = project.path(".rath/workspaces/01a1f076-a61f-72e7-a279-d15036f78467");
    std::fs::create_dir_all(lost.join("files")).unwrap();
    std::fs::write(lost.join("lock"), "").unwrap();
    let out = project.run(&["sandbox", "prune", "--all"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("kept "), "{said}");
    assert!(bad_place.exists() && !good_place.exists() && !lost.exists(), "{said}");
    assert_eq!(project.ok(&["cat", &format!("{good}:log.txt")]), NAME);
}

#[test]
fn files_that_only_a_folded_state_references_are_kept() {
    let project = TestProject::new();
    let session = wrote_a_name(&project, false);
    project.ok(&["erase", "--about", NAME, "--derived", "--why", "ticket 12", "--yes"]);
    assert_eq!(project.ok(&["cat", &format!("{session}:log.txt")]), NAME);
    let out = project.run(&["erase", "--about", NAME, "--why", "ticket 12", "--dry-run"]);
    let said = text(&out.stderr);
    assert!(said.contains("versions of files contain it and stay: log.txt"), "{said}");
    assert!(!said.contains("there is nothing to erase"), "{said}");
}

#[test]
fn blame_marks_lines_of_erased_records() {
    let project = TestProject::new();
    project.put("work/kept.txt", "kept\n");
    let session = project.copied();
    project.sh(&session, "echo one > log.txt");
    project.sh(&session, "echo two >> log.txt");
    project.sh(&session, "echo three >> log.txt");
    let calls: Vec<String> = crate::workspace::lines(&project.ok(&["log", "--json", &session]))
        .into_iter()
        .filter(|record| record["header"]["kind"] == "tool_finished")
        .map(|record| format!("{session}@{}", record["header"]["seq"]))
        .collect();
    let before = project.ok(&["blame", "log.txt", "-S", &session]);
    project.ok(&["erase", &calls[0], &calls[1], "--why", "ticket 12", "--yes"]);
    let blamed = project.ok(&["blame", "log.txt", "-S", &session]);
    let lines: Vec<&str> = blamed.lines().collect();
    for at in 0..2 {
        assert!(lines[at].starts_with(&calls[at]) && lines[at].contains("(erased)"), "{before}\n{blamed}");
    }
    assert!(lines[2].starts_with(&calls[2]) && lines[2].contains("echo three"), "{blamed}");
    assert!(project.ok(&["blame", "kept.txt", "-S", &session]).contains("kept"));
    let first = project.ok(&["--json", "blame", "log.txt:1", "-S", &session]);
    assert!(first.contains("\"erased\":true"), "{first}");
}

#[test]
fn deletions_name_sessions_like_lists_do_and_the_audit_session_takes_no_messages() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    project.ok(&["fork", &session, "another way"]);
    let said = project.ok(&["gc", "--older-than", "0h", "--dry-run"]);
    assert!(said.contains(&format!("fork of {session}@1")), "{said}");
    project.ok(&["hold", &session, "--why", "case 17"]);
    assert!(project.fails(1, &["add", "operator", "x"]).contains("operator-session"));
}
