//! SIGKILL in the middle of a command, a restore, an apply: the next command finds what was lost and finishes what was
//! begun, and what a person wrote meanwhile stays.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::workspace::{Bench, command, text};

const FILES: usize = 1500;

fn rounds() -> u64 {
    rath_testkit::scaled(10).into()
}

/// Numbers that differ from run to run.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Starts the command and kills it after this long, if it still runs. Says whether it ended by itself.
fn kill(bench: &Bench, arguments: &[&str], after: Duration) -> bool {
    let mut child = command(bench.root(), arguments).spawn().unwrap();
    std::thread::sleep(after);
    let ended = child.try_wait().unwrap().is_some();
    child.kill().unwrap();
    child.wait().unwrap();
    ended
}

/// A shell line that gives all files a content of this round.
fn write_all(round: u64) -> String {
    format!("mkdir -p d; i=0; while [ $i -lt {FILES} ]; do echo {round}-$i > d/f$i; i=$((i+1)); done")
}

/// How many of the files have this round's content.
fn count(directory: &Path, round: u64) -> usize {
    let is = |file: &usize| {
        fs::read_to_string(directory.join(format!("d/f{file}"))).is_ok_and(|text| text == format!("{round}-{file}\n"))
    };
    (0..FILES).filter(is).count()
}

fn is_running(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| text(&line).contains(mark))
}

#[test]
fn a_command_that_was_lost_is_recorded_and_stopped() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.sh(&session, "echo 0 > before");
    let copy = bench.copy(&session);
    let mut chance = Chance::new();
    let mut lost = 0;
    for round in 0..rounds() {
        let mark = format!("{}.{round}", 70_000 + std::process::id());
        let line = format!("echo {round} > early; sleep 0.0{}; echo {round} > late; setsid sleep {mark}", round % 5);
        let wait = Duration::from_millis(5 + chance.below(140));
        kill(&bench, &["exec", &session, "-c", "--", &line], wait);
        fs::write(copy.join("mine"), format!("{round}\n")).unwrap();
        match round % 2 {
            0 => drop(bench.ok(&["exec", &session, "--", "true"])),
            _ => drop(bench.ok(&["save", &session])),
        }
        assert!(!is_running(&mark), "round {round}: it runs on");
        let finished: Vec<_> = calls(&bench, &session, "tool_finished");
        assert_eq!(calls(&bench, &session, "tool_started").len(), finished.len(), "round {round}");
        lost = finished.iter().filter(|body| body["outcome"] == "lost").count();
        for file in ["early", "late", "mine", "before"] {
            let disk = fs::read_to_string(copy.join(file)).ok();
            let saved = bench.run(&["cat", &format!("{session}:{file}")]);
            assert_eq!(disk, saved.status.success().then(|| text(&saved.stdout)), "round {round}: {file}");
        }
        assert_eq!(fs::read_to_string(copy.join("mine")).unwrap(), format!("{round}\n"));
        bench.sound();
    }
    eprintln!("{lost} calls were lost");
}

fn calls(bench: &Bench, session: &str, kind: &str) -> Vec<serde_json::Value> {
    let log = bench.ok(&["log", "--json", session]);
    let records = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    records.filter(|record| record["header"]["kind"] == kind).map(|record| record["body"].clone()).collect()
}

#[test]
fn a_restore_that_was_cut_short_is_finished() {
    for in_place in [false, true] {
        let bench = Bench::new();
        let session = bench.ok(&["new", "a try"]);
        let how = if in_place { "--in-place" } else { "--in" };
        bench.ok(&["place", &session, "--on", "host", how, "work"]);
        let mut chance = Chance::new();
        let mut finished = 0;
        bench.sh(&session, &write_all(0));
        let full = bench.json(&["undo", &session])["record"]["seq"].as_u64().unwrap() - 1;
        let full = format!("{session}@{full}");
        bench.ok(&["restore", &full]);
        let directory = bench.copy(&session);
        for round in 0..rounds() / 2 {
            // From all files to none, and from none to all, over what nobody saved at times.
            let from = if round % 2 == 0 { FILES } else { 0 };
            assert_eq!(count(&directory, 0), from, "round {round}");
            let over = round % 3 == 2;
            fs::write(directory.join("unsaved"), format!("{round}\n")).unwrap();
            if !over {
                bench.ok(&["save", &session]);
            }
            let to = if from == FILES { format!("{session}@2") } else { full.clone() };
            let arguments = ["restore", &session, "--to", &to, "--over"];
            let arguments = if over { &arguments[..] } else { &arguments[..4] };
            kill(&bench, arguments, Duration::from_millis(10 + chance.below(if from == 0 { 500 } else { 150 })));
            // A person goes on.
            fs::write(directory.join("mine"), format!("{round}\n")).unwrap();
            let touched = directory.join("d/f7");
            let touched = touched.exists().then(|| fs::write(touched, "mine\n").unwrap()).is_some();
            bench.ok(&["save", &session]);

            let files = count(&directory, 0);
            let expected = if touched { FILES - 1 } else { FILES };
            assert!(files == 0 || files == expected, "round {round}: {files} files are there");
            assert_eq!(fs::read_to_string(directory.join("mine")).unwrap(), format!("{round}\n"));
            if touched {
                assert_eq!(fs::read_to_string(directory.join("d/f7")).unwrap(), "mine\n", "round {round}");
            }
            // The directory is what the session has, and nothing that was there is out of reach.
            assert_eq!(bench.json(&["save", &session])["record"], serde_json::Value::Null);
            let versions = bench.ok(&["log", &session, "--raw"]);
            let restored = calls(&bench, &session, "restored");
            finished = restored.iter().filter(|body| body["why"] == "recovered").count();
            if !directory.join("unsaved").exists() {
                let from = restored.last().unwrap()["from"]["tree"]["digest"].as_str().unwrap().to_owned();
                assert!(versions.contains(&from));
                assert_eq!(bench.ok(&["cat", &format!("{from}:unsaved")]), round.to_string());
            }
            bench.sound();
            // The next round begins with all or with none.
            let next = if (round + 1) % 2 == 0 { full.clone() } else { format!("{session}@2") };
            bench.ok(&["restore", &session, "--to", &next]);
        }
        eprintln!("{finished} restores were finished by the next command");
    }
}

#[test]
fn an_apply_that_was_cut_short_is_finished() {
    let bench = Bench::new();
    let session = bench.copied();
    let work = bench.path("work");
    let mut chance = Chance::new();
    for round in 0..rounds() / 2 {
        bench.sh(&session, &write_all(round));
        fs::write(work.join("before"), format!("{round}\n")).unwrap();
        let applied = || calls(&bench, &session, "placed").len();
        let before = applied();
        kill(&bench, &["apply", &session], Duration::from_millis(10 + chance.below(500)));
        // One that was through before it was killed leaves nothing to bring.
        let is_through = applied() > before;
        fs::write(work.join("mine"), format!("{round}\n")).unwrap();
        let theirs = work.join("d/f7");
        let touched = round % 2 == 0 && theirs.exists() && !is_through;
        if touched {
            fs::write(&theirs, "mine\n").unwrap();
        }
        if touched {
            let said = bench.fails(1, &["apply", &session]);
            assert!(said.contains("d/f7") && !said.contains("d/f8"), "round {round}: {said}");
            assert_eq!(fs::read_to_string(&theirs).unwrap(), "mine\n");
            fs::write(&theirs, format!("{round}-7\n")).unwrap();
        }
        bench.ok(&["apply", &session]);
        assert_eq!(count(&work, round), FILES, "round {round}");
        for file in ["before", "mine"] {
            assert_eq!(fs::read_to_string(work.join(file)).unwrap(), format!("{round}\n"));
        }
        let entries = fs::read_dir(work.join("d")).unwrap().count();
        assert_eq!(entries, FILES, "round {round}: something is left behind");
        bench.sound();
    }
}

#[test]
fn processes_of_a_killed_rath_are_found_by_the_next() {
    let bench = Bench::new();
    let session = bench.copied();
    bench.sh(&session, "true");
    let mark = format!("{}.5", 80_000 + std::process::id());
    let line = format!("setsid sleep {mark} & echo 1 > begun; sleep {mark}");
    let mut child = command(bench.root(), &["exec", &session, "-c", "--", &line]).spawn().unwrap();
    crate::workspace::wait_for(&bench.copy(&session).join("begun"), &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_running(&mark));
    bench.ok(&["exec", &session, "--", "true"]);
    assert!(!is_running(&mark));
    assert!(calls(&bench, &session, "tool_finished").iter().any(|body| body["outcome"] == "lost"));
}

#[test]
fn an_isolated_command_dies_with_rath() {
    if !crate::local::isolates() {
        return;
    }
    for how in ["--in", "--in-place"] {
        let bench = Bench::new();
        let session = bench.ok(&["new", "a try", how, "work"]);
        bench.sh(&session, "echo 0 > before");
        let mut chance = Chance::new();
        let mut lost = 0;
        for round in 0..rounds() / 2 {
            let mark = format!("{}.{round}", 90_000 + std::process::id());
            let line =
                format!("echo {round} > early; sleep 0.0{}; echo {round} > late; setsid sleep {mark}", round % 5);
            kill(&bench, &["exec", &session, "-c", "--", &line], Duration::from_millis(5 + chance.below(140)));
            // The next command works at once, whichever it is.
            match round % 3 {
                0 => drop(bench.ok(&["exec", &session, "--", "true"])),
                1 => drop(bench.ok(&["save", &session])),
                _ => drop(bench.ok(&["fork", &session])),
            }
            bench.ok(&["exec", &session, "--", "true"]);
            assert!(!is_running(&mark), "round {round}: it runs on");
            let finished = calls(&bench, &session, "tool_finished");
            assert_eq!(calls(&bench, &session, "tool_started").len(), finished.len(), "round {round}");
            lost = finished.iter().filter(|body| body["outcome"] == "lost").count();
            for file in ["early", "late", "before"] {
                let seen = bench.run(&["exec", &session, "--", "cat", file]);
                let saved = bench.run(&["cat", &format!("{session}:{file}")]);
                assert_eq!(text(&seen.stdout), text(&saved.stdout), "round {round}: {file}");
            }
            // Only rath was killed: its sandbox was not lost, and nothing of it is left.
            assert_eq!(calls(&bench, &session, "sandbox_lost").len(), 0, "round {round}");
            assert_eq!(calls(&bench, &session, "sandbox_opened").len(), 1, "round {round}");
            assert_eq!(bench.json(&["doctor", "--offline"])["open_sandboxes"], serde_json::json!([]), "round {round}");
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            assert!(!mounts.contains(bench.root().to_str().unwrap()), "round {round}: {mounts}");
            bench.sound();
        }
        eprintln!("{lost} calls were lost");
    }
}

#[test]
fn a_setup_that_was_cut_short_begins_again() {
    if !crate::local::isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/.gitignore", "deps/\n");
    let mut chance = Chance::new();
    for (round, backend) in ["local", "host"].into_iter().cycle().take(rounds().min(40) as usize / 2).enumerate() {
        let line = format!("mkdir -p deps; : {round}; echo ran >> deps/log; sleep 0.1; echo ran >> deps/log");
        let session = bench.ok(&["new", "a try", "--on", backend, "--in", "work", "--setup", &line]);
        kill(&bench, &["exec", &session, "--", "true"], Duration::from_millis(20 + chance.below(150)));
        let seen = bench.sh(&session, "cat deps/log");
        // In a directory the line runs over what the first try left.
        assert!(seen == "ran\nran" || backend == "host" && seen.ends_with("ran\nran"), "round {round}: {seen}");
        let calls = (calls(&bench, &session, "tool_started").len(), calls(&bench, &session, "tool_finished").len());
        assert_eq!(calls.0, calls.1, "round {round}");
        bench.sound();
    }
}
