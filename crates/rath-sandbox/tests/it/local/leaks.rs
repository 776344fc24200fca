//! Opening and closing sandboxes leaks no resources.

use std::fs;
use std::path::Path;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, IsolationLevel, Local};

use super::spec_in;

/// Counts of all resources that could leak.
#[derive(Debug, PartialEq, Eq)]
struct ResourceCount {
    open_files: usize,
    threads: usize,
    children: usize,
    mounts: usize,
    entries: usize,
}

fn count(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

fn count_resources(base: &Path) -> ResourceCount {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    ResourceCount {
        open_files: count(Path::new("/proc/self/fd")),
        threads: count(Path::new("/proc/self/task")),
        children: children.map(|children| children.split_whitespace().count()).sum(),
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        entries: count(base) + count(&base.join("state")) + count(&base.join("files")),
    }
}

/// Opens a sandbox, runs a command, suspends it in some rounds, and closes or drops it.
fn open_and_close(local: &Local, base: &Path, round: usize) {
    let sandbox = block_on(local.open(spec_in(base))).unwrap();
    if round.is_multiple_of(3) {
        let running = block_on(sandbox.exec(Command::argv(["true"]))).unwrap();
        assert!(block_on(running.finish()).unwrap().ended.success());
    }
    if round.is_multiple_of(7) {
        block_on(sandbox.suspend()).unwrap();
        block_on(sandbox.list(Path::new(""))).unwrap();
    }
    if !round.is_multiple_of(5) {
        block_on(sandbox.close()).unwrap();
    }
}

fn opening_and_closing_leaks_nothing(level: IsolationLevel, test: &str) {
    if !super::has(level) || !super::run_alone(test) {
        return;
    }
    let rounds = rath_testkit::scaled(200) as usize;
    let base = tempfile::tempdir().unwrap();
    let local = Local::only(level);
    (0..9).for_each(|round| open_and_close(&local, base.path(), round));
    let before = count_resources(base.path());
    (0..rounds).for_each(|round| open_and_close(&local, base.path(), round * 5 + 1 + round % 4));
    assert_eq!(count_resources(base.path()), before);
    (0..rounds / 10).for_each(|round| open_and_close(&local, base.path(), round * 5));
    open_and_close(&local, base.path(), 1);
    assert_eq!(count_resources(base.path()), before);
}

#[test]
fn opening_and_closing_leaks_nothing_on_ns() {
    opening_and_closing_leaks_nothing(IsolationLevel::Ns, "leaks::opening_and_closing_leaks_nothing_on_ns");
}

#[test]
fn opening_and_closing_leaks_nothing_on_landlock() {
    opening_and_closing_leaks_nothing(IsolationLevel::Landlock, "leaks::opening_and_closing_leaks_nothing_on_landlock");
}
