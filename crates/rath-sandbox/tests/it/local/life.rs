//! Suspending, reopening and closing sandboxes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, IsolationLevel, SandboxStatus};

use super::{SandboxFixture, deep_tree, is_mounted, long_time, on_each_level, output, processes_with, wait_for};

on_each_level!(
    a_suspended_sandbox_has_no_processes_or_mounts,
    suspending_stops_running_commands,
    two_handles_of_one_sandbox_share_it,
    handles_of_one_sandbox_resume_it_concurrently,
    a_closed_sandbox_stays_closed,
    closing_leaves_only_the_files,
    paths_may_be_relative_or_links,
);

fn is_running(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn a_suspended_sandbox_has_no_processes_or_mounts(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| spec.home = Some(base.join("home/ada")));
    let tmp = if level == IsolationLevel::Ns { "/tmp" } else { "$TMPDIR" };
    fixture.output(&format!("echo 1 >file; echo 2 >{tmp}/file; echo 3 >$HOME/file"));
    for _ in 0..3 {
        let supervisor = fixture.supervisor();
        assert!(is_running(supervisor));
        assert_eq!(is_mounted(&fixture.spec.state), level == IsolationLevel::Ns);
        fixture.suspend();
        fixture.suspend();
        assert!(!is_running(supervisor) && !is_mounted(&fixture.spec.state));
        assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
        assert_eq!(fs::read(fixture.spec.directory.join("file")).unwrap(), b"1\n");
        assert_eq!(fs::read(fixture.spec.state.join("tmp/file")).unwrap(), b"2\n");
        assert_eq!(fs::read(fixture.spec.state.join("home/file")).unwrap(), b"3\n");
        assert_eq!(fixture.output(&format!("cat file {tmp}/file $HOME/file")), "1\n2\n3");
        fixture.suspend();
        assert_eq!(fixture.read("file").unwrap(), b"1\n");
    }
}

fn suspending_stops_running_commands(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let time = long_time();
    let line = format!("setsid -f sleep {time}; echo up; sleep {time}");
    let mut running: Vec<_> = (0..3).map(|_| fixture.start(Command::shell(&line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    fixture.suspend();
    assert_eq!(processes_with(&time), Vec::<String>::new());
    for running in running {
        assert!(block_on(running.finish()).unwrap().killed);
    }
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
    fixture.output("true");
}

fn two_handles_of_one_sandbox_share_it(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let other = fixture.reopen();
    let supervisor = fixture.supervisor();
    let mut running = block_on(other.exec(Command::shell("echo up; sleep 1000"))).unwrap();
    wait_for(&mut running, "up");
    assert_eq!((fixture.supervisor(), fixture.status()), (supervisor, SandboxStatus::Open { running: 1 }));
    fixture.suspend();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(block_on(other.status()).unwrap(), SandboxStatus::Open { running: 0 });
    assert_eq!(output(&other, "echo 1"), "1");
    fixture.output("echo 2");
    drop(other);
    fixture.output("echo 3");
    let other = fixture.reopen();
    block_on(other.close()).unwrap();
    assert!(matches!(fixture.status(), SandboxStatus::Lost { .. }));
    let error = fixture.start_error(Command::argv(["true"]));
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!fixture.spec.state.join("tmp").exists());
}

fn handles_of_one_sandbox_resume_it_concurrently(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let values: Vec<_> = (0..6).map(|_| fixture.reopen()).collect();
    for _ in 0..5 {
        fixture.suspend();
        std::thread::scope(|scope| {
            values.iter().for_each(|value| drop(scope.spawn(move || output(value, "true"))));
        });
    }
}

fn a_closed_sandbox_stays_closed(level: IsolationLevel) {
    for _ in 0..10 {
        let fixture = SandboxFixture::open(level);
        fixture.suspend();
        // The sandbox is resumed and closed at the same time.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ended = match block_on(fixture.sandbox.exec(Command::argv(["true"]))) {
                    Ok(running) => block_on(running.finish()).map(drop),
                    Err(error) => Err(error),
                };
                assert!(matches!(ended, Ok(()) | Err(Error::Closed { .. } | Error::Lost { .. })), "{ended:?}");
            });
            block_on(fixture.sandbox.close()).unwrap();
        });
        assert_eq!(fixture.status(), SandboxStatus::Closed);
        assert_eq!(fs::read_dir(&fixture.spec.state).unwrap().count(), 0);
        assert!(!is_mounted(&fixture.spec.state));
    }
}

fn closing_leaves_only_the_files(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let tmp = if level == IsolationLevel::Ns { "/tmp" } else { "$TMPDIR" };
    fixture.output(&format!(
        "mkdir -p d/e {tmp}/shut/inner; touch d/e/f {tmp}/shut/inner/x; cd {tmp}; chmod 000 shut/inner; chmod 500 shut"
    ));
    block_on(fixture.sandbox.close()).unwrap();
    assert!(fixture.spec.directory.join("d/e/f").exists());
    assert_eq!(fs::read_dir(&fixture.spec.state).unwrap().count(), 0);
    let newer = block_on(fixture.local.open(fixture.spec.clone())).unwrap();
    assert_eq!(newer.identity().generation, 1);
    assert_ne!(newer.identity().id, fixture.sandbox.identity().id);
}

#[test]
fn trees_of_any_depth_are_removed() {
    let Some(level) = super::best() else { return };
    let fixture = SandboxFixture::open(level);
    deep_tree(&fixture.spec.directory);
    block_on(fixture.sandbox.remove(Path::new("d"))).unwrap();
    assert_eq!(fixture.output("ls"), "");
    deep_tree(&fixture.spec.state.join("tmp"));
    block_on(fixture.sandbox.close()).unwrap();
    assert_eq!(fs::read_dir(&fixture.spec.state).unwrap().count(), 0);
}

fn paths_may_be_relative_or_links(level: IsolationLevel) {
    let base = tempfile::tempdir().unwrap();
    let real = super::spec_in(base.path());
    let link = base.path().join("link");
    std::os::unix::fs::symlink(base.path(), &link).unwrap();
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(base.path().strip_prefix("/").unwrap());
    let local = Arc::new(rath_sandbox::Local::only(level));
    let sandbox = block_on(local.open(real)).unwrap();
    for place in [link, relative] {
        let spec = super::spec_in(&place);
        let other = block_on(local.reopen(sandbox.identity().clone(), spec.clone())).unwrap();
        assert_eq!(output(&other, "echo $RANDOM >file; cat file; pwd"), output(&sandbox, "cat file; pwd"));
        block_on(other.suspend()).unwrap();
        assert_eq!(output(&other, "pwd; touch $HOME/x"), base.path().join("files").to_str().unwrap());
    }
}
