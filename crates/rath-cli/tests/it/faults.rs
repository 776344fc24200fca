//! Error messages for full, failing, read-only and damaged disks, and for stopped processes.

use std::fs;
use std::path::Path;

use rath_testkit::faults::Faults;
use rustix::process::{Pid, Signal, kill_process};

use crate::workspace::{TestProject, command, lines, text, wait_for};

/// Runs a command whose file operations fail by these rules. Returns the exit code and the error output.
fn failing(project: &TestProject, rules: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(project.root(), arguments);
    let out = Faults::new(rules).load(&mut command, &project.path(".rath")).output().unwrap();
    let said = text(&out.stderr);
    assert!(!said.contains("panicked"), "{said}");
    (out.status.code(), said)
}

/// Checks the error, the advice and the error code.
fn says(said: &str, error: &str, help: &str, code: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(error), "{said}");
    assert!(lines[1].starts_with("  help: ") && lines[1].contains(help), "{said}");
    assert_eq!(lines[2], format!("  help: rath help error {code}"), "{said}");
}

#[test]
fn disk_errors_are_reported_and_lose_nothing() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    assert_eq!(project.ok(&["add", &session, "first"]), format!("{session}@2"));
    // Incompressible content, so that it is large enough for a pack.
    project.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    let add = ["add", &session, "second"];
    for (rules, error, help, code) in [
        ("write rath.db-wal 28", "full", "free some space", "disk-full"),
        ("write .new 28", "No space left", "free some space", "disk-full"),
        ("sync rath.db-wal 5", "disk I/O error", "another disk", "disk-failed"),
        ("open rath.db 30", "readonly", "permissions", "read-only-store"),
        ("open rath.db 13", "readonly", "permissions", "read-only-store"),
    ] {
        let (exit, said) = failing(&project, rules, &add);
        assert_eq!(exit, Some(1), "{rules}: {said}");
        says(&said, error, help, code);
        // Reading still works.
        let (exit, said) = failing(&project, rules, &["log", &session]);
        assert_eq!(exit, Some(0), "{rules}: {said}");
        let (_, said) = failing(&project, rules, &["--json", "add", &session, "second"]);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{rules}: {said}"));
        assert_eq!(value["code"], code);
        assert!(value["help"].as_str().unwrap().contains(help));
    }
    let (exit, said) = failing(&project, "write .pack 28", &["add", &session, "--file", "large"]);
    assert_eq!(exit, Some(1), "{said}");
    says(&said, "writing a blob", "free some space", "disk-full");
    project.sound();
    assert_eq!(project.ok(&["add", &session, "second"]), format!("{session}@3"));
    project.sound();
}

#[test]
fn an_unfinished_erasure_is_reported_until_it_is_finished() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    let secret: String = (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    project.put("large", &secret);
    project.ok(&["add", &session, "--file", "large"]);
    let doctor = || {
        let out = project.run(&["--json", "doctor", "--offline"]);
        (out.status.code(), serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap())
    };
    let (exit, told) = doctor();
    assert_eq!((exit, &told["well"], &told["unfinished_erasure"]), (Some(0), &true.into(), &().into()));
    let place = format!("{session}@2");
    let (exit, said) = failing(&project, "write .pack 28", &["erase", &place, "--why", "ticket 12", "--yes"]);
    assert_eq!(exit, Some(1), "{said}");
    let error = said.find("error: ").map(|at| said[at..].to_owned()).unwrap_or_default();
    says(&error, "recorded but is not finished", "`rath store erase --finish`", "erasure-unfinished");
    // The erased bytes may still be there, so no command reports that all is well.
    for _ in 0..2 {
        let out = project.run(&["verify"]);
        assert!(
            out.status.success() && text(&out.stderr).contains("`rath store erase --finish`"),
            "{}",
            text(&out.stderr)
        );
        let (exit, told) = doctor();
        assert_eq!((exit, &told["well"], &told["store_well"]), (Some(3), &false.into(), &false.into()));
        assert!(told["unfinished_erasure"].as_str().unwrap().starts_with("1 erasure is recorded but not finished"));
        let said = text(&project.run(&["doctor", "--offline"]).stdout);
        assert!(said.contains("`rath store erase --finish`") && !said.contains("no problems found"), "{said}");
        // A checkpoint is refused too.
        says(
            &project.fails(1, &["checkpoint"]),
            "an erasure is recorded and not finished",
            "`rath store erase --finish`",
            "erasure-unfinished",
        );
        let (exit, _) = failing(&project, "write .pack 28", &["erase", "--finish"]);
        assert_eq!(exit, Some(1));
    }
    project.ok(&["erase", "--finish"]);
    let (exit, told) = doctor();
    assert_eq!((exit, &told["well"], &told["unfinished_erasure"]), (Some(0), &true.into(), &().into()));
    let out = project.run(&["verify"]);
    assert!(out.status.success() && !text(&out.stderr).contains("--finish"), "{}", text(&out.stderr));
}

#[test]
fn a_partial_import_is_reported_until_it_is_complete() {
    let project = TestProject::new();
    let line = format!("{{\"role\":\"user\",\"content\":\"{}\"}}\n", "x".repeat(8000));
    project.put("long.jsonl", line.repeat(5000));
    let session = project.ok(&["import", "jsonl", "long.jsonl"]);
    project.ok(&["export", &session, "--bundle", "bundle"]);
    // One of the syncs fails after the first part and before the last. Unacknowledged records may be there.
    let store = (3..12)
        .find_map(|after| {
            let store = format!("other-{after}/.rath");
            project.ok(&["init", &format!("other-{after}")]);
            let mut command = command(project.root(), &["--store", &store, "import", "bundle", "bundle"]);
            let faults = Faults::new(format!("sync rath.db-wal 5 after {after}"));
            let out = faults.load(&mut command, &project.path(&store)).output().unwrap();
            let said = text(&out.stderr);
            let (before, behind) = said.split_once(" of 5002 records, then: ")?;
            assert!(behind.contains("import the bundle again to continue"), "{said}");
            let taken: u64 = before.rsplit(' ').next()?.parse().ok()?;
            let is_part = project.run(&["--store", &store, "doctor", "--offline"]).status.code() == Some(3);
            assert_eq!(out.status.code(), Some(1), "{said}");
            (taken > 0 && is_part).then_some(store)
        })
        .unwrap();
    let import = ["--store", &store, "import", "bundle", "bundle"];
    let other = |arguments: &[&str]| project.run(&[&["--store", &store], arguments].concat());
    let part = format!("bundle was imported in part: {session} has ");
    let out = other(&["doctor", "--offline"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stdout).contains(&part), "{}", text(&out.stdout));
    let out = other(&["--json", "doctor", "--offline"]);
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["unfinished_imports"][0]["sessions"][0]["of"], 5002);
    let out = other(&["verify"]);
    assert!(out.status.success() && text(&out.stderr).contains(&part), "{}", text(&out.stderr));
    project.ok(&import);
    let out = other(&["verify"]);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    assert_eq!(other(&["doctor", "--offline"]).status.code(), Some(0));
}

#[test]
fn a_full_disk_is_reported_for_files_outside_the_store() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    for n in 0..3 {
        // Incompressible content, so that it leaves the buffers.
        let text = (0..60_000u32).map(|i| format!("{:08x}", (i + n).wrapping_mul(2_654_435_761)));
        project.put("large", text.collect::<String>());
        project.ok(&["add", &session, "--file", "large"]);
    }
    let full = |rules: &str, arguments: &[&str]| {
        let mut command = command(project.root(), arguments);
        let out = Faults::new(rules).load(&mut command, project.root()).output().unwrap();
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
    let left: Vec<_> = fs::read_dir(project.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| name.to_string_lossy() != "b" && !name.to_string_lossy().contains("b.")),
        "{left:?}"
    );
    project.sound();
}

#[test]
fn a_dry_run_of_gc_writes_nothing() {
    let project = TestProject::new();
    project.ok(&["new", "a try"]);
    project.ok(&["gc"]);
    for rules in ["open gc.lock 30", "open gc.lock 13"] {
        let (exit, said) = failing(&project, rules, &["gc", "--dry-run"]);
        assert_eq!(exit, Some(0), "{rules}: {said}");
        let (exit, said) = failing(&project, rules, &["gc"]);
        assert_eq!(exit, Some(1), "{rules}: {said}");
        says(&said, "gc.lock", "permissions", "read-only-store");
    }
}

#[test]
fn a_clock_set_back_between_checkpoints_loses_nothing() {
    let project = TestProject::new();
    project.ok(&["new", "a try"]);
    project.ok(&["checkpoint"]);
    let (exit, said) = failing(&project, "clock -5", &["gc", "--to-size", "0MB", "--yes"]);
    assert!(exit == Some(0) && said.contains("deleted 1 session"), "{said}");
    for arguments in [&["checkpoint"][..], &["verify", "--since", "1"]] {
        let (exit, said) = failing(&project, "clock -5", arguments);
        assert_eq!(exit, Some(0), "{arguments:?}: {said}");
    }
    assert!(project.ok(&["verify", "--since", "1"]).contains("everything that checkpoint 1"));
}

#[test]
fn a_store_is_created_completely_or_not_at_all() {
    let project = TestProject::new();
    fs::create_dir(project.path("other")).unwrap();
    let mut init = command(&project.path("other"), &["init"]);
    let out = Faults::new("write .new 28 after 2").load(&mut init, &project.path("other")).output().unwrap();
    says(&text(&out.stderr), "full", "free some space", "disk-full");
    let out = command(&project.path("other"), &["init"]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn a_truncated_store_is_reported() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    let database = project.path(".rath/rath.db");
    let whole = fs::read(&database).unwrap();
    for keep in [0, 40, 4096, whole.len() / 2] {
        fs::write(&database, &whole[..keep]).unwrap();
        let out = project.run(&["log", &session]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "cut to {keep}: {said}");
        says(&said, "database", "rath verify", "store-damaged");
        let out = project.run(&["verify"]);
        assert_eq!(out.status.code(), Some(3), "cut to {keep}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains('✗'));
    }
    fs::write(&database, whole).unwrap();
    project.sound();
}

#[test]
fn a_clock_set_back_does_no_harm() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    for shift in ["clock 86400", "clock -86400", "clock -400000000"] {
        let (exit, said) = failing(&project, shift, &["add", &session, shift]);
        assert_eq!(exit, Some(0), "{said}");
        let (exit, said) = failing(&project, shift, &["fork", &session]);
        assert_eq!(exit, Some(0), "{said}");
        project.sound();
    }
    let log = project.ok(&["log", "--json", &session]);
    let times = lines(&log)
        .into_iter()
        .map(|record| (record["header"]["seq"].as_u64().unwrap(), record["header"]["time"].as_u64().unwrap()));
    let mut times: Vec<(u64, u64)> = times.collect();
    times.sort_unstable();
    assert!(times.is_sorted_by_key(|(_, time)| *time), "{times:?}");
}

fn stop(process: &std::process::Child) {
    kill_process(Pid::from_child(process), Signal::STOP).unwrap();
    // A signal is delivered with a delay.
    while !rath::Embedded::is_stopped(process.id()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_session_of_a_stopped_process_can_be_unlocked() {
    let project = TestProject::new();
    let session = project.copied();
    project.sh(&session, "true");
    assert!(project.run(&["take", &session]).status.success(), "nobody has it");
    let line = "echo 1 > begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut worker = command(project.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
    let copy = project.copy(&session);
    wait_for(&copy.join("begun"), &mut worker);
    // The process is working: unlocking needs --force.
    let said = project.fails(1, &["take", &session]);
    assert!(said.contains("not stopped") && said.contains("--force"), "{said}");
    stop(&worker);
    let said = project.fails(1, &["label", &session, "mine"]);
    says(&said, "is locked by process", &format!("rath session unlock {session}"), "session-held");
    assert!(said.contains(&format!("kill -CONT {}", worker.id())), "{said}");
    let out = project.run(&["take", &session, "--why", "it hangs"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains(&format!("locked by process {}", worker.id())), "{}", text(&out.stderr));
    // The unlock is recorded in the audit session, so `@` is still this session.
    project.ok(&["label", "@", "mine"]);
    go_on(&worker, &copy);
    let out = worker.wait_with_output().unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success(), "{said}");
    assert!(said.contains("another one took it over") && said.contains("rath help error lease-lost"), "{said}");
    // The next process records the lost call.
    project.sh(&session, "true");
    project.sound();
    assert_eq!(project.ok(&["label", &session]), "title: a try\nmine");
    let log = project.ok(&["ls", "--json", "--all"]);
    let operator = lines(&log).into_iter().find(|row| row.to_string().contains("operator")).unwrap();
    let note = project.last(operator["id"].as_str().unwrap(), "note").unwrap();
    let note = note["text"].as_str().unwrap();
    assert!(note.contains("unlocked session") && note.ends_with(": it hangs"), "{note}");
}

/// A queued message is not part of the hash chain, and can be damaged.
#[test]
fn an_unreadable_message_is_reported_and_the_others_are_read() {
    let project = TestProject::new();
    let session = project.copied();
    project.sh(&session, "true");
    let line = "echo 1 > begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut worker = command(project.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
    let copy = project.copy(&session);
    wait_for(&copy.join("begun"), &mut worker);
    stop(&worker);
    project.ok(&["say", &session, "hurry, please"]);
    worker.kill().unwrap();
    worker.wait().unwrap();
    fs::write(copy.join("go"), "").unwrap();
    // The next writer moves the log into the database.
    project.ok(&["new", "another"]);
    project.sound();
    let database = project.path(".rath/rath.db");
    let mut bytes = fs::read(&database).unwrap();
    let said = b"hurry, please";
    let places: Vec<_> = (0..bytes.len() - said.len()).filter(|at| bytes[*at..].starts_with(said)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + said.len()] = b' ');
    fs::write(&database, bytes).unwrap();
    let out = project.run(&["verify"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("queued post"), "{said}");
    let out = project.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{said}{}", text(&out.stderr));
    assert!(said.contains(&format!("session {session}: reading post")), "{said}");
    let doctor: serde_json::Value =
        serde_json::from_slice(&project.run(&["--json", "doctor", "--offline"]).stdout).unwrap();
    assert_eq!((&doctor["well"], doctor["unfinished"]["unreadable"].as_array().unwrap().len()), (&false.into(), 1));
}

fn go_on(worker: &std::process::Child, copy: &Path) {
    fs::write(copy.join("go"), "").unwrap();
    kill_process(Pid::from_child(worker), Signal::CONT).unwrap();
}

#[test]
fn a_remark_that_cannot_be_written_does_not_affect_the_result() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try", "--message", "a needle"]);
    let unheard = |arguments: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        command(project.root(), arguments).stderr(full).output().unwrap()
    };
    assert_eq!(unheard(&["grep", "nothere"]).status.code(), Some(3));
    assert_eq!(unheard(&["add", "nosuch", "x"]).status.code(), project.run(&["add", "nosuch", "x"]).status.code());
    assert_eq!(unheard(&["--json", "show", "nosuch"]).status.code(), Some(2));
    // If the index cannot be written, a search reports it and still answers.
    let mut command = command(project.root(), &["--json", "grep", "needle"]);
    let faults = Faults::new("open search.lock 30");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = faults.load(&mut command, &project.path(".rath")).stderr(full).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stdout).contains(&session), "{}", text(&out.stdout));
}

#[test]
fn a_store_with_lost_sessions_is_not_reported_as_empty() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try", "--message", "a needle"]);
    lose_sessions(&project);
    for arguments in [
        &["log"][..],
        &["show", &session],
        &["new", "another"],
        &["grep", "needle"],
        &["gc", "--yes"],
        &["gc", "--dry-run"],
    ] {
        assert_eq!(project.code(arguments), "store-damaged", "{arguments:?}");
    }
    assert_eq!(project.code(&["grep", "needle", "--count"]), "store-damaged");
    let out = project.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert!(out.status.code() == Some(3) && said.contains("belongs to a session"), "{said}");
    assert_eq!(project.code(&["doctor", "--offline", "--reindex"]), "store-damaged");
}

/// Marks the page of the table of sessions as empty.
fn lose_sessions(project: &TestProject) {
    let database = project.path(".rath/rath.db");
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
fn doctor_reports_damage_outside_the_records() {
    let project = TestProject::new();
    project.ok(&["new", "a try", "--message", "a needle"]);
    project.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    project.ok(&["add", "@", "--file", "large"]);
    project.ok(&["grep", "needle"]);
    assert!(project.run(&["doctor", "--offline"]).status.success());
    let sick = |why: &str| {
        let out = project.run(&["doctor", "--offline"]);
        let said = text(&out.stdout);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains(why) && !said.contains("no problems found"), "{said}");
        assert_eq!(project.json(&["doctor", "--offline"])["store_well"], false);
    };
    let index = project.path(".rath/search.db");
    let mut bytes = fs::read(&index).unwrap();
    let clean = bytes.clone();
    bytes[4096..8192].fill(0);
    fs::write(&index, bytes).unwrap();
    sick("searches may miss records");
    fs::write(&index, clean).unwrap();
    // Root can read every file, but not a directory as a file.
    let pack = fs::read_dir(project.path(".rath/packs")).unwrap().next().unwrap().unwrap().path();
    fs::rename(&pack, project.path("aside")).unwrap();
    fs::create_dir(&pack).unwrap();
    sick("cannot be read");
}

#[test]
fn a_missing_pack_is_reported_as_damage() {
    let project = TestProject::new();
    project.ok(&["new", "a try"]);
    project.put("large", (0..40_000u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect::<String>());
    let at = project.ok(&["add", "@", "--file", "large"]);
    for pack in fs::read_dir(project.path(".rath/packs")).unwrap() {
        fs::remove_file(pack.unwrap().path()).unwrap();
    }
    assert!(project.fails(1, &["show", &at]).contains("rath help error store-damaged"));
}
