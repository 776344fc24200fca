//! The test binary as a command inside a sandbox, or as a process outside that is killed.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Identity, IsolationLevel, Local, SandboxSpec};

use super::{spec_in, wait_for};

const ACT: &str = "RATH_TEST_ACT";

/// Makes this binary visible in a sandbox.
pub(super) fn show(spec: &mut SandboxSpec) {
    spec.readable.push(std::env::current_exe().unwrap());
}

/// A command that runs this binary with one of the acts below.
pub(super) fn act(act: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let words = ["--exact", "local::helper::acts", "--nocapture", "--test-threads=1"];
    Command::argv([program.into_os_string()].into_iter().chain(words.map(Into::into))).env(ACT, act)
}

/// A process that opens or reopens the sandbox in `base`, runs `line`, and prints a line when the command wrote `up`.
pub(super) fn owner(level: IsolationLevel, base: &Path, line: &str) -> std::process::Command {
    let mut command = super::this_binary("helper::acts");
    command.env(ACT, "own").env("LEVEL", level.to_string()).env("BASE", base).env("LINE", line);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

#[test]
fn acts() {
    match std::env::var(ACT).as_deref() {
        Ok("own") => own(),
        Ok("start a child from a thread") => start_a_child_from_a_thread(),
        Ok("make refused calls forever") => make_refused_calls_forever(),
        Ok("open files") => open_files(),
        _ => {}
    }
}

fn own() {
    let level = if std::env::var("LEVEL").unwrap() == "ns" { IsolationLevel::Ns } else { IsolationLevel::Landlock };
    let base = std::env::var("BASE").unwrap();
    let spec = spec_in(Path::new(&base));
    let known = std::fs::read(spec.state.join("sandbox.json")).ok();
    let known = known.map(|text| serde_json::from_slice::<Identity>(&text).unwrap());
    let local = Local::only(level);
    let sandbox = match known {
        Some(identity) => block_on(local.reopen(identity, spec)).unwrap(),
        None => block_on(local.open(spec)).unwrap(),
    };
    let mut running = block_on(sandbox.exec(Command::shell(std::env::var("LINE").unwrap()))).unwrap();
    wait_for(&mut running, "up");
    println!("\nup");
    std::io::stdout().flush().unwrap();
    std::thread::park();
}

/// Starts a child from a second thread. The child ends on SIGTERM.
fn start_a_child_from_a_thread() {
    let line = "trap 'echo asked >asked; exit' TERM; echo up; while :; do sleep 0.01; done";
    let thread = std::thread::spawn(move || {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", line]).spawn().unwrap();
        child.wait().unwrap();
    });
    thread.join().unwrap();
}

/// Makes refused calls in a loop, while a child allocates more and more memory.
fn make_refused_calls_forever() {
    let mut child = std::process::Command::new("/bin/sh").args(["-c", "exec tail /dev/zero"]).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        let _ = rustix::process::chroot("/");
    }
}

/// Opens as many files as possible.
fn open_files() {
    let mut files = Vec::new();
    loop {
        match std::fs::File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => return println!("{}: {error}", files.len()),
        }
    }
}
