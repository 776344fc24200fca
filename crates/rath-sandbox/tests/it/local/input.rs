//! Commands and sandboxes that cannot be.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, Local, Tier};

use super::{Bench, on_each_tier, spec_in};

on_each_tier!(
    a_large_environment_arrives,
    too_many_arguments_are_an_error,
    a_message_too_long_for_the_anchor_is_an_error,
    arguments_are_bytes,
    nul_bytes_are_an_error,
    an_empty_command_is_an_error,
    what_is_not_a_program_is_an_error,
    a_directory_that_vanishes_is_an_error,
    a_state_directory_that_cannot_be_used_is_an_error,
    files_that_this_process_left_open_are_not_passed_on,
);

/// It says what it is about, and the sandbox is as well as before.
fn assert_cannot_start(bench: &Bench, command: Command, about: &str) {
    let error = bench.refused(command);
    assert!(matches!(error, Error::CannotStart { .. }), "{error:?}");
    assert!(error.to_string().contains(about), "{error}");
    bench.says("true");
}

fn a_large_environment_arrives(tier: Tier) {
    let bench = Bench::open(tier);
    let mut command = Command::shell("env | wc -c");
    for n in 0..10 {
        command = command.env(format!("LARGE{n}"), "x".repeat(100_000));
    }
    let length: usize = String::from_utf8(bench.run(command).stdout.bytes).unwrap().trim().parse().unwrap();
    assert!(length > 1_000_000, "{length}");
    // One string may not be longer than 32 pages.
    assert_cannot_start(&bench, Command::argv(["true"]).env("LARGE", "x".repeat(1 << 20)), "Argument list too long");
}

fn too_many_arguments_are_an_error(tier: Tier) {
    let bench = Bench::open(tier);
    let words = |count: usize| ["true"].into_iter().chain(std::iter::repeat_n("a word of many bytes", count));
    assert!(bench.run(Command::argv(words(10_000))).ended.well());
    assert_cannot_start(&bench, Command::argv(words(100_000)), "Argument list too long");
}

fn a_message_too_long_for_the_anchor_is_an_error(tier: Tier) {
    let bench = Bench::open(tier);
    let running = bench.start(Command::shell("sleep 1000"));
    assert_cannot_start(&bench, Command::argv(["true", &"x".repeat(80 << 20)]), "Argument list too long");
    running.kill();
    assert!(block_on(running.finish()).unwrap().killed);
}

fn arguments_are_bytes(tier: Tier) {
    let bench = Bench::open(tier);
    let all: Vec<u8> = (1..=255).collect();
    let word = OsString::from_vec(all.clone());
    let command = Command::argv([OsStr::new("printf"), OsStr::new("%s"), &word]);
    assert_eq!(bench.run(command).stdout.bytes, all);
    let finished = bench.run(Command::shell("printf %s \"$ODD\"").env("ODD", word));
    assert_eq!(finished.stdout.bytes, all);
    let odd = OsStr::from_bytes(b"d\xff\n'\"");
    fs::create_dir(bench.spec.directory.join(odd)).unwrap();
    assert_eq!(bench.run(Command::shell("basename \"$(pwd)\"").cwd(odd)).stdout.bytes, b"d\xff\n'\"\n");
}

fn nul_bytes_are_an_error(tier: Tier) {
    let bench = Bench::open(tier);
    for command in [
        Command::argv(["echo", "a\0b"]),
        Command::argv(["ec\0ho"]),
        Command::argv(["./ec\0ho"]),
        Command::shell("echo a\0b"),
        Command::argv(["true"]).env("A", "b\0c"),
        Command::argv(["true"]).env("A\0B", "c"),
    ] {
        assert_cannot_start(&bench, command, "");
    }
    assert!(matches!(bench.refused(Command::argv(["true"]).cwd("a\0b")), Error::BadPath { .. }));
}

fn an_empty_command_is_an_error(tier: Tier) {
    let bench = Bench::open(tier);
    assert_cannot_start(&bench, Command::argv(Vec::<OsString>::new()), "empty");
    assert_cannot_start(&bench, Command::argv([""]), "no such program");
    assert!(bench.shell("").ended.well());
}

fn what_is_not_a_program_is_an_error(tier: Tier) {
    let bench = Bench::open(tier);
    bench.write("plain", b"#!/bin/sh\n").unwrap();
    bench.write("bin/plain", b"#!/bin/sh\n").unwrap();
    let write = |path: &str, bytes: &[u8]| block_on(bench.sandbox.write(path.as_ref(), bytes, Some(0o755))).unwrap();
    write("lost", b"#!/no/such/interpreter\n");
    write("noise", b"\x01\x02\x03");
    write("empty", b"");
    bench.says("mkfifo pipe; chmod 755 pipe; mkdir dir");
    for (name, about) in [
        ("./plain", "not an executable"),
        ("./lost", "interpreter"),
        ("./noise", "format"),
        ("./empty", "format"),
        ("./pipe", "not an executable"),
        ("./dir", "not an executable"),
        ("./none", "no such program"),
        ("/etc/shadow", "not an executable"),
    ] {
        assert_cannot_start(&bench, Command::argv([name]), about);
    }
    assert_cannot_start(&bench, Command::argv(["plain"]).env("PATH", "bin"), "not executable");
}

fn a_directory_that_vanishes_is_an_error(tier: Tier) {
    let bench = &Bench::open(tier);
    assert_cannot_start(bench, Command::argv(["true"]).cwd("none"), "none");
    let here = bench.spec.directory.join("comes and goes");
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::create_dir(&here);
                let _ = fs::remove_dir(&here);
            }
        });
        for _ in 0..100 {
            match block_on(bench.sandbox.exec(Command::argv(["true"]).cwd("comes and goes"))) {
                Ok(running) => assert!(block_on(running.finish()).unwrap().ended.well()),
                Err(Error::CannotStart { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn a_state_directory_that_cannot_be_used_is_an_error(tier: Tier) {
    let base = tempfile::tempdir().unwrap();
    let mut spec = spec_in(base.path());
    fs::write(base.path().join("file"), "").unwrap();
    let refused = |spec| block_on(Local::only(tier).open(spec)).unwrap_err().to_string();
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

/// As those that a program gets from a shell or from make: without the mark that closes them in children.
fn files_that_this_process_left_open_are_not_passed_on(tier: Tier) {
    let flags = rustix::fs::OFlags::RDONLY;
    let open = || rustix::fs::open("/etc", flags, rustix::fs::Mode::empty()).unwrap();
    let _left_open: Vec<_> = (0..10).map(|_| open()).collect();
    let bench = Bench::open(tier);
    assert_eq!(bench.says("ls /proc/self/fd").lines().count(), 4);
}
