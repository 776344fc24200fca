//! Sockets and FIFOs of the workspace, behind which processes outside listen.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use pollster::block_on;
use rath_sandbox::{Command, Tier};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::{Bench, has, long_time, until, wait_for};

/// A shell line that connects to a socket and sends a word.
fn connect(path: &str) -> String {
    format!("python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{path}\"); s.send(b\"in\")'")
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Whether somebody connected to a listener or wrote to it.
fn was_reached(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

fn python() -> bool {
    std::process::Command::new("python3").arg("-c").arg("").status().is_ok_and(|status| status.success())
}

#[test]
fn a_socket_of_the_workspace_does_not_lead_out() {
    if !has(Tier::Ns) || !python() {
        return;
    }
    let mut listeners = Vec::new();
    let bench = Bench::with(Tier::Ns, |spec, _| {
        std::fs::create_dir_all(spec.directory.join("deep/er")).unwrap();
        for name in ["dev.sock", "deep/er/dev.sock"] {
            listeners.push(UnixListener::bind(spec.directory.join(name)).unwrap());
        }
    });
    let covered: Vec<PathBuf> = ["deep/er/dev.sock", "dev.sock"].map(PathBuf::from).into();
    assert_eq!(bench.sandbox.covered(), covered);
    for path in ["dev.sock", "deep/er/dev.sock"] {
        assert!(!bench.shell(&connect(path)).ended.well(), "{path}");
    }
    // Neither under another name, nor moved, nor removed to make room.
    assert!(!bench.shell(&format!("mv deep other && {}", connect("other/er/dev.sock"))).ended.well());
    assert!(!bench.shell("mv dev.sock b.sock || rm dev.sock || ln dev.sock c.sock").ended.well());
    assert!(!listeners.iter().any(was_reached));
    // What commands listen to themselves they reach.
    let own = "import socket, os; l = socket.socket(socket.AF_UNIX); l.bind(\"own.sock\"); l.listen()\n\
               s = socket.socket(socket.AF_UNIX); s.connect(\"own.sock\"); s.send(b\"x\")";
    assert!(bench.run(Command::argv(["python3", "-c", own])).ended.well());
}

#[test]
fn a_datagram_socket_of_the_workspace_does_not_lead_out() {
    if !has(Tier::Ns) || !python() {
        return;
    }
    let mut socket = None;
    let bench = Bench::with(Tier::Ns, |spec, _| {
        socket = Some(UnixDatagram::bind(spec.directory.join("log.sock")).unwrap());
    });
    let send = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b\"in\", \"log.sock\")";
    assert!(!bench.run(Command::argv(["python3", "-c", send])).ended.well());
    let socket = socket.unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err());
}

#[test]
fn a_fifo_of_the_workspace_does_not_lead_out() {
    if !has(Tier::Ns) {
        return;
    }
    let bench = Bench::with(Tier::Ns, |spec, _| fifo(&spec.directory.join("pipe")));
    let flags = OFlags::RDWR | OFlags::NONBLOCK;
    let outside = rustix::fs::open(bench.spec.directory.join("pipe"), flags, Mode::empty()).unwrap();
    let mut outside = std::fs::File::from(outside);
    assert!(!bench.shell("echo in > pipe").ended.well());
    assert!(outside.read(&mut [0; 8]).is_err(), "nothing came through");
    outside.write_all(b"out\n").unwrap();
    assert!(!bench.shell("cat pipe").ended.well());
    // A FIFO that commands make is theirs.
    assert_eq!(bench.says("mkfifo own && (echo in > own & cat own)"), "in");
}

#[test]
fn a_socket_that_is_bound_later_is_covered_from_the_next_command_on() {
    if !has(Tier::Ns) || !python() {
        return;
    }
    let bench = Bench::open(Tier::Ns);
    assert_eq!(bench.says("echo one"), "one");
    let listener = UnixListener::bind(bench.spec.directory.join("late.sock")).unwrap();
    assert!(!bench.shell(&connect("late.sock")).ended.well());
    assert!(!was_reached(&listener));
    // The server begins anew, and takes the same name.
    drop(listener);
    std::fs::remove_file(bench.spec.directory.join("late.sock")).unwrap();
    let listener = UnixListener::bind(bench.spec.directory.join("late.sock")).unwrap();
    assert!(!bench.shell(&connect("late.sock")).ended.well());
    assert!(!was_reached(&listener));
    // While a command runs its view stays as it is: the next one with a view of its own has it covered.
    let time = long_time();
    let mut running = bench.start(Command::shell(format!("echo begun; sleep {time}")));
    wait_for(&mut running, "begun");
    let later = UnixListener::bind(bench.spec.directory.join("later.sock")).unwrap();
    running.kill();
    block_on(running.finish()).unwrap();
    until(|| block_on(bench.sandbox.status()).unwrap() == rath_sandbox::Status::Open { running: 0 });
    assert!(!bench.shell(&connect("later.sock")).ended.well());
    assert!(!was_reached(&later));
}

#[test]
fn a_reopened_sandbox_covers_what_is_there_by_then() {
    if !has(Tier::Ns) {
        return;
    }
    let bench = Bench::open(Tier::Ns);
    bench.rest();
    fifo(&bench.spec.directory.join("pipe"));
    let reopened = bench.reopen();
    assert_eq!(reopened.covered(), [PathBuf::from("pipe")]);
    assert_eq!(super::says(&reopened, "cat pipe 2>/dev/null || echo refused"), "refused");
}

#[test]
fn what_cannot_be_covered_is_said() {
    if !has(Tier::Ns) {
        return;
    }
    let bench = Bench::open(Tier::Ns);
    bench.rest();
    for number in 0..=1000 {
        fifo(&bench.spec.directory.join(format!("pipe-{number}")));
    }
    let error = bench.refused(Command::shell("true")).to_string();
    assert!(error.contains("more than 1000 sockets and FIFOs are in the workspace"), "{error}");
    if has(Tier::Landlock) {
        let bench = Bench::with(Tier::Landlock, |spec, _| fifo(&spec.directory.join("pipe")));
        let said = bench.sandbox.not_enforced();
        assert!(said.iter().any(|said| said.contains("FIFOs") && said.ends_with(": pipe")), "{said:?}");
    }
}

/// A socket in what is shown besides the workspace leads out as well; one that was asked for by name is meant.
#[test]
fn a_socket_elsewhere_is_covered_unless_it_is_named() {
    if !has(Tier::Ns) || !python() {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().canonicalize().unwrap().join("machine.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let bench = Bench::with(Tier::Ns, |spec, _| spec.readable = vec![path.parent().unwrap().into()]);
    assert!(!bench.shell(&connect(path.to_str().unwrap())).ended.well());
    assert!(!was_reached(&listener));
    let bench = Bench::with(Tier::Ns, |spec, _| spec.readable = vec![path.clone()]);
    assert!(bench.shell(&connect(path.to_str().unwrap())).ended.well());
    assert!(was_reached(&listener));
}
