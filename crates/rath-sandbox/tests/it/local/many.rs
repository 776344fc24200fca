//! Many commands, threads and sandboxes at the same time.

use pollster::block_on;
use rath_sandbox::{Command, Error, IsolationLevel, SandboxStatus};

use super::{SandboxFixture, long_time, on_each_level, processes_with, wait_for, wait_until};

on_each_level!(
    many_commands_run_at_once,
    threads_share_a_sandbox,
    many_sandboxes_are_open_at_once,
    dropping_everything_ends_everything,
    closing_while_commands_start_ends_all_of_them,
    suspending_while_commands_start_ends_all_of_them,
);

fn many_commands_run_at_once(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let line = "echo up; until [ -e go ]; do sleep 0.1; done; cat";
    let start = |n: usize| fixture.start(Command::shell(line).stdin(vec![b'x'; 70_000 + n]));
    let mut running: Vec<_> = (0..40).map(start).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 40 });
    fixture.write("go", b"").unwrap();
    for (n, running) in running.into_iter().enumerate() {
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.ended.success());
        assert_eq!(finished.stdout.total, 70_003 + n as u64);
    }
}

fn threads_share_a_sandbox(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                for n in 0..10 {
                    let path = format!("{thread}/{n}");
                    fixture.write(&path, path.as_bytes()).unwrap();
                    assert_eq!(fixture.output(&format!("cat {path}; rm {path}")), path);
                    assert!(fixture.read(&path).is_err());
                }
            });
        }
    });
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
}

fn many_sandboxes_are_open_at_once(level: IsolationLevel) {
    let benches: Vec<SandboxFixture> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..50).map(|_| scope.spawn(move || SandboxFixture::open(level))).collect();
        opening.into_iter().map(|fixture| fixture.join().unwrap()).collect()
    });
    for (n, fixture) in benches.iter().enumerate() {
        fixture.output(&format!("echo {n} >file"));
    }
    for (n, fixture) in benches.iter().enumerate() {
        assert_eq!(fixture.output("cat file"), n.to_string());
    }
}

fn dropping_everything_ends_everything(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let (time, state) = (long_time(), fixture.spec.state.clone());
    let line = format!("trap '' TERM HUP; setsid -f sleep {time}; echo up; sleep {time}; sleep {time}");
    let mut running: Vec<_> = (0..10).map(|_| fixture.start(Command::shell(&line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    drop(fixture.sandbox);
    drop(running);
    wait_until(|| processes_with(&time).is_empty() && !super::is_mounted(&state));
}

/// Starts commands until the sandbox refuses more, while `act` runs. Checks that no command outlives `act`.
fn while_commands_are_starting(fixture: &SandboxFixture, time: &str, act: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    match block_on(
                        fixture.sandbox.exec(Command::shell(format!("setsid -f sleep {time}; sleep {time}"))),
                    ) {
                        Ok(running) => running.detach(),
                        Err(Error::Closed { .. }) => {}
                        Err(other) => assert!(other.to_string().contains("stopped before it started"), "{other}"),
                    }
                }
            });
        }
        (0..3).for_each(|_| act());
    });
}

fn closing_while_commands_start_ends_all_of_them(level: IsolationLevel) {
    for _ in 0..3 {
        let fixture = SandboxFixture::open(level);
        let time = long_time();
        while_commands_are_starting(&fixture, &time, || {
            block_on(fixture.sandbox.close()).unwrap();
        });
        assert_eq!(processes_with(&time), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&fixture.spec.state).unwrap().count(), 0);
    }
}

fn suspending_while_commands_start_ends_all_of_them(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let time = long_time();
    while_commands_are_starting(&fixture, &time, || fixture.suspend());
    fixture.suspend();
    assert_eq!(processes_with(&time), Vec::<String>::new());
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
    fixture.output("true");
}
