//! Sandboxes rest, are taken up again and are closed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, Status, Tier};

use super::{Bench, deep_tree, is_mounted, long_time, on_each_tier, processes_with, says, wait_for};

on_each_tier!(
    a_resting_sandbox_holds_nothing,
    resting_stops_what_runs,
    two_values_of_one_sandbox_share_it,
    values_of_one_sandbox_wake_it_at_once,
    a_closed_sandbox_stays_closed,
    closing_leaves_the_files_and_nothing_else,
    paths_may_be_relative_or_links,
);

fn lives(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn a_resting_sandbox_holds_nothing(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| spec.home = Some(base.join("home/ada")));
    let tmp = if tier == Tier::Ns { "/tmp" } else { "$TMPDIR" };
    bench.says(&format!("echo 1 >file; echo 2 >{tmp}/file; echo 3 >$HOME/file"));
    for _ in 0..3 {
        let anchor = bench.anchor();
        assert!(lives(anchor));
        assert_eq!(is_mounted(&bench.spec.state), tier == Tier::Ns);
        bench.rest();
        bench.rest();
        assert!(!lives(anchor) && !is_mounted(&bench.spec.state));
        assert_eq!(bench.status(), Status::Open { running: 0 });
        assert_eq!(fs::read(bench.spec.directory.join("file")).unwrap(), b"1\n");
        assert_eq!(fs::read(bench.spec.state.join("tmp/file")).unwrap(), b"2\n");
        assert_eq!(fs::read(bench.spec.state.join("home/file")).unwrap(), b"3\n");
        assert_eq!(bench.says(&format!("cat file {tmp}/file $HOME/file")), "1\n2\n3");
        bench.rest();
        assert_eq!(bench.read("file").unwrap(), b"1\n");
    }
}

fn resting_stops_what_runs(tier: Tier) {
    let bench = Bench::open(tier);
    let time = long_time();
    let line = format!("setsid -f sleep {time}; echo up; sleep {time}");
    let mut running: Vec<_> = (0..3).map(|_| bench.start(Command::shell(&line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    bench.rest();
    assert_eq!(processes_with(&time), Vec::<String>::new());
    for running in running {
        assert!(block_on(running.finish()).unwrap().killed);
    }
    assert_eq!(bench.status(), Status::Open { running: 0 });
    bench.says("true");
}

fn two_values_of_one_sandbox_share_it(tier: Tier) {
    let bench = Bench::open(tier);
    let other = bench.reopen();
    let anchor = bench.anchor();
    let mut running = block_on(other.exec(Command::shell("echo up; sleep 1000"))).unwrap();
    wait_for(&mut running, "up");
    assert_eq!((bench.anchor(), bench.status()), (anchor, Status::Open { running: 1 }));
    bench.rest();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(block_on(other.status()).unwrap(), Status::Open { running: 0 });
    assert_eq!(says(&other, "echo 1"), "1");
    bench.says("echo 2");
    drop(other);
    bench.says("echo 3");
    let other = bench.reopen();
    block_on(other.close()).unwrap();
    assert!(matches!(bench.status(), Status::Lost { .. }));
    let error = bench.refused(Command::argv(["true"]));
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!bench.spec.state.join("tmp").exists());
}

fn values_of_one_sandbox_wake_it_at_once(tier: Tier) {
    let bench = Bench::open(tier);
    let values: Vec<_> = (0..6).map(|_| bench.reopen()).collect();
    for _ in 0..5 {
        bench.rest();
        std::thread::scope(|scope| {
            values.iter().for_each(|value| drop(scope.spawn(move || says(value, "true"))));
        });
    }
}

fn a_closed_sandbox_stays_closed(tier: Tier) {
    for _ in 0..10 {
        let bench = Bench::open(tier);
        bench.rest();
        // It wakes and is closed at the same time.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ended = match block_on(bench.sandbox.exec(Command::argv(["true"]))) {
                    Ok(running) => block_on(running.finish()).map(drop),
                    Err(error) => Err(error),
                };
                assert!(matches!(ended, Ok(()) | Err(Error::Closed { .. } | Error::Lost { .. })), "{ended:?}");
            });
            block_on(bench.sandbox.close()).unwrap();
        });
        assert_eq!(bench.status(), Status::Closed);
        assert_eq!(fs::read_dir(&bench.spec.state).unwrap().count(), 0);
        assert!(!is_mounted(&bench.spec.state));
    }
}

fn closing_leaves_the_files_and_nothing_else(tier: Tier) {
    let bench = Bench::open(tier);
    let tmp = if tier == Tier::Ns { "/tmp" } else { "$TMPDIR" };
    bench.says(&format!(
        "mkdir -p d/e {tmp}/shut/inner; touch d/e/f {tmp}/shut/inner/x; cd {tmp}; chmod 000 shut/inner; chmod 500 shut"
    ));
    block_on(bench.sandbox.close()).unwrap();
    assert!(bench.spec.directory.join("d/e/f").exists());
    assert_eq!(fs::read_dir(&bench.spec.state).unwrap().count(), 0);
    let anew = block_on(bench.local.open(bench.spec.clone())).unwrap();
    assert_eq!(anew.identity().generation, 1);
    assert_ne!(anew.identity().id, bench.sandbox.identity().id);
}

#[test]
fn trees_of_any_depth_are_removed() {
    let Some(tier) = super::best() else { return };
    let bench = Bench::open(tier);
    deep_tree(&bench.spec.directory);
    block_on(bench.sandbox.remove(Path::new("d"))).unwrap();
    assert_eq!(bench.says("ls"), "");
    deep_tree(&bench.spec.state.join("tmp"));
    block_on(bench.sandbox.close()).unwrap();
    assert_eq!(fs::read_dir(&bench.spec.state).unwrap().count(), 0);
}

fn paths_may_be_relative_or_links(tier: Tier) {
    let base = tempfile::tempdir().unwrap();
    let real = super::spec_in(base.path());
    let link = base.path().join("link");
    std::os::unix::fs::symlink(base.path(), &link).unwrap();
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(base.path().strip_prefix("/").unwrap());
    let local = Arc::new(rath_sandbox::Local::only(tier));
    let sandbox = block_on(local.open(real)).unwrap();
    for place in [link, relative] {
        let spec = super::spec_in(&place);
        let other = block_on(local.reopen(sandbox.identity().clone(), spec.clone())).unwrap();
        assert_eq!(says(&other, "echo $RANDOM >file; cat file; pwd"), says(&sandbox, "cat file; pwd"));
        block_on(other.rest()).unwrap();
        assert_eq!(says(&other, "pwd; touch $HOME/x"), base.path().join("files").to_str().unwrap());
    }
}
