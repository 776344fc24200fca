//! Holds, erasure and retention as a person types them.

use crate::workspace::{Bench, text};

#[test]
fn a_reason_has_words() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    for why in ["", "  "] {
        for arguments in [
            &["erase", &session, "--yes", "--why", why][..],
            &["hold", &session, "--why", why],
            &["gc", "--yes", "--why", why],
        ] {
            assert!(bench.fails(2, arguments).contains("needs words"), "{arguments:?}");
        }
    }
    for about in ["", " ", "\u{ad}"] {
        let said = bench.fails(2, &["erase", "--about", about, "--why", "ticket 12", "--yes"]);
        assert!(said.contains("--about needs words"), "{said}");
    }
    let said = bench.fails(2, &["erase", "--about", "Zo\u{eb}", "--why", "for Zoe\u{308}", "--yes"]);
    assert!(said.contains("the reason says what is to be erased"), "{said}");
    bench.ok(&["log", &session]);
}

#[test]
fn a_blob_that_was_filled_in_is_found_and_is_missed_when_it_is_lost() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    let long = format!("xylophone {}", "words ".repeat(3_000));
    bench.put("long", &long);
    bench.ok(&["add", &session, "--file", "long"]);
    bench.ok(&["export", &session, "--bundle", "without", "--no-blobs"]);
    bench.ok(&["export", &session, "--bundle", "full"]);
    bench.ok(&["init", "other"]);
    let other = |arguments: &[&str]| bench.ok(&[&["--store", "other/.rath"], arguments].concat());
    other(&["import", "bundle", "without"]);
    assert_eq!(text(&bench.run(&["--store", "other/.rath", "grep", "xylophone"]).stdout), "");
    other(&["import", "bundle", "full"]);
    assert!(other(&["grep", "xylophone"]).contains("xylophone"));
    assert!(bench.run(&["--store", "other/.rath", "doctor", "--offline"]).status.success());
    assert!(bench.run(&["--store", "other/.rath", "verify"]).status.success());
    // What came once and is missed later was lost, whatever an earlier bundle came without.
    let database = rusqlite::Connection::open(bench.path("other/.rath/rath.db")).unwrap();
    database.execute_batch("DELETE FROM blobs WHERE bytes = (SELECT max(bytes) FROM blobs)").unwrap();
    drop(database);
    let out = bench.run(&["--store", "other/.rath", "verify"]);
    let said = text(&out.stdout);
    assert!(out.status.code() == Some(3) && said.contains("is not in the store"), "{said}");
}

#[test]
fn show_says_who_erased_and_why() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try", "--message", "Ada Lovelace called."]);
    bench.ok(&["add", &session, "--as", "assistant", "Who?"]);
    bench.ok(&["add", &session, "Ada Lovelace."]);
    bench.ok(&["erase", "--about", "Ada Lovelace", "--why", "ticket 12", "--yes"]);
    let shown = bench.ok(&["show", &session]);
    let line = shown.lines().find(|line| line.contains("ticket 12")).unwrap_or_default();
    assert!(
        line.starts_with("2 records erased ") && line.contains(" by person ") && line.contains("rath show "),
        "{shown}"
    );
}

const NAME: &str = "Zebulon Quistgaard";

/// A session that wrote a name into a file, by hand or in layers.
fn wrote_a_name(bench: &Bench, layered: bool) -> String {
    bench.put("work/kept.txt", "kept");
    let session = if layered { bench.isolated() } else { bench.copied() };
    bench.sh(&session, &format!("echo '{NAME}' | tee log.txt"));
    session
}

/// The ways that copies are made here.
fn ways() -> Vec<bool> {
    if crate::local::isolates() { vec![false, true] } else { vec![false] }
}

/// Whether any file of the store has the name, squeezed in a pack or not.
fn has_name(bench: &Bench) -> bool {
    !rath_testkit::traces::find(&bench.path(".rath"), NAME).is_empty()
}

#[test]
fn a_session_that_is_erased_whole_takes_its_copy_along() {
    for layered in ways() {
        let bench = Bench::new();
        let session = wrote_a_name(&bench, layered);
        let place = bench.copy(&session);
        assert!(place.exists() && has_name(&bench));
        bench.ok(&["erase", "--about", NAME, "--derived", "--why", "ticket 12", "--yes"]);
        assert!(place.exists(), "the session goes on");
        let out = bench.run(&["erase", &session, "--why", "ticket 12", "--yes"]);
        let said = text(&out.stderr);
        assert!(out.status.success() && said.contains("1 copy of files on disk goes too"), "{said}");
        assert!(!place.exists() && !has_name(&bench), "layered: {layered}");
        bench.ok(&["sandbox", "prune", "--all"]);
        bench.ok(&["gc"]);
        bench.sound();
    }
}

#[test]
fn files_go_when_a_session_and_its_fork_were_erased_one_after_the_other() {
    for parent_first in [true, false] {
        let bench = Bench::new();
        bench.put("work/note.txt", NAME);
        let parent = bench.ok(&["new", "a", "--in", "work"]);
        let fork = bench.ok(&["fork", &parent, "why"]);
        let youngest = bench.ok(&["fork", &fork, "a fork of the fork"]);
        let order = if parent_first { [&parent, &fork, &youngest] } else { [&fork, &parent, &youngest] };
        for session in order {
            assert_eq!(bench.ok(&["cat", &format!("{youngest}:note.txt")]), NAME, "parent first: {parent_first}");
            bench.ok(&["erase", session, "--why", "ticket 12", "--yes"]);
        }
        for session in order {
            let out = bench.run(&["cat", &format!("{session}:note.txt")]);
            assert!(!out.status.success(), "parent first: {parent_first}: {}", text(&out.stdout));
        }
        assert!(!has_name(&bench), "parent first: {parent_first}");
        bench.sound();
    }
}

#[test]
fn a_hold_keeps_the_files_of_a_session_that_is_erased_already() {
    let bench = Bench::new();
    bench.put("work/note.txt", NAME);
    let parent = bench.ok(&["new", "a", "--in", "work"]);
    let fork = bench.ok(&["fork", &parent, "why"]);
    bench.ok(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    bench.ok(&["hold", &parent, "--why", "case 7"]);
    bench.ok(&["erase", &fork, "--why", "ticket 12", "--yes"]);
    assert!(has_name(&bench), "the hold covers the files");
    bench.ok(&["release", &parent, "--why", "closed"]);
    // Nothing but files is left of it.
    bench.ok(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    assert!(!has_name(&bench));
    let out = bench.run(&["erase", &parent, "--why", "ticket 12", "--yes"]);
    assert!(text(&out.stderr).contains("there is nothing to erase"));
    bench.sound();
}

#[test]
fn sessions_that_are_collected_take_their_copies_along() {
    for layered in ways() {
        let bench = Bench::new();
        let session = wrote_a_name(&bench, layered);
        let place = bench.copy(&session);
        // The clock has to go on for a while, however short.
        bench.ok(&["gc", "--older-than", "0h", "--yes"]);
        assert!(!place.exists() && !has_name(&bench), "layered: {layered}");
        let left = std::fs::read_dir(bench.path(".rath/workspaces")).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(left.iter().all(|name| !name.contains(&session)), "{left:?}");
        bench.sound();
    }
}

#[test]
fn a_size_counts_copies() {
    let bench = Bench::new();
    let old = bench.copied();
    bench.sh(&old, "head -c 3000000 /dev/zero > zeros");
    let place = bench.copy(&old);
    let new = bench.ok(&["new", "a new one"]);
    // Squeezed, the contents are next to nothing; the copy is not.
    bench.ok(&["gc", "--to-size", "2MB", "--yes"]);
    assert!(!place.exists());
    bench.ok(&["show", &new]);
}

#[test]
fn a_place_that_nobody_comes_back_to_is_pruned_and_a_bad_one_is_passed_over() {
    let bench = Bench::new();
    let (bad, good) = (wrote_a_name(&bench, false), wrote_a_name(&bench, false));
    let (bad_place, good_place) = (bench.copy(&bad), bench.copy(&good));
    std::fs::write(bad_place.with_file_name("restoring"), "no journal").unwrap();
    // As a version left it that did not take places along.
    let lost = bench.path(".rath/workspaces/01a1f076-a61f-72e7-a279-d15036f78467");
    std::fs::create_dir_all(lost.join("files")).unwrap();
    std::fs::write(lost.join("lock"), "").unwrap();
    let out = bench.run(&["sandbox", "prune", "--all"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("kept "), "{said}");
    assert!(bad_place.exists() && !good_place.exists() && !lost.exists(), "{said}");
    assert_eq!(bench.ok(&["cat", &format!("{good}:log.txt")]), NAME);
}

#[test]
fn files_are_named_that_only_a_folded_state_still_knows() {
    let bench = Bench::new();
    let session = wrote_a_name(&bench, false);
    bench.ok(&["erase", "--about", NAME, "--derived", "--why", "ticket 12", "--yes"]);
    assert_eq!(bench.ok(&["cat", &format!("{session}:log.txt")]), NAME);
    let out = bench.run(&["erase", "--about", NAME, "--why", "ticket 12", "--dry-run"]);
    let said = text(&out.stderr);
    assert!(said.contains("versions of files hold it and stay: log.txt"), "{said}");
    assert!(!said.contains("there is nothing to erase"), "{said}");
}

#[test]
fn blame_says_where_the_record_is_erased() {
    let bench = Bench::new();
    bench.put("work/kept.txt", "kept\n");
    let session = bench.copied();
    bench.sh(&session, "echo one > log.txt");
    bench.sh(&session, "echo two >> log.txt");
    bench.sh(&session, "echo three >> log.txt");
    let calls: Vec<String> = bench
        .ok(&["log", "--json", &session])
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["header"]["kind"] == "tool_finished")
        .map(|record| format!("{session}@{}", record["header"]["seq"]))
        .collect();
    let before = bench.ok(&["blame", "log.txt", "-S", &session]);
    bench.ok(&["erase", &calls[0], &calls[1], "--why", "ticket 12", "--yes"]);
    let blamed = bench.ok(&["blame", "log.txt", "-S", &session]);
    let lines: Vec<&str> = blamed.lines().collect();
    for at in 0..2 {
        assert!(lines[at].starts_with(&calls[at]) && lines[at].contains("(erased)"), "{before}\n{blamed}");
    }
    assert!(lines[2].starts_with(&calls[2]) && lines[2].contains("echo three"), "{blamed}");
    assert!(bench.ok(&["blame", "kept.txt", "-S", &session]).contains("there when the session was placed"));
    let first = bench.ok(&["--json", "blame", "log.txt:1", "-S", &session]);
    assert!(first.contains("\"erased\":true"), "{first}");
}

#[test]
fn what_goes_is_called_as_elsewhere_and_the_operators_account_takes_no_words() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    bench.ok(&["fork", &session, "another way"]);
    let said = bench.ok(&["gc", "--older-than", "0h", "--dry-run"]);
    assert!(said.contains(&format!("fork of {session}@1")), "{said}");
    bench.ok(&["hold", &session, "--why", "case 17"]);
    assert!(bench.fails(2, &["add", "operator", "x"]).contains("nothing is added"));
}
