//! Sockets and FIFOs in the workspace on which processes outside listen.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use pollster::block_on;
use rath_sandbox::{Command, IsolationLevel};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::{SandboxFixture, has, long_time, wait_for, wait_until};

/// A shell line that connects to a socket and sends a word.
fn connect(path: &str) -> String {
    format!("python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{path}\"); s.send(b\"in\")'")
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Whether a listener got a connection or a message.
fn was_reached(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

fn python() -> bool {
    std::process::Command::new("python3").arg("-c").arg("").status().is_ok_and(|status| status.success())
}

#[test]
fn a_socket_in_the_workspace_is_not_reachable() {
    if !has(IsolationLevel::Ns) || !python() {
        return;
    }
    let mut listeners = Vec::new();
    let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| {
        std::fs::create_dir_all(spec.directory.join("deep/er")).unwrap();
        for name in ["dev.sock", "deep/er/dev.sock"] {
            listeners.push(UnixListener::bind(spec.directory.join(name)).unwrap());
        }
    });
    let covered: Vec<PathBuf> = ["deep/er/dev.sock", "dev.sock"].map(PathBuf::from).into();
    assert_eq!(fixture.sandbox.covered(), covered);
    for path in ["dev.sock", "deep/er/dev.sock"] {
        assert!(!fixture.shell(&connect(path)).ended.success(), "{path}");
    }
    // It cannot be reached by a hard link, and cannot be moved or removed.
    assert!(!fixture.shell(&format!("mv deep other && {}", connect("other/er/dev.sock"))).ended.success());
    assert!(!fixture.shell("mv dev.sock b.sock || rm dev.sock || ln dev.sock c.sock").ended.success());
    assert!(!listeners.iter().any(was_reached));
    // Commands can reach sockets that commands created.
    let own = "import socket, os; l = socket.socket(socket.AF_UNIX); l.bind(\"own.sock\"); l.listen()\n\
               s = socket.socket(socket.AF_UNIX); s.connect(\"own.sock\"); s.send(b\"x\")";
    assert!(fixture.run(Command::argv(["python3", "-c", own])).ended.success());
}

#[test]
fn a_datagram_socket_in_the_workspace_is_not_reachable() {
    if !has(IsolationLevel::Ns) || !python() {
        return;
    }
    let mut socket = None;
    let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| {
        socket = Some(UnixDatagram::bind(spec.directory.join("log.sock")).unwrap());
    });
    let send = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b\"in\", \"log.sock\")";
    assert!(!fixture.run(Command::argv(["python3", "-c", send])).ended.success());
    let socket = socket.unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err());
}

#[test]
fn a_fifo_in_the_workspace_is_not_reachable() {
    if !has(IsolationLevel::Ns) {
        return;
    }
    let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| fifo(&spec.directory.join("pipe")));
    let flags = OFlags::RDWR | OFlags::NONBLOCK;
    let outside = rustix::fs::open(fixture.spec.directory.join("pipe"), flags, Mode::empty()).unwrap();
    let mut outside = std::fs::File::from(outside);
    assert!(!fixture.shell("echo in > pipe").ended.success());
    assert!(outside.read(&mut [0; 8]).is_err(), "nothing came through");
    outside.write_all(b"out\n").unwrap();
    assert!(!fixture.shell("cat pipe").ended.success());
    // Commands can use a FIFO that a command created.
    assert_eq!(fixture.output("mkfifo own && (echo in > own & cat own)"), "in");
}

#[test]
fn a_socket_that_is_bound_later_is_covered_from_the_next_command_on() {
    if !has(IsolationLevel::Ns) || !python() {
        return;
    }
    let fixture = SandboxFixture::open(IsolationLevel::Ns);
    assert_eq!(fixture.output("echo one"), "one");
    let listener = UnixListener::bind(fixture.spec.directory.join("late.sock")).unwrap();
    assert!(!fixture.shell(&connect("late.sock")).ended.success());
    assert!(!was_reached(&listener));
    // The server restarts with the same path.
    drop(listener);
    std::fs::remove_file(fixture.spec.directory.join("late.sock")).unwrap();
    let listener = UnixListener::bind(fixture.spec.directory.join("late.sock")).unwrap();
    assert!(!fixture.shell(&connect("late.sock")).ended.success());
    assert!(!was_reached(&listener));
    // The view does not change while a command runs. The first command after that gets a new view, in which the socket
    // is covered.
    let time = long_time();
    let mut running = fixture.start(Command::shell(format!("echo begun; sleep {time}")));
    wait_for(&mut running, "begun");
    let later = UnixListener::bind(fixture.spec.directory.join("later.sock")).unwrap();
    running.stop();
    block_on(running.finish()).unwrap();
    wait_until(|| block_on(fixture.sandbox.status()).unwrap() == rath_sandbox::SandboxStatus::Open { running: 0 });
    assert!(!fixture.shell(&connect("later.sock")).ended.success());
    assert!(!was_reached(&later));
}

#[test]
fn a_reopened_sandbox_covers_new_sockets() {
    if !has(IsolationLevel::Ns) {
        return;
    }
    let fixture = SandboxFixture::open(IsolationLevel::Ns);
    fixture.suspend();
    fifo(&fixture.spec.directory.join("pipe"));
    let reopened = fixture.reopen();
    assert_eq!(reopened.covered(), [PathBuf::from("pipe")]);
    assert_eq!(super::output(&reopened, "cat pipe 2>/dev/null || echo refused"), "refused");
}

#[test]
fn uncovered_fifos_are_reported() {
    if !has(IsolationLevel::Ns) {
        return;
    }
    let fixture = SandboxFixture::open(IsolationLevel::Ns);
    fixture.suspend();
    for number in 0..=1000 {
        fifo(&fixture.spec.directory.join(format!("pipe-{number}")));
    }
    let error = fixture.start_error(Command::shell("true")).to_string();
    assert!(error.contains("more than 1000 sockets and FIFOs are in the workspace"), "{error}");
    if has(IsolationLevel::Landlock) {
        let fixture = SandboxFixture::with(IsolationLevel::Landlock, |spec, _| fifo(&spec.directory.join("pipe")));
        let said = fixture.sandbox.not_enforced();
        assert!(said.iter().any(|said| said.contains("FIFOs") && said.ends_with(": pipe")), "{said:?}");
    }
}

/// A socket in a directory of `readable` is covered. A socket that is named in `readable` itself is not.
#[test]
fn a_readable_socket_is_covered_unless_it_is_named() {
    if !has(IsolationLevel::Ns) || !python() {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().canonicalize().unwrap().join("machine.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let fixture =
        SandboxFixture::with(IsolationLevel::Ns, |spec, _| spec.readable = vec![path.parent().unwrap().into()]);
    assert!(!fixture.shell(&connect(path.to_str().unwrap())).ended.success());
    assert!(!was_reached(&listener));
    let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| spec.readable = vec![path.clone()]);
    assert!(fixture.shell(&connect(path.to_str().unwrap())).ended.success());
    assert!(was_reached(&listener));
}
