//! Processes that are killed behind the backend's back.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{
    Backend as _, Command, Ended, Error, Host, Identity, Local, Part, Spec, Status, Tier, sweep_marked,
};

use super::{Bench, helper, kill, long_time, on_each_tier, processes_with, says, spec_in, until, wait_for};

on_each_tier!(
    a_killed_anchor_is_a_lost_sandbox,
    a_killed_keeper_is_an_error_of_its_command,
    a_stopped_anchor_does_not_stop_its_owner,
    a_resting_sandbox_has_no_anchor_to_kill,
    all_ends_when_the_owner_is_killed,
    a_sandbox_is_taken_up_right_after_its_owner_was_killed,
);

/// A daemon that forked twice, one with a session of its own, one with no environment, a child, and the shell.
fn daemons(time: &str) -> String {
    format!(
        "setsid -f sleep {time}; (setsid sh -c 'sleep {time} & exec sleep {time}' &); sleep {time} & \
         setsid -f env -i sleep {time}; until [ $(pgrep -cfx 'sleep {time}') = 5 ]; do sleep 0.01; done; echo up; wait"
    )
}

fn a_killed_anchor_is_a_lost_sandbox(tier: Tier) {
    let bench = Bench::open(tier);
    bench.write("file", b"there").unwrap();
    let time = long_time();
    let mut running = bench.start(Command::shell(daemons(&time)));
    wait_for(&mut running, "up");
    assert_eq!(processes_with(&time).len(), 6);
    kill(bench.anchor());
    let error = block_on(running.finish()).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    until(|| matches!(bench.status(), Status::Lost { .. }));
    let error = bench.refused(Command::argv(["true"]));
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(matches!(bench.read("file"), Err(Error::Lost { .. })));
    assert!(matches!(bench.write("file", b""), Err(Error::Lost { .. })));
    until(|| processes_with(&time).is_empty());
    let anew = block_on(bench.local.open(bench.spec.clone())).unwrap();
    assert_eq!(anew.identity().id, bench.sandbox.identity().id);
    assert_eq!(anew.identity().generation, 2);
    assert_eq!(says(&anew, "cat file"), "there");
    assert!(matches!(bench.status(), Status::Lost { .. }));
    assert!(matches!(bench.read("file"), Err(Error::Lost { .. })));
    block_on(anew.close()).unwrap();
}

fn a_killed_keeper_is_an_error_of_its_command(tier: Tier) {
    let bench = Bench::open(tier);
    let time = long_time();
    let mut running = bench.start(Command::shell(format!("setsid -f sleep {time}; echo up; sleep {time}")));
    wait_for(&mut running, "up");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", bench.anchor())).unwrap();
    // The first one; there may be another that waits for the next command.
    let keeper = children.split_whitespace().next().unwrap();
    let mut other = bench.start(Command::shell("echo up; read line; echo $line"));
    wait_for(&mut other, "up");
    kill(keeper.parse().unwrap());
    let error = block_on(running.finish()).unwrap_err();
    assert_eq!(error.code(), "machine", "{error}");
    until(|| processes_with(&time).is_empty());
    assert_eq!(block_on(other.finish()).unwrap().stdout.bytes, b"up\n\n");
    assert_eq!(bench.says("echo well"), "well");
}

fn a_stopped_anchor_does_not_stop_its_owner(tier: Tier) {
    let bench = Bench::open(tier);
    let running = bench.start(Command::shell("sleep 1000"));
    let pid = rustix::process::Pid::from_raw(bench.anchor()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    running.kill();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(bench.status(), Status::Open { running: 0 });
    bench.write("file", b"there").unwrap();
    assert_eq!(bench.read("file").unwrap(), b"there");
    kill(bench.anchor());
}

fn a_resting_sandbox_has_no_anchor_to_kill(tier: Tier) {
    let bench = Bench::open(tier);
    bench.rest();
    assert_eq!(bench.status(), Status::Open { running: 0 });
    bench.says("true");
    kill(bench.anchor());
    until(|| matches!(bench.status(), Status::Lost { .. }));
    bench.rest();
    block_on(bench.sandbox.close()).unwrap();
    assert_eq!(bench.status(), Status::Closed);
}

/// Starts it and waits until its command runs.
fn start_owner(tier: Tier, base: &Path, line: &str) -> Child {
    let mut owner = helper::owner(tier, base, line).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "up"), "{:?}", owner.wait());
    owner
}

fn known(spec: &Spec) -> Identity {
    serde_json::from_slice(&std::fs::read(spec.state.join("sandbox.json")).unwrap()).unwrap()
}

fn all_ends_when_the_owner_is_killed(tier: Tier) {
    let base = tempfile::tempdir().unwrap();
    let time = long_time();
    let mut owner = start_owner(tier, base.path(), &daemons(&time));
    assert_eq!(processes_with(&time).len(), 6);
    owner.kill().unwrap();
    owner.wait().unwrap();
    if tier == Tier::Landlock {
        sweep_marked(&known(&spec_in(base.path())).id);
    }
    until(|| processes_with(&time).is_empty());
}

fn a_sandbox_is_taken_up_right_after_its_owner_was_killed(tier: Tier) {
    let base = tempfile::tempdir().unwrap();
    let spec = spec_in(base.path());
    let time = long_time();
    let line = format!("echo x >>$HOME/rounds; {}", daemons(&time));
    for round in 0..5 {
        let mut owner = start_owner(tier, base.path(), &line);
        owner.kill().unwrap();
        owner.wait().unwrap();
        let again = block_on(Local::only(tier).reopen(known(&spec), spec.clone())).unwrap();
        // Nothing of the one before is left when the next one is open.
        assert_eq!(processes_with(&time), Vec::<String>::new());
        assert_eq!(again.identity().generation, 1);
        assert_eq!(says(&again, "wc -l <$HOME/rounds"), (round + 1).to_string());
        // It is dropped, not closed: the next owner takes it up.
    }
    let anew = block_on(Local::only(tier).open(spec)).unwrap();
    assert_eq!(anew.identity().generation, 2);
    assert_eq!(says(&anew, "cat $HOME/rounds 2>/dev/null || echo gone"), "gone");
}

#[test]
fn a_sandbox_that_another_process_has_is_left_alone() {
    let Some(tier) = super::best() else { return };
    let base = tempfile::tempdir().unwrap();
    let spec = spec_in(base.path());
    let line = "echo kept >$HOME/file; echo up; until [ -e go ]; do sleep 0.01; done; cat $HOME/file >seen; sleep 1000";
    let mut owner = start_owner(tier, base.path(), line);
    // The file is made while the other process waits for its turn, which does not come.
    std::fs::write(spec.directory.join("go"), "").unwrap();
    let error = block_on(Local::only(tier).open(spec.clone())).unwrap_err();
    assert!(error.to_string().contains("another process works in this sandbox"), "{error}");
    until(|| std::fs::read(spec.directory.join("seen")).is_ok_and(|seen| seen == b"kept\n"));
    assert_eq!(known(&spec).generation, 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
}

/// A sandbox of the host backend in the same process kills what its commands leave, not what others started.
#[test]
fn the_host_backend_spares_anchors() {
    if !super::has(Tier::Ns) || !super::alone("killed::the_host_backend_spares_anchors") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let host = block_on(Host::new().open(spec_in(base.path()))).unwrap();
    let mut running = block_on(host.exec(Command::shell("echo up; sleep 1000"))).unwrap();
    wait_for(&mut running, "up");
    std::thread::sleep(Duration::from_millis(30)); // start times are told in hundredths of a second
    let bench = Bench::open(Tier::Ns);
    let held = bench.start(Command::shell("sleep 1000"));
    running.kill();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(bench.status(), Status::Open { running: 1 });
    bench.says("true");
    held.kill();
    assert_eq!(block_on(held.finish()).unwrap().ended, Ended::Signalled { signal: 15, core: false });
    assert!(block_on(bench.sandbox.read(Path::new("none"), Part::ALL)).is_err());
}
