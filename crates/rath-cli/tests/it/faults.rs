//! What a person reads when the disk is full, fails, takes nothing or was damaged, and when a process stands still.

use std::fs;
use std::path::Path;

use rath_testkit::faults::Faults;
use rustix::process::{Pid, Signal, kill_process};

use crate::workspace::{Bench, command, text, wait_for};

/// Runs a command whose files fail by these rules. Its exit code, and what it said.
fn failing(bench: &Bench, rules: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(bench.root(), arguments);
    let out = Faults::new(rules).load(&mut command, &bench.path(".rath")).output().unwrap();
    let said = text(&out.stderr);
    assert!(!said.contains("panicked"), "{said}");
    (out.status.code(), said)
}

/// An error, what to do about it, and where to read on.
fn says(said: &str, error: &str, help: &str, code: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(error), "{said}");
    assert!(lines[1].starts_with("  help: ") && lines[1].contains(help), "{said}");
    assert_eq!(lines[2], format!("  help: rath explain {code}"), "{said}");
}

#[test]
fn what_a_disk_refuses_is_said_and_loses_nothing() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    assert_eq!(bench.ok(&["add", &session, "first"]), format!("{session}@2"));
    // What gets little enough would not go into a pack.
    bench.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    let add = ["add", &session, "second"];
    for (rules, error, help, code) in [
        ("write rath.db-wal 28", "full", "free some space", "disk-full"),
        ("write .new 28", "No space left", "free some space", "disk-full"),
        ("sync rath.db-wal 5", "disk I/O error", "another disk", "disk-failed"),
        ("open rath.db 30", "readonly", "permissions", "read-only-store"),
        ("open rath.db 13", "readonly", "permissions", "read-only-store"),
    ] {
        let (exit, said) = failing(&bench, rules, &add);
        assert_eq!(exit, Some(1), "{rules}: {said}");
        says(&said, error, help, code);
        // Who only reads goes on.
        let (exit, said) = failing(&bench, rules, &["log", &session]);
        assert_eq!(exit, Some(0), "{rules}: {said}");
        let (_, said) = failing(&bench, rules, &["--json", "add", &session, "second"]);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{rules}: {said}"));
        assert_eq!(value["error"]["code"], code);
        assert!(value["error"]["help"].as_str().unwrap().contains(help));
    }
    let (exit, said) = failing(&bench, "write .pack 28", &["add", &session, "--file", "large"]);
    assert_eq!(exit, Some(1), "{said}");
    says(&said, "writing a blob", "free some space", "disk-full");
    bench.sound();
    assert_eq!(bench.ok(&["add", &session, "second"]), format!("{session}@3"));
    bench.sound();
}

#[test]
fn an_erasure_that_stops_half_way_is_told_until_it_is_finished() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    let secret: String = (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    bench.put("large", &secret);
    bench.ok(&["add", &session, "--file", "large"]);
    let doctor = || {
        let out = bench.run(&["--json", "doctor", "--offline"]);
        (out.status.code(), serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap())
    };
    let (exit, told) = doctor();
    assert_eq!((exit, &told["well"], &told["unfinished_erasure"]), (Some(0), &true.into(), &().into()));
    let place = format!("{session}@2");
    let (exit, said) = failing(&bench, "write .pack 28", &["erase", &place, "--why", "ticket 12", "--yes"]);
    assert_eq!(exit, Some(1), "{said}");
    let error = said.find("error: ").map(|at| said[at..].to_owned()).unwrap_or_default();
    says(&error, "on the record and not finished", "`rath erase --finish`", "erasure-unfinished");
    // What it said may still be there: nobody is told that all is well.
    for _ in 0..2 {
        let out = bench.run(&["verify"]);
        assert!(out.status.success() && text(&out.stderr).contains("`rath erase --finish`"), "{}", text(&out.stderr));
        let (exit, told) = doctor();
        assert_eq!((exit, &told["well"], &told["store_well"]), (Some(3), &false.into(), &false.into()));
        assert!(told["unfinished_erasure"].as_str().unwrap().starts_with("1 erasure is on the record and not"));
        let said = text(&bench.run(&["doctor", "--offline"]).stdout);
        assert!(said.contains("`rath erase --finish`") && !said.contains("the store is well"), "{said}");
        // Nor is a signature given for what is about to go.
        says(
            &bench.fails(1, &["checkpoint"]),
            "an erasure is on the record",
            "`rath erase --finish`",
            "erasure-unfinished",
        );
        let (exit, _) = failing(&bench, "write .pack 28", &["erase", "--finish"]);
        assert_eq!(exit, Some(1));
    }
    bench.ok(&["erase", "--finish"]);
    let (exit, told) = doctor();
    assert_eq!((exit, &told["well"], &told["unfinished_erasure"]), (Some(0), &true.into(), &().into()));
    let out = bench.run(&["verify"]);
    assert!(out.status.success() && !text(&out.stderr).contains("--finish"), "{}", text(&out.stderr));
}

#[test]
fn a_bundle_of_which_a_part_came_is_told_until_the_rest_is_here() {
    let bench = Bench::new();
    let line = format!("{{\"role\":\"user\",\"content\":\"{}\"}}\n", "x".repeat(8000));
    bench.put("long.jsonl", line.repeat(5000));
    let session = bench.ok(&["import", "jsonl", "long.jsonl"]);
    bench.ok(&["export", &session, "--bundle", "bundle"]);
    // One of its syncs fails behind the first part of it, and before the last. What was not acknowledged may be there.
    let store = (3..12)
        .find_map(|after| {
            let store = format!("other-{after}/.rath");
            bench.ok(&["init", &format!("other-{after}")]);
            let mut command = command(bench.root(), &["--store", &store, "import", "bundle", "bundle"]);
            let faults = Faults::new(format!("sync rath.db-wal 5 after {after}"));
            let out = faults.load(&mut command, &bench.path(&store)).output().unwrap();
            let said = text(&out.stderr);
            let (before, behind) = said.split_once(" of 5002 records were taken in, then: ")?;
            assert!(behind.contains("import the bundle again: it goes on there"), "{said}");
            let taken: u64 = before.rsplit(' ').next()?.parse().ok()?;
            let is_part = bench.run(&["--store", &store, "doctor", "--offline"]).status.code() == Some(3);
            assert_eq!(out.status.code(), Some(1), "{said}");
            (taken > 0 && is_part).then_some(store)
        })
        .unwrap();
    let import = ["--store", &store, "import", "bundle", "bundle"];
    let other = |arguments: &[&str]| bench.run(&[&["--store", &store], arguments].concat());
    let part = format!("bundle was not taken in whole: {session} has ");
    let out = other(&["doctor", "--offline"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stdout).contains(&part), "{}", text(&out.stdout));
    let out = other(&["--json", "doctor", "--offline"]);
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["unfinished_imports"][0]["sessions"][0]["of"], 5002);
    let out = other(&["verify"]);
    assert!(out.status.success() && text(&out.stderr).contains(&part), "{}", text(&out.stderr));
    bench.ok(&import);
    let out = other(&["verify"]);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    assert_eq!(other(&["doctor", "--offline"]).status.code(), Some(0));
}

#[test]
fn a_full_disk_is_told_also_of_what_is_written_beside_the_store() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    for n in 0..3 {
        // What gets little enough would not leave the buffers.
        let text = (0..60_000u32).map(|i| format!("{:08x}", (i + n).wrapping_mul(2_654_435_761)));
        bench.put("large", text.collect::<String>());
        bench.ok(&["add", &session, "--file", "large"]);
    }
    let full = |rules: &str, arguments: &[&str]| {
        let mut command = command(bench.root(), arguments);
        let out = Faults::new(rules).load(&mut command, bench.root()).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{rules}: {}", text(&out.stderr));
        let said = text(&out.stderr);
        assert_eq!(said.lines().count(), 3, "{rules}: {said}");
        said
    };
    for after in ["", " after 1"] {
        let rules = format!("write .unfinished 28{after}");
        let said = full(&rules, &["export", &session, "--bundle", "b.zip"]);
        says(&said, "No space left", "free some space", "disk-full");
    }
    for name in ["records.jsonl", "graph.json", "SHA256SUMS"] {
        let said = full(&format!("write {name} 28"), &["export", &session, "--bundle", "b"]);
        says(&said, "No space left", "free some space", "disk-full");
    }
    let said = full("write search.db-wal 28", &["doctor", "--reindex"]);
    says(&said, "full", "free some space", "disk-full");
    let left: Vec<_> = fs::read_dir(bench.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| name.to_string_lossy() != "b" && !name.to_string_lossy().contains("b.")),
        "{left:?}"
    );
    bench.sound();
}

#[test]
fn who_only_looks_for_garbage_needs_to_write_nothing() {
    let bench = Bench::new();
    bench.ok(&["new", "a try"]);
    bench.ok(&["gc"]);
    for rules in ["open gc.lock 30", "open gc.lock 13"] {
        let (exit, said) = failing(&bench, rules, &["gc", "--dry-run"]);
        assert_eq!(exit, Some(0), "{rules}: {said}");
        let (exit, said) = failing(&bench, rules, &["gc"]);
        assert_eq!(exit, Some(1), "{rules}: {said}");
        says(&said, "gc.lock", "permissions", "read-only-store");
    }
}

#[test]
fn a_clock_that_went_back_between_two_checkpoints_loses_nothing() {
    let bench = Bench::new();
    bench.ok(&["new", "a try"]);
    bench.ok(&["checkpoint"]);
    let (exit, said) = failing(&bench, "clock -5", &["gc", "--to-size", "0MB", "--yes"]);
    assert!(exit == Some(0) && said.contains("removed 1 session"), "{said}");
    for arguments in [&["checkpoint"][..], &["verify", "--since", "1"]] {
        let (exit, said) = failing(&bench, "clock -5", arguments);
        assert_eq!(exit, Some(0), "{arguments:?}: {said}");
    }
    assert!(bench.ok(&["verify", "--since", "1"]).contains("all that checkpoint 1"));
}

#[test]
fn a_store_is_begun_whole_or_not_at_all() {
    let bench = Bench::new();
    fs::create_dir(bench.path("other")).unwrap();
    let mut init = command(&bench.path("other"), &["init"]);
    let out = Faults::new("write .new 28 after 2").load(&mut init, &bench.path("other")).output().unwrap();
    says(&text(&out.stderr), "full", "free some space", "disk-full");
    let out = command(&bench.path("other"), &["init"]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn a_store_that_was_cut_off_says_so() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    let database = bench.path(".rath/rath.db");
    let whole = fs::read(&database).unwrap();
    for keep in [0, 40, 4096, whole.len() / 2] {
        fs::write(&database, &whole[..keep]).unwrap();
        let out = bench.run(&["log", &session]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "cut to {keep}: {said}");
        says(&said, "database", "rath verify", "store-damaged");
        let out = bench.run(&["verify"]);
        assert_eq!(out.status.code(), Some(3), "cut to {keep}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains('✗'));
    }
    fs::write(&database, whole).unwrap();
    bench.sound();
}

#[test]
fn a_clock_that_goes_back_is_no_matter() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    for shift in ["clock 86400", "clock -86400", "clock -400000000"] {
        let (exit, said) = failing(&bench, shift, &["add", &session, shift]);
        assert_eq!(exit, Some(0), "{said}");
        let (exit, said) = failing(&bench, shift, &["fork", &session]);
        assert_eq!(exit, Some(0), "{said}");
        bench.sound();
    }
    let log = bench.ok(&["log", "--json", &session]);
    let times = log.lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        (record["header"]["seq"].as_u64().unwrap(), record["header"]["time"].as_u64().unwrap())
    });
    let mut times: Vec<(u64, u64)> = times.collect();
    times.sort_unstable();
    assert!(times.is_sorted_by_key(|(_, time)| *time), "{times:?}");
}

fn stop(process: &std::process::Child) {
    kill_process(Pid::from_child(process), Signal::STOP).unwrap();
    // A signal takes a moment to arrive.
    while !rath::Embedded::is_stopped(process.id()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_was_stopped_can_be_relieved() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.sh(&session, "true");
    assert!(bench.run(&["take", &session]).status.success(), "nobody has it");
    let line = "echo 1 > begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut worker = command(bench.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
    let copy = bench.copy(&session);
    wait_for(&copy.join("begun"), &mut worker);
    // It works: that is for somebody to decide who knows what is lost.
    let said = bench.fails(1, &["take", &session]);
    assert!(said.contains("not stopped") && said.contains("--force"), "{said}");
    stop(&worker);
    let said = bench.fails(1, &["label", &session, "mine"]);
    says(&said, "is held by process", &format!("rath take {session}"), "session-held");
    assert!(said.contains(&format!("kill -CONT {}", worker.id())), "{said}");
    let out = bench.run(&["take", &session, "--why", "it hangs"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains(&format!("taken from process {}", worker.id())), "{}", text(&out.stderr));
    // That it was taken is said elsewhere; the last one worked on is still this.
    bench.ok(&["label", "@", "mine"]);
    go_on(&worker, &copy);
    let out = worker.wait_with_output().unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success(), "{said}");
    assert!(said.contains("another one took it over") && said.contains("rath explain lease-lost"), "{said}");
    // What it did is recorded by who comes next, as that which was lost.
    bench.sh(&session, "true");
    bench.sound();
    assert_eq!(bench.ok(&["label", &session]), "title: a try\nmine");
    let log = bench.ok(&["log", "--json"]);
    let operator = log.lines().find(|line| line.contains("operator")).unwrap();
    let operator: serde_json::Value = serde_json::from_str(operator).unwrap();
    let note = bench.last(operator["id"].as_str().unwrap(), "note").unwrap();
    let note = note["text"].as_str().unwrap();
    assert!(note.contains("took session") && note.ends_with(": it hangs"), "{note}");
}

/// A message to a session whose process is stopped waits; it is part of no chain, and can be damaged like all else.
#[test]
fn a_post_that_cannot_be_read_is_told_and_the_rest_looked_at() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.sh(&session, "true");
    let line = "echo 1 > begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut worker = command(bench.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
    let copy = bench.copy(&session);
    wait_for(&copy.join("begun"), &mut worker);
    stop(&worker);
    bench.ok(&["say", &session, "hurry, please"]);
    worker.kill().unwrap();
    worker.wait().unwrap();
    fs::write(copy.join("go"), "").unwrap();
    // The log goes into the database with the next one who writes.
    bench.ok(&["new", "another"]);
    bench.sound();
    let database = bench.path(".rath/rath.db");
    let mut bytes = fs::read(&database).unwrap();
    let said = b"hurry, please";
    let places: Vec<_> = (0..bytes.len() - said.len()).filter(|at| bytes[*at..].starts_with(said)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + said.len()] = b' ');
    fs::write(&database, bytes).unwrap();
    let out = bench.run(&["verify"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("which waits in its inbox, cannot be read"), "{said}");
    let out = bench.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{said}{}", text(&out.stderr));
    assert!(said.contains(&format!("session {session}: reading post")), "{said}");
    let doctor: serde_json::Value =
        serde_json::from_slice(&bench.run(&["--json", "doctor", "--offline"]).stdout).unwrap();
    assert_eq!((&doctor["well"], doctor["unfinished"]["unreadable"].as_array().unwrap().len()), (&false.into(), 1));
}

fn go_on(worker: &std::process::Child, copy: &Path) {
    fs::write(copy.join("go"), "").unwrap();
    kill_process(Pid::from_child(worker), Signal::CONT).unwrap();
}

#[test]
fn what_cannot_be_said_is_dropped_and_the_answer_stays() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try", "--message", "a needle"]);
    let unheard = |arguments: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        command(bench.root(), arguments).stderr(full).output().unwrap()
    };
    assert_eq!(unheard(&["grep", "nothere"]).status.code(), Some(3));
    assert_eq!(unheard(&["add", "nosuch", "x"]).status.code(), bench.run(&["add", "nosuch", "x"]).status.code());
    assert_eq!(unheard(&["--json", "show", "nosuch"]).status.code(), Some(2));
    // Where the index cannot be written a search says so, and answers.
    let mut command = command(bench.root(), &["--json", "grep", "needle"]);
    let faults = Faults::new("open search.lock 30");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = faults.load(&mut command, &bench.path(".rath")).stderr(full).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stdout).contains(&session), "{}", text(&out.stdout));
}

#[test]
fn a_store_whose_sessions_were_lost_is_not_empty() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try", "--message", "a needle"]);
    lose_sessions(&bench);
    for arguments in [
        &["log"][..],
        &["show", &session],
        &["new", "another"],
        &["grep", "needle"],
        &["gc", "--yes"],
        &["gc", "--dry-run"],
    ] {
        assert_eq!(bench.code(arguments), "store-damaged", "{arguments:?}");
    }
    assert_eq!(bench.code(&["grep", "needle", "--count"]), "store-damaged");
    let out = bench.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert!(out.status.code() == Some(3) && said.contains("a session that is not listed"), "{said}");
    assert_eq!(bench.code(&["doctor", "--offline", "--reindex"]), "store-damaged");
}

/// Has the page of the table of sessions say that it is empty.
fn lose_sessions(bench: &Bench) {
    let database = bench.path(".rath/rath.db");
    let db = rusqlite::Connection::open(&database).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let page = "SELECT rootpage FROM sqlite_master WHERE name = 'sessions'";
    let page: i64 = db.query_row(page, [], |row| row.get(0)).unwrap();
    drop(db);
    let mut bytes = fs::read(&database).unwrap();
    let at = (page as usize - 1) * 4096 + 3;
    bytes[at..at + 2].fill(0);
    fs::write(database, bytes).unwrap();
}

#[test]
fn the_doctor_is_not_content_with_what_is_damaged_beside_the_records() {
    let bench = Bench::new();
    bench.ok(&["new", "a try", "--message", "a needle"]);
    bench.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    bench.ok(&["add", "@", "--file", "large"]);
    bench.ok(&["grep", "needle"]);
    assert!(bench.run(&["doctor", "--offline"]).status.success());
    let sick = |why: &str| {
        let out = bench.run(&["doctor", "--offline"]);
        let said = text(&out.stdout);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains(why) && !said.contains("the store is well"), "{said}");
        assert_eq!(bench.json(&["doctor", "--offline"])["store_well"], false);
    };
    let index = bench.path(".rath/search.db");
    let mut bytes = fs::read(&index).unwrap();
    let clean = bytes.clone();
    bytes[4096..8192].fill(0);
    fs::write(&index, bytes).unwrap();
    sick("searches may miss something");
    fs::write(&index, clean).unwrap();
    // Root reads whatever it likes, but no directory.
    let pack = fs::read_dir(bench.path(".rath/packs")).unwrap().next().unwrap().unwrap().path();
    fs::rename(&pack, bench.path("aside")).unwrap();
    fs::create_dir(&pack).unwrap();
    sick("cannot be read");
}

#[test]
fn a_pack_that_is_gone_is_damage() {
    let bench = Bench::new();
    bench.ok(&["new", "a try"]);
    bench.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    let at = bench.ok(&["add", "@", "--file", "large"]);
    for pack in fs::read_dir(bench.path(".rath/packs")).unwrap() {
        fs::remove_file(pack.unwrap().path()).unwrap();
    }
    assert!(bench.fails(1, &["show", &at]).contains("rath explain store-damaged"));
}
