//! SIGKILL during a command, a restore or an apply: the next command detects lost calls and finishes interrupted work,
//! and edits that the user made in between survive.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::workspace::{TestProject, command, text};

const FILES: usize = 1500;

fn rounds() -> u64 {
    rath_testkit::scaled(10).into()
}

/// Numbers that differ from run to run.
struct SeededRng(u64);

impl SeededRng {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Starts the command and kills it after this time, if it still runs. Returns whether it ended by itself.
fn kill(project: &TestProject, arguments: &[&str], after: Duration) -> bool {
    let mut child = command(project.root(), arguments).spawn().unwrap();
    std::thread::sleep(after);
    let ended = child.try_wait().unwrap().is_some();
    child.kill().unwrap();
    child.wait().unwrap();
    ended
}

/// A shell command that writes the content of this round into all files.
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
fn a_lost_command_is_recorded_and_killed() {
    let project = TestProject::new();
    let session = project.copied();
    project.sh(&session, "echo 0 > before");
    let copy = project.copy(&session);
    let mut chance = SeededRng::new();
    let mut lost = 0;
    for round in 0..rounds() {
        let mark = format!("{}.{round}", 70_000 + std::process::id());
        let line = format!("echo {round} > early; sleep 0.0{}; echo {round} > late; setsid sleep {mark}", round % 5);
        let wait = Duration::from_millis(5 + chance.below(140));
        kill(&project, &["exec", &session, "-c", "--", &line], wait);
        fs::write(copy.join("mine"), format!("{round}\n")).unwrap();
        match round % 2 {
            0 => drop(project.ok(&["exec", &session, "--", "true"])),
            _ => drop(project.ok(&["save", &session])),
        }
        assert!(!is_running(&mark), "round {round}: it runs on");
        let finished: Vec<_> = calls(&project, &session, "tool_finished");
        assert_eq!(calls(&project, &session, "tool_started").len(), finished.len(), "round {round}");
        lost = finished.iter().filter(|body| body["outcome"] == "lost").count();
        for file in ["early", "late", "mine", "before"] {
            let disk = fs::read_to_string(copy.join(file)).ok();
            let saved = project.run(&["cat", &format!("{session}:{file}")]);
            assert_eq!(disk, saved.status.success().then(|| text(&saved.stdout)), "round {round}: {file}");
        }
        assert_eq!(fs::read_to_string(copy.join("mine")).unwrap(), format!("{round}\n"));
        project.sound();
    }
    eprintln!("{lost} calls were lost");
}

fn calls(project: &TestProject, session: &str, kind: &str) -> Vec<serde_json::Value> {
    let log = project.ok(&["log", "--json", session]);
    crate::workspace::lines(&log)
        .into_iter()
        .filter(|record| record["header"]["kind"] == kind)
        .map(|record| record["body"].clone())
        .collect()
}

#[test]
fn an_interrupted_restore_is_finished() {
    for in_place in [false, true] {
        let project = TestProject::new();
        let session = project.ok(&["new", "a try"]);
        let how = if in_place { "--in-place" } else { "--in" };
        project.ok(&["place", &session, "--on", "host", how, "work"]);
        let mut chance = SeededRng::new();
        let mut finished = 0;
        project.sh(&session, &write_all(0));
        let full = project.json(&["undo", &session])["record"]["seq"].as_u64().unwrap() - 1;
        let full = format!("{session}@{full}");
        project.ok(&["restore", &full]);
        let directory = project.copy(&session);
        for round in 0..rounds() / 2 {
            // From all files to none and back, sometimes over unsaved changes.
            let from = if round % 2 == 0 { FILES } else { 0 };
            assert_eq!(count(&directory, 0), from, "round {round}");
            let over = round % 3 == 2;
            fs::write(directory.join("unsaved"), format!("{round}\n")).unwrap();
            if !over {
                project.ok(&["save", &session]);
            }
            let to = if from == FILES { format!("{session}@2") } else { full.clone() };
            let arguments = ["restore", &session, "--to", &to, "--over"];
            let arguments = if over { &arguments[..] } else { &arguments[..4] };
            kill(&project, arguments, Duration::from_millis(10 + chance.below(if from == 0 { 500 } else { 150 })));
            // The user continues.
            fs::write(directory.join("mine"), format!("{round}\n")).unwrap();
            let touched = directory.join("d/f7");
            let touched = touched.exists().then(|| fs::write(touched, "mine\n").unwrap()).is_some();
            project.ok(&["save", &session]);

            let files = count(&directory, 0);
            let expected = if touched { FILES - 1 } else { FILES };
            assert!(files == 0 || files == expected, "round {round}: {files} files are there");
            assert_eq!(fs::read_to_string(directory.join("mine")).unwrap(), format!("{round}\n"));
            if touched {
                assert_eq!(fs::read_to_string(directory.join("d/f7")).unwrap(), "mine\n", "round {round}");
            }
            // The directory equals the session's files, and every earlier file can be restored.
            assert_eq!(project.json(&["save", &session])["record"], serde_json::Value::Null);
            let versions = project.ok(&["log", &session, "--raw"]);
            let restored = calls(&project, &session, "restored");
            finished = restored.iter().filter(|body| body["why"] == "recovered").count();
            if !directory.join("unsaved").exists() {
                let from = restored.last().unwrap()["from"]["tree"]["digest"].as_str().unwrap().to_owned();
                assert!(versions.contains(&from));
                assert_eq!(project.ok(&["cat", &format!("{from}:unsaved")]), round.to_string());
            }
            project.sound();
            // The next round starts with all files or none.
            let next = if (round + 1) % 2 == 0 { full.clone() } else { format!("{session}@2") };
            project.ok(&["restore", &session, "--to", &next]);
        }
        eprintln!("{finished} restores were finished by the next command");
    }
}

#[test]
fn an_interrupted_apply_is_finished() {
    let project = TestProject::new();
    let session = project.copied();
    let work = project.path("work");
    let mut chance = SeededRng::new();
    for round in 0..rounds() / 2 {
        project.sh(&session, &write_all(round));
        fs::write(work.join("before"), format!("{round}\n")).unwrap();
        let applied = || calls(&project, &session, "placed").len();
        let before = applied();
        kill(&project, &["apply", &session], Duration::from_millis(10 + chance.below(500)));
        // An apply that finished before the kill leaves no changes.
        let is_through = applied() > before;
        fs::write(work.join("mine"), format!("{round}\n")).unwrap();
        let theirs = work.join("d/f7");
        let touched = round % 2 == 0 && theirs.exists() && !is_through;
        if touched {
            fs::write(&theirs, "mine\n").unwrap();
        }
        if touched {
            let said = project.fails(1, &["apply", &session]);
            assert!(said.contains("d/f7") && !said.contains("d/f8"), "round {round}: {said}");
            assert_eq!(fs::read_to_string(&theirs).unwrap(), "mine\n");
            fs::write(&theirs, format!("{round}-7\n")).unwrap();
        }
        project.ok(&["apply", &session]);
        assert_eq!(count(&work, round), FILES, "round {round}");
        for file in ["before", "mine"] {
            assert_eq!(fs::read_to_string(work.join(file)).unwrap(), format!("{round}\n"));
        }
        let entries = fs::read_dir(work.join("d")).unwrap().count();
        assert_eq!(entries, FILES, "round {round}: something is left behind");
        project.sound();
    }
}

#[test]
fn orphaned_processes_of_a_killed_rath_are_found() {
    let project = TestProject::new();
    let session = project.copied();
    project.sh(&session, "true");
    let mark = format!("{}.5", 80_000 + std::process::id());
    let line = format!("setsid sleep {mark} & echo 1 > begun; sleep {mark}");
    let mut child = command(project.root(), &["exec", &session, "-c", "--", &line]).spawn().unwrap();
    crate::workspace::wait_for(&project.copy(&session).join("begun"), &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_running(&mark));
    project.ok(&["exec", &session, "--", "true"]);
    assert!(!is_running(&mark));
    assert!(calls(&project, &session, "tool_finished").iter().any(|body| body["outcome"] == "lost"));
}

#[test]
fn an_isolated_command_dies_with_rath() {
    if !crate::local::isolates() {
        return;
    }
    for how in ["--in", "--in-place"] {
        let project = TestProject::new();
        let session = project.ok(&["new", "a try", how, "work"]);
        project.sh(&session, "echo 0 > before");
        let mut chance = SeededRng::new();
        let mut lost = 0;
        for round in 0..rounds() / 2 {
            let mark = format!("{}.{round}", 90_000 + std::process::id());
            let line =
                format!("echo {round} > early; sleep 0.0{}; echo {round} > late; setsid sleep {mark}", round % 5);
            kill(&project, &["exec", &session, "-c", "--", &line], Duration::from_millis(5 + chance.below(140)));
            // The next command works at once.
            match round % 3 {
                0 => drop(project.ok(&["exec", &session, "--", "true"])),
                1 => drop(project.ok(&["save", &session])),
                _ => drop(project.ok(&["fork", &session])),
            }
            project.ok(&["exec", &session, "--", "true"]);
            assert!(!is_running(&mark), "round {round}: it runs on");
            let finished = calls(&project, &session, "tool_finished");
            assert_eq!(calls(&project, &session, "tool_started").len(), finished.len(), "round {round}");
            lost = finished.iter().filter(|body| body["outcome"] == "lost").count();
            for file in ["early", "late", "before"] {
                let seen = project.run(&["exec", &session, "--", "cat", file]);
                let saved = project.run(&["cat", &format!("{session}:{file}")]);
                assert_eq!(text(&seen.stdout), text(&saved.stdout), "round {round}: {file}");
            }
            // Only rath was killed: the sandbox was not lost, and no process of it is left.
            assert_eq!(calls(&project, &session, "sandbox_lost").len(), 0, "round {round}");
            assert_eq!(calls(&project, &session, "sandbox_opened").len(), 1, "round {round}");
            assert_eq!(
                project.json(&["doctor", "--offline"])["open_sandboxes"],
                serde_json::json!([]),
                "round {round}"
            );
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            assert!(!mounts.contains(project.root().to_str().unwrap()), "round {round}: {mounts}");
            project.sound();
        }
        eprintln!("{lost} calls were lost");
    }
}

#[test]
fn an_interrupted_setup_starts_again() {
    if !crate::local::isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/.gitignore", "deps/\n");
    let mut chance = SeededRng::new();
    for (round, backend) in ["local", "host"].into_iter().cycle().take(rounds().min(40) as usize / 2).enumerate() {
        let line = format!("mkdir -p deps; : {round}; echo ran >> deps/log; sleep 0.1; echo ran >> deps/log");
        let session = project.ok(&["new", "a try", "--on", backend, "--in", "work", "--setup", &line]);
        kill(&project, &["exec", &session, "--", "true"], Duration::from_millis(20 + chance.below(150)));
        let seen = project.sh(&session, "cat deps/log");
        // In place, the setup command runs on the leftovers of the first attempt.
        assert!(seen == "ran\nran" || backend == "host" && seen.ends_with("ran\nran"), "round {round}: {seen}");
        let calls = (calls(&project, &session, "tool_started").len(), calls(&project, &session, "tool_finished").len());
        assert_eq!(calls.0, calls.1, "round {round}");
        project.sound();
    }
}
