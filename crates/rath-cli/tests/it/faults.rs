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

fn go_on(worker: &std::process::Child, copy: &Path) {
    fs::write(copy.join("go"), "").unwrap();
    kill_process(Pid::from_child(worker), Signal::CONT).unwrap();
}
