//! Commands with a pseudoterminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{Command, ExitStatus, IsolationLevel, Limits, Running};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};

use super::{SandboxFixture, on_each_level, wait_until};

on_each_level!(
    a_command_has_a_terminal,
    keys_interrupt_and_suspend,
    closing_a_terminal_hangs_up,
    a_shell_has_job_control,
    time_is_not_limited_at_a_terminal,
);

/// The master end, and the end for the command.
fn terminal() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
    (File::from(master), slave)
}

fn start(fixture: &SandboxFixture, command: Command) -> (File, Running) {
    let (master, slave) = terminal();
    (master, fixture.start(command.terminal(slave)))
}

/// Reads from the terminal until it shows `text` or the command has ended. Returns everything that was shown.
fn shown_until(master: &mut File, text: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match master.read(&mut buffer) {
            Ok(length) if length > 0 => seen.extend_from_slice(&buffer[..length]),
            _ => return String::from_utf8(seen).unwrap(), // EIO: the other end is closed
        }
        if !text.is_empty() && String::from_utf8_lossy(&seen).contains(text) {
            return String::from_utf8(seen).unwrap();
        }
    }
}

fn a_command_has_a_terminal(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let line = "test -t 0 && test -t 1 && test -t 2 && stty size && echo to the terminal >/dev/tty && \
                cut -d' ' -f7 /proc/$$/stat";
    let (mut master, running) = start(&fixture, Command::shell(line));
    let shown = shown_until(&mut master, "");
    let device = shown.strip_prefix("33 77\r\nto the terminal\r\n").unwrap().trim();
    assert_ne!(device, "0");
    let finished = block_on(running.finish()).unwrap();
    assert_eq!((finished.ended, finished.stdout.total, finished.stderr.total), (ExitStatus::Exited(0), 0, 0));
    let (mut master, running) = start(&fixture, Command::shell("read line; echo \"got $line\""));
    master.write_all(b"a line\r").unwrap();
    assert!(shown_until(&mut master, "").ends_with("got a line\r\n"));
    block_on(running.finish()).unwrap();
}

fn keys_interrupt_and_suspend(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let (mut master, running) = start(&fixture, Command::shell("echo up; exec sleep 1000"));
    shown_until(&mut master, "up");
    master.write_all(b"\x03").unwrap();
    assert_eq!(block_on(running.finish()).unwrap().ended, ExitStatus::Signalled { signal: 2, core: false });
    let line = "trap 'echo caught; exit 3' QUIT; echo up; while :; do sleep 0.01; done";
    let (mut master, running) = start(&fixture, Command::shell(line));
    shown_until(&mut master, "up");
    master.write_all(b"\x1c").unwrap();
    shown_until(&mut master, "caught");
    assert_eq!(block_on(running.finish()).unwrap().ended, ExitStatus::Exited(3));
}

fn closing_a_terminal_hangs_up(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let (mut master, running) = start(&fixture, Command::shell("echo up; exec sleep 1000"));
    shown_until(&mut master, "up");
    drop(master);
    assert_eq!(block_on(running.finish()).unwrap().ended, ExitStatus::Signalled { signal: 1, core: false });
    let (mut master, running) = start(&fixture, Command::shell("trap '' HUP; echo up; cat; echo left >file"));
    shown_until(&mut master, "up");
    drop(master);
    block_on(running.finish()).unwrap();
    assert_eq!(fixture.read("file").unwrap(), b"left\n");
}

fn a_shell_has_job_control(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let (mut master, running) = start(&fixture, Command::argv(["sh", "-i"]).env("PS1", "ready> "));
    let shown = shown_until(&mut master, "ready> ");
    assert_eq!(shown, "ready> ");
    let shell = tcgetpgrp(&master).unwrap();
    master.write_all(b"sleep 1000\r").unwrap();
    wait_until(|| tcgetpgrp(&master).is_ok_and(|front| front != shell));
    master.write_all(b"\x1a").unwrap();
    assert!(shown_until(&mut master, "ready> ").contains("Stopped"));
    master.write_all(b"kill %1; fg; echo code $?\r").unwrap();
    shown_until(&mut master, "code 143\r\nready> ");
    master.write_all(b"exit 5\r").unwrap();
    assert_eq!(block_on(running.finish()).unwrap().ended, ExitStatus::Exited(5));
}

fn time_is_not_limited_at_a_terminal(level: IsolationLevel) {
    let limits = Limits { wall_time: Some(Duration::from_millis(1)), ..Limits::default() };
    let fixture = SandboxFixture::with(level, |spec, _| spec.limits = limits);
    let (_master, running) = start(&fixture, Command::shell("sleep 0.2"));
    assert!(block_on(running.finish()).unwrap().ended.success());
    let (_master, running) = start(&fixture, Command::shell("sleep 1000").timeout(Duration::from_millis(1)));
    assert!(block_on(running.finish()).unwrap().timed_out);
}
