//! Much at once.

use pollster::block_on;
use rath_sandbox::{Command, Error, Status, Tier};

use super::{Bench, long_time, on_each_tier, processes_with, until, wait_for};

on_each_tier!(
    many_commands_run_at_once,
    threads_share_a_sandbox,
    many_sandboxes_are_open_at_once,
    dropping_everything_ends_everything,
    closing_while_commands_start_ends_all,
    resting_while_commands_start_ends_all,
);

fn many_commands_run_at_once(tier: Tier) {
    let bench = Bench::open(tier);
    let line = "echo up; until [ -e go ]; do sleep 0.1; done; cat";
    let start = |n: usize| bench.start(Command::shell(line).stdin(vec![b'x'; 70_000 + n]));
    let mut running: Vec<_> = (0..40).map(start).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    assert_eq!(bench.status(), Status::Open { running: 40 });
    bench.write("go", b"").unwrap();
    for (n, running) in running.into_iter().enumerate() {
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.ended.well());
        assert_eq!(finished.stdout.total, 70_003 + n as u64);
    }
}

fn threads_share_a_sandbox(tier: Tier) {
    let bench = Bench::open(tier);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                for n in 0..10 {
                    let path = format!("{thread}/{n}");
                    bench.write(&path, path.as_bytes()).unwrap();
                    assert_eq!(bench.says(&format!("cat {path}; rm {path}")), path);
                    assert!(bench.read(&path).is_err());
                }
            });
        }
    });
    assert_eq!(bench.status(), Status::Open { running: 0 });
}

fn many_sandboxes_are_open_at_once(tier: Tier) {
    let benches: Vec<Bench> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..50).map(|_| scope.spawn(move || Bench::open(tier))).collect();
        opening.into_iter().map(|bench| bench.join().unwrap()).collect()
    });
    for (n, bench) in benches.iter().enumerate() {
        bench.says(&format!("echo {n} >file"));
    }
    for (n, bench) in benches.iter().enumerate() {
        assert_eq!(bench.says("cat file"), n.to_string());
    }
}

fn dropping_everything_ends_everything(tier: Tier) {
    let bench = Bench::open(tier);
    let (time, state) = (long_time(), bench.spec.state.clone());
    let line = format!("trap '' TERM HUP; setsid -f sleep {time}; echo up; sleep {time}; sleep {time}");
    let mut running: Vec<_> = (0..10).map(|_| bench.start(Command::shell(&line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    drop(bench.sandbox);
    drop(running);
    until(|| processes_with(&time).is_empty() && !super::is_mounted(&state));
}

/// Starts commands until the sandbox does not take more. None of them outlives what is done meanwhile.
fn while_commands_start(bench: &Bench, time: &str, act: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    match block_on(bench.sandbox.exec(Command::shell(format!("setsid -f sleep {time}; sleep {time}"))))
                    {
                        Ok(running) => running.detach(),
                        Err(Error::Closed { .. }) => {}
                        Err(other) => assert!(other.to_string().contains("stopped before it began"), "{other}"),
                    }
                }
            });
        }
        (0..3).for_each(|_| act());
    });
}

fn closing_while_commands_start_ends_all(tier: Tier) {
    for _ in 0..3 {
        let bench = Bench::open(tier);
        let time = long_time();
        while_commands_start(&bench, &time, || {
            block_on(bench.sandbox.close()).unwrap();
        });
        assert_eq!(processes_with(&time), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&bench.spec.state).unwrap().count(), 0);
    }
}

fn resting_while_commands_start_ends_all(tier: Tier) {
    let bench = Bench::open(tier);
    let time = long_time();
    while_commands_start(&bench, &time, || bench.rest());
    bench.rest();
    assert_eq!(processes_with(&time), Vec::<String>::new());
    assert_eq!(bench.status(), Status::Open { running: 0 });
    bench.says("true");
}
