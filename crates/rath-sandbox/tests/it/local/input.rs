//! Invalid commands and invalid sandbox specifications.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, IsolationLevel, Local};

use super::{SandboxFixture, on_each_level, spec_in};

on_each_level!(
    a_large_environment_is_passed_on,
    too_many_arguments_are_an_error,
    a_message_too_long_for_the_supervisor_is_an_error,
    arguments_are_bytes,
    nul_bytes_are_an_error,
    an_empty_command_is_an_error,
    a_file_that_is_not_a_program_is_an_error,
    a_directory_that_vanishes_is_an_error,
    a_state_directory_that_cannot_be_used_is_an_error,
    files_that_this_process_left_open_are_not_passed_on,
);

/// Checks that the command fails to start with an error that contains `about`, and that the sandbox still works.
fn assert_cannot_start(fixture: &SandboxFixture, command: Command, about: &str) {
    let error = fixture.start_error(command);
    assert!(matches!(error, Error::CannotStart { .. }), "{error:?}");
    assert!(error.to_string().contains(about), "{error}");
    fixture.output("true");
}

fn a_large_environment_is_passed_on(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let mut command = Command::shell("env | wc -c");
    for n in 0..10 {
        command = command.env(format!("LARGE{n}"), "x".repeat(100_000));
    }
    let length: usize = String::from_utf8(fixture.run(command).stdout.bytes).unwrap().trim().parse().unwrap();
    assert!(length > 1_000_000, "{length}");
    // The kernel limits one string to 32 pages.
    assert_cannot_start(&fixture, Command::argv(["true"]).env("LARGE", "x".repeat(1 << 20)), "Argument list too long");
}

fn too_many_arguments_are_an_error(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let words = |count: usize| ["true"].into_iter().chain(std::iter::repeat_n("a word of many bytes", count));
    assert!(fixture.run(Command::argv(words(10_000))).ended.success());
    assert_cannot_start(&fixture, Command::argv(words(100_000)), "Argument list too long");
}

fn a_message_too_long_for_the_supervisor_is_an_error(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let running = fixture.start(Command::shell("sleep 1000"));
    assert_cannot_start(&fixture, Command::argv(["true", &"x".repeat(80 << 20)]), "Argument list too long");
    running.stop();
    assert!(block_on(running.finish()).unwrap().killed);
}

fn arguments_are_bytes(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let all: Vec<u8> = (1..=255).collect();
    let word = OsString::from_vec(all.clone());
    let command = Command::argv([OsStr::new("printf"), OsStr::new("%s"), &word]);
    assert_eq!(fixture.run(command).stdout.bytes, all);
    let finished = fixture.run(Command::shell("printf %s \"$ODD\"").env("ODD", word));
    assert_eq!(finished.stdout.bytes, all);
    let odd = OsStr::from_bytes(b"d\xff\n'\"");
    fs::create_dir(fixture.spec.directory.join(odd)).unwrap();
    assert_eq!(fixture.run(Command::shell("basename \"$(pwd)\"").cwd(odd)).stdout.bytes, b"d\xff\n'\"\n");
}

fn nul_bytes_are_an_error(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    for command in [
        Command::argv(["echo", "a\0b"]),
        Command::argv(["ec\0ho"]),
        Command::argv(["./ec\0ho"]),
        Command::shell("echo a\0b"),
        Command::argv(["true"]).env("A", "b\0c"),
        Command::argv(["true"]).env("A\0B", "c"),
    ] {
        assert_cannot_start(&fixture, command, "");
    }
    assert!(matches!(fixture.start_error(Command::argv(["true"]).cwd("a\0b")), Error::BadPath { .. }));
}

fn an_empty_command_is_an_error(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    assert_cannot_start(&fixture, Command::argv(Vec::<OsString>::new()), "empty");
    assert_cannot_start(&fixture, Command::argv([""]), "program not found");
    assert!(fixture.shell("").ended.success());
}

fn a_file_that_is_not_a_program_is_an_error(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    fixture.write("plain", b"#!/bin/sh\n").unwrap();
    fixture.write("bin/plain", b"#!/bin/sh\n").unwrap();
    let write = |path: &str, bytes: &[u8]| block_on(fixture.sandbox.write(path.as_ref(), bytes, Some(0o755))).unwrap();
    write("lost", b"#!/no/such/interpreter\n");
    write("noise", b"\x01\x02\x03");
    write("empty", b"");
    fixture.output("mkfifo pipe; chmod 755 pipe; mkdir dir");
    for (name, about) in [
        ("./plain", "not an executable"),
        ("./lost", "interpreter"),
        ("./noise", "format"),
        ("./empty", "format"),
        ("./pipe", "not an executable"),
        ("./dir", "not an executable"),
        ("./none", "program not found"),
        ("/etc/shadow", "not an executable"),
    ] {
        assert_cannot_start(&fixture, Command::argv([name]), about);
    }
    assert_cannot_start(&fixture, Command::argv(["plain"]).env("PATH", "bin"), "not executable");
}

fn a_directory_that_vanishes_is_an_error(level: IsolationLevel) {
    let fixture = &SandboxFixture::open(level);
    assert_cannot_start(fixture, Command::argv(["true"]).cwd("none"), "none");
    let here = fixture.spec.directory.join("comes and goes");
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::create_dir(&here);
                let _ = fs::remove_dir(&here);
            }
        });
        for _ in 0..100 {
            match block_on(fixture.sandbox.exec(Command::argv(["true"]).cwd("comes and goes"))) {
                Ok(running) => assert!(block_on(running.finish()).unwrap().ended.success()),
                Err(Error::CannotStart { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn a_state_directory_that_cannot_be_used_is_an_error(level: IsolationLevel) {
    let base = tempfile::tempdir().unwrap();
    let mut spec = spec_in(base.path());
    fs::write(base.path().join("file"), "").unwrap();
    let refused = |spec| block_on(Local::only(level).open(spec)).unwrap_err().to_string();
    spec.state = base.path().join("file");
    assert!(refused(spec.clone()).contains("file"));
    spec.state = base.path().join("none");
    assert!(refused(spec.clone()).contains("none"));
    spec.state = base.path().join("state");
    fs::set_permissions(&spec.state, fs::Permissions::from_mode(0o500)).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert!(refused(spec.clone()).contains("ermission"));
    }
    spec.directory = base.path().join("none");
    assert!(refused(spec.clone()).contains("none"));
}

/// Descriptors without close-on-exec, like those that a program inherits from a shell or from make.
fn files_that_this_process_left_open_are_not_passed_on(level: IsolationLevel) {
    let flags = rustix::fs::OFlags::RDONLY;
    let open = || rustix::fs::open("/etc", flags, rustix::fs::Mode::empty()).unwrap();
    let _left_open: Vec<_> = (0..10).map(|_| open()).collect();
    let fixture = SandboxFixture::open(level);
    assert_eq!(fixture.output("ls /proc/self/fd").lines().count(), 4);
}
