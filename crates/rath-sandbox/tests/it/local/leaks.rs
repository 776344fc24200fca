//! Opening and closing leaves nothing behind.

use std::fs;
use std::path::Path;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Local, Tier};

use super::spec_in;

/// Everything that could grow.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    open_files: usize,
    threads: usize,
    children: usize,
    mounts: usize,
    entries: usize,
}

fn count(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

fn held(base: &Path) -> Held {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    Held {
        open_files: count(Path::new("/proc/self/fd")),
        threads: count(Path::new("/proc/self/task")),
        children: children.map(|children| children.split_whitespace().count()).sum(),
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        entries: count(base) + count(&base.join("state")) + count(&base.join("files")),
    }
}

/// One life of a sandbox: with a command, at times with a rest, closed or just dropped.
fn live(local: &Local, base: &Path, round: usize) {
    let sandbox = block_on(local.open(spec_in(base))).unwrap();
    if round.is_multiple_of(3) {
        let running = block_on(sandbox.exec(Command::argv(["true"]))).unwrap();
        assert!(block_on(running.finish()).unwrap().ended.well());
    }
    if round.is_multiple_of(7) {
        block_on(sandbox.rest()).unwrap();
        block_on(sandbox.list(Path::new(""))).unwrap();
    }
    if !round.is_multiple_of(5) {
        block_on(sandbox.close()).unwrap();
    }
}

fn nothing_leaks(tier: Tier, test: &str) {
    if !super::has(tier) || !super::alone(test) {
        return;
    }
    let rounds = rath_testkit::scaled(200) as usize;
    let base = tempfile::tempdir().unwrap();
    let local = Local::only(tier);
    (0..9).for_each(|round| live(&local, base.path(), round));
    let before = held(base.path());
    (0..rounds).for_each(|round| live(&local, base.path(), round * 5 + 1 + round % 4));
    assert_eq!(held(base.path()), before);
    (0..rounds / 10).for_each(|round| live(&local, base.path(), round * 5));
    live(&local, base.path(), 1);
    assert_eq!(held(base.path()), before);
}

#[test]
fn nothing_leaks_on_ns() {
    nothing_leaks(Tier::Ns, "leaks::nothing_leaks_on_ns");
}

#[test]
fn nothing_leaks_on_landlock() {
    nothing_leaks(Tier::Landlock, "leaks::nothing_leaks_on_landlock");
}
