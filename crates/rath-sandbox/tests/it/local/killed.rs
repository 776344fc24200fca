//! Processes of a sandbox that are killed from outside.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{
    Backend as _, ByteRange, Command, Error, ExitStatus, Host, Identity, IsolationLevel, Local, SandboxSpec,
    SandboxStatus, kill_marked,
};

use super::{
    SandboxFixture, helper, kill, long_time, on_each_level, output, processes_with, spec_in, wait_for, wait_until,
};

on_each_level!(
    a_killed_supervisor_loses_the_sandbox,
    a_killed_command_init_is_an_error_of_its_command,
    a_stopped_supervisor_does_not_block_its_owner,
    a_suspended_sandbox_has_no_supervisor,
    everything_ends_when_the_owner_is_killed,
    a_sandbox_is_reopened_right_after_its_owner_was_killed,
);

/// A shell line that starts a daemon that forked twice, one with its own session, one without environment, and a child.
fn daemons(time: &str) -> String {
    format!(
        "setsid -f sleep {time}; (setsid sh -c 'sleep {time} & exec sleep {time}' &); sleep {time} & \
         setsid -f env -i sleep {time}; until [ $(pgrep -cfx 'sleep {time}') = 5 ]; do sleep 0.01; done; echo up; wait"
    )
}

fn a_killed_supervisor_loses_the_sandbox(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    fixture.write("file", b"there").unwrap();
    let time = long_time();
    let mut running = fixture.start(Command::shell(daemons(&time)));
    wait_for(&mut running, "up");
    assert_eq!(processes_with(&time).len(), 6);
    kill(fixture.supervisor());
    let error = block_on(running.finish()).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    wait_until(|| matches!(fixture.status(), SandboxStatus::Lost { .. }));
    let error = fixture.start_error(Command::argv(["true"]));
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(matches!(fixture.read("file"), Err(Error::Lost { .. })));
    assert!(matches!(fixture.write("file", b""), Err(Error::Lost { .. })));
    wait_until(|| processes_with(&time).is_empty());
    let newer = block_on(fixture.local.open(fixture.spec.clone())).unwrap();
    assert_eq!(newer.identity().id, fixture.sandbox.identity().id);
    assert_eq!(newer.identity().generation, 2);
    assert_eq!(output(&newer, "cat file"), "there");
    assert!(matches!(fixture.status(), SandboxStatus::Lost { .. }));
    assert!(matches!(fixture.read("file"), Err(Error::Lost { .. })));
    block_on(newer.close()).unwrap();
}

fn a_killed_command_init_is_an_error_of_its_command(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let time = long_time();
    let mut running = fixture.start(Command::shell(format!("setsid -f sleep {time}; echo up; sleep {time}")));
    wait_for(&mut running, "up");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", fixture.supervisor())).unwrap();
    // The first child. There may be a second one, prepared for the next command.
    let init = children.split_whitespace().next().unwrap();
    let mut other = fixture.start(Command::shell("echo up; read line; echo $line"));
    wait_for(&mut other, "up");
    kill(init.parse().unwrap());
    let error = block_on(running.finish()).unwrap_err();
    assert_eq!(error.code(), "machine", "{error}");
    wait_until(|| processes_with(&time).is_empty());
    assert_eq!(block_on(other.finish()).unwrap().stdout.bytes, b"up\n\n");
    assert_eq!(fixture.output("echo well"), "well");
}

fn a_stopped_supervisor_does_not_block_its_owner(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let running = fixture.start(Command::shell("sleep 1000"));
    let pid = rustix::process::Pid::from_raw(fixture.supervisor()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    running.stop();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
    fixture.write("file", b"there").unwrap();
    assert_eq!(fixture.read("file").unwrap(), b"there");
    kill(fixture.supervisor());
}

fn a_suspended_sandbox_has_no_supervisor(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    fixture.suspend();
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 0 });
    fixture.output("true");
    kill(fixture.supervisor());
    wait_until(|| matches!(fixture.status(), SandboxStatus::Lost { .. }));
    fixture.suspend();
    block_on(fixture.sandbox.close()).unwrap();
    assert_eq!(fixture.status(), SandboxStatus::Closed);
}

/// Starts an owner process and waits until its command runs.
fn start_owner(level: IsolationLevel, base: &Path, line: &str) -> Child {
    let mut owner = helper::owner(level, base, line).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "up"), "{:?}", owner.wait());
    owner
}

fn known(spec: &SandboxSpec) -> Identity {
    serde_json::from_slice(&std::fs::read(spec.state.join("sandbox.json")).unwrap()).unwrap()
}

fn everything_ends_when_the_owner_is_killed(level: IsolationLevel) {
    let base = tempfile::tempdir().unwrap();
    let time = long_time();
    let mut owner = start_owner(level, base.path(), &daemons(&time));
    assert_eq!(processes_with(&time).len(), 6);
    owner.kill().unwrap();
    owner.wait().unwrap();
    if level == IsolationLevel::Landlock {
        kill_marked(&known(&spec_in(base.path())).id);
    }
    wait_until(|| processes_with(&time).is_empty());
}

fn a_sandbox_is_reopened_right_after_its_owner_was_killed(level: IsolationLevel) {
    let base = tempfile::tempdir().unwrap();
    let spec = spec_in(base.path());
    let time = long_time();
    let line = format!("echo x >>$HOME/rounds; {}", daemons(&time));
    for round in 0..5 {
        let mut owner = start_owner(level, base.path(), &line);
        owner.kill().unwrap();
        owner.wait().unwrap();
        let again = block_on(Local::only(level).reopen(known(&spec), spec.clone())).unwrap();
        // Nothing of the previous owner is left when the next one has opened the sandbox.
        assert_eq!(processes_with(&time), Vec::<String>::new());
        assert_eq!(again.identity().generation, 1);
        assert_eq!(output(&again, "wc -l <$HOME/rounds"), (round + 1).to_string());
        // The sandbox is dropped, not closed, so that the next owner can reopen it.
    }
    let newer = block_on(Local::only(level).open(spec)).unwrap();
    assert_eq!(newer.identity().generation, 2);
    assert_eq!(output(&newer, "cat $HOME/rounds 2>/dev/null || echo gone"), "gone");
}

#[test]
fn a_sandbox_of_another_process_is_not_opened() {
    let Some(level) = super::best() else { return };
    let base = tempfile::tempdir().unwrap();
    let spec = spec_in(base.path());
    let line = "echo kept >$HOME/file; echo up; until [ -e go ]; do sleep 0.01; done; cat $HOME/file >seen; sleep 1000";
    let mut owner = start_owner(level, base.path(), line);
    // Create the file while the other process waits for the lock, which it does not get.
    std::fs::write(spec.directory.join("go"), "").unwrap();
    let error = block_on(Local::only(level).open(spec.clone())).unwrap_err();
    assert!(error.to_string().contains("another process uses this sandbox"), "{error}");
    wait_until(|| std::fs::read(spec.directory.join("seen")).is_ok_and(|seen| seen == b"kept\n"));
    assert_eq!(known(&spec).generation, 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
}

/// A host sandbox in the same process kills what its own commands leave behind, and nothing else.
#[test]
fn the_host_backend_does_not_kill_supervisors() {
    if !super::has(IsolationLevel::Ns) || !super::run_alone("killed::the_host_backend_does_not_kill_supervisors") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let host = block_on(Host::new().open(spec_in(base.path()))).unwrap();
    let mut running = block_on(host.exec(Command::shell("echo up; sleep 1000"))).unwrap();
    wait_for(&mut running, "up");
    std::thread::sleep(Duration::from_millis(30)); // start times have a resolution of 10 ms
    let fixture = SandboxFixture::open(IsolationLevel::Ns);
    let held = fixture.start(Command::shell("sleep 1000"));
    running.stop();
    assert!(block_on(running.finish()).unwrap().killed);
    assert_eq!(fixture.status(), SandboxStatus::Open { running: 1 });
    fixture.output("true");
    held.stop();
    assert_eq!(block_on(held.finish()).unwrap().ended, ExitStatus::Signalled { signal: 15, core: false });
    assert!(block_on(fixture.sandbox.read(Path::new("none"), ByteRange::ALL)).is_err());
}
