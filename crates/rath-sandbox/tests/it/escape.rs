//! Tests that no process outlives its command. They count the orphans of a process, so each test runs in its own
//! process.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{Backend as _, ByteRange, Command, ExitStatus, Host, Running, Sandbox, SandboxSpec, kill_marked};
use tempfile::TempDir;

const ALONE: &str = "RATH_TEST_ALONE";

/// Starts a daemon that forked twice, and has its own session and no environment. Waits until it runs.
const DAEMON: &str =
    "setsid -f env -i /bin/sh -c 'echo $$ >pid; exec sleep 1000'; until [ -s pid ]; do sleep 0.01; done";

/// Returns `true` in a process that runs only `test`. Otherwise starts such a process, waits for it, and returns
/// `false`.
fn run_alone(test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let output = process(test).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}: {out}{err}");
    false
}

/// This test binary, running one test on its main thread.
fn process(test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("escape::{test}"), "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command
}

fn sandbox() -> (Arc<dyn Sandbox>, [TempDir; 2]) {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let spec = SandboxSpec::new(directories[0].path(), directories[1].path()).env("PATH", "/usr/bin:/bin");
    (block_on(Host::new().open(spec)).unwrap(), directories)
}

/// The process whose id a command wrote to the file `pid`.
fn daemon(sandbox: &Arc<dyn Sandbox>) -> String {
    loop {
        if let Ok(contents) = block_on(sandbox.read(Path::new("pid"), ByteRange::ALL))
            && contents.bytes.ends_with(b"\n")
        {
            return String::from_utf8(contents.bytes).unwrap().trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_running(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

fn start(sandbox: &Arc<dyn Sandbox>, line: &str) -> Running {
    block_on(sandbox.exec(Command::shell(line))).unwrap()
}

#[test]
fn a_daemon_is_killed_with_its_command() {
    if run_alone("a_daemon_is_killed_with_its_command") {
        let (sandbox, _keep) = sandbox();
        let finished = block_on(start(&sandbox, &format!("{DAEMON}; exit 5")).finish()).unwrap();
        assert_eq!((finished.ended, finished.killed_orphans), (ExitStatus::Exited(5), 1));
        assert!(!is_running(&daemon(&sandbox)));
    }
}

#[test]
fn a_daemon_is_killed_by_a_timeout() {
    if run_alone("a_daemon_is_killed_by_a_timeout") {
        let (sandbox, _keep) = sandbox();
        let mut time = Duration::from_millis(200);
        // Increase the time until it was enough for the daemon to start.
        while block_on(sandbox.read(Path::new("pid"), ByteRange::first(1))).map_or(0, |contents| contents.size) == 0 {
            let command = Command::shell(format!("{DAEMON}; sleep 1000")).timeout(time);
            let finished = block_on(block_on(sandbox.exec(command)).unwrap().finish()).unwrap();
            assert!(finished.timed_out);
            time *= 2;
        }
        assert!(!is_running(&daemon(&sandbox)));
    }
}

#[test]
fn a_daemon_is_killed_when_its_sandbox_is_closed() {
    if run_alone("a_daemon_is_killed_when_its_sandbox_is_closed") {
        let (sandbox, _keep) = sandbox();
        start(&sandbox, &format!("{DAEMON}; touch up; sleep 1000")).detach();
        while block_on(sandbox.read(Path::new("up"), ByteRange::ALL)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = daemon(&sandbox);
        assert!(is_running(&pid));
        assert_eq!(block_on(sandbox.close()).unwrap().stopped, 1);
        assert!(!is_running(&pid));
    }
}

#[test]
fn a_daemon_of_unknown_origin_is_killed_after_the_last_command() {
    if run_alone("a_daemon_of_unknown_origin_is_killed_after_the_last_command") {
        let (sandbox, _keep) = sandbox();
        let other = start(&sandbox, "sleep 1000");
        let other_too = start(&sandbox, "sleep 1000");
        let finished = block_on(start(&sandbox, DAEMON).finish()).unwrap();
        assert!(finished.ended.success() && finished.killed_orphans == 0);
        let pid = daemon(&sandbox);
        other.stop();
        block_on(other.finish()).unwrap();
        assert!(is_running(&pid));
        other_too.stop();
        let finished = block_on(other_too.finish()).unwrap();
        assert!(!is_running(&pid));
        assert!(finished.killed && finished.killed_orphans <= 1);
    }
}

/// The daemon has the pipe open, and the command that started it is not known. The output must not wait for it.
#[test]
fn a_surviving_daemon_does_not_block_the_output() {
    if run_alone("a_surviving_daemon_does_not_block_the_output") {
        let (sandbox, _keep) = sandbox();
        let other = start(&sandbox, "sleep 1000");
        let daemon =
            "setsid -f env -i /bin/sh -c 'echo $$ >pid; while :; do echo noise; done'; until [ -s pid ]; do :; done";
        let finished = block_on(start(&sandbox, &format!("{daemon}; echo said >&2")).finish()).unwrap();
        assert_eq!(finished.stderr.bytes, b"said\n");
        drop(other);
        while is_running(&self::daemon(&sandbox)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn sleeper(group: bool) -> Child {
    let mut command = std::process::Command::new("/bin/sleep");
    if group {
        command.process_group(0);
    }
    command.arg("1000").env_clear().spawn().unwrap()
}

#[test]
fn children_of_the_program_itself_are_not_killed() {
    if run_alone("children_of_the_program_itself_are_not_killed") {
        let (sandbox, _keep) = sandbox();
        let mut before = sleeper(true);
        std::thread::sleep(Duration::from_millis(30)); // start times have a resolution of 10 ms
        let running = start(&sandbox, &format!("{DAEMON}; sleep 1000"));
        let pid = daemon(&sandbox);
        let mut same_group = sleeper(false);
        let (let_go, wait) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(sleeper(true)).unwrap();
            let _ = wait.recv();
        });
        let mut of_thread = receiver.recv().unwrap();
        running.stop();
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.killed && !is_running(&pid));
        for child in [&mut before, &mut same_group, &mut of_thread] {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        drop(let_go);
        thread.join().unwrap();
    }
}

/// Child process: leaves two marked processes behind when it is killed.
#[test]
fn leaves_marked_processes_behind() {
    if std::env::var(ALONE).is_ok_and(|name| name == "leaves_marked_processes_behind") {
        let (sandbox, _keep) = sandbox();
        let mut running = start(&sandbox, "setsid sleep 1000 & echo up; exec sleep 1000");
        block_on(running.next()).unwrap();
        println!("\nsandbox {}", sandbox.identity().id);
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn processes_of_a_killed_process_are_found_by_their_marker() {
    if run_alone("processes_of_a_killed_process_are_found_by_their_marker") {
        let (_sandbox, _keep) = sandbox(); // makes this process the parent of the orphans
        let mut victim = process("leaves_marked_processes_behind").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
        let id = lines.filter_map(|line| line.strip_prefix("sandbox ").map(str::to_owned)).next().unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_eq!(kill_marked(&id[..20]), 0);
        assert_eq!(kill_marked(&id), 2);
        assert_eq!(kill_marked(&id), 0);
    }
}

#[test]
fn zombies_are_reaped() {
    if run_alone("zombies_are_reaped") {
        let (sandbox, _keep) = sandbox();
        for _ in 0..20 {
            let finished = block_on(start(&sandbox, "(true &); setsid -f true; true & sleep 0.02").finish()).unwrap();
            assert!(finished.ended.success());
        }
        let me = std::process::id();
        let children = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap();
        assert_eq!(children, "");
    }
}
