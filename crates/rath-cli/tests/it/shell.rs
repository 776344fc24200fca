//! `rath sh`: a person at a terminal, played by a test at the other end of a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::local::isolates;
use crate::workspace::{Bench, text};

struct Person {
    terminal: File,
    theirs: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Person {
    /// Sits down at a terminal and runs `rath` there.
    fn begins(bench: &Bench, arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).and_then(|()| unlockpt(&ours)).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&ours, size(24, 80)).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_rath"));
        command.args(arguments).current_dir(bench.root()).env("USER", "ada").env("TERM", "dumb");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let terminal = File::from(ours);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, shown) = (terminal.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self { terminal, theirs, seen, child }
    }

    fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn sees(&self) -> String {
        text(&self.seen.lock().unwrap())
    }

    fn sees_within_a_minute(&mut self, what: impl Fn(&str) -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if what(&self.sees()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn waits_for(&mut self, what: &str) {
        assert!(self.sees_within_a_minute(|seen| seen.contains(what)), "no {what:?} in {:?}", self.sees());
    }

    /// Whether the terminal is as it was: keys are shown and lines are edited.
    fn is_left_in_order(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

#[test]
fn what_a_person_does_by_hand_is_one_call() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/a", "one\n");
    let session = bench.isolated();
    let mut person = Person::begins(&bench, &["sh", &session]);
    person.waits_for(&format!("[{session}]"));
    assert!(!person.is_left_in_order(), "keys are not handed on");
    person.types("echo hi > f; cat a\r");
    person.waits_for("one");
    // A window that changes its size changes it inside.
    tcsetwinsize(&person.terminal, size(50, 132)).unwrap();
    let mut asked = 0;
    while !person.sees().contains("50 132") {
        person.types("stty size\r");
        std::thread::sleep(Duration::from_millis(250));
        asked += 1;
        assert!(asked < 200, "{:?}", person.sees());
    }
    // An interrupt is for what runs inside.
    person.types("echo begun-$((40+1)); sleep 600\r");
    person.waits_for("begun-41");
    // What is typed while a shell minds an interrupt may be dropped by the terminal.
    let mut asked = 0;
    while !person.sees().contains("still-42") {
        person.types("\x03");
        std::thread::sleep(Duration::from_millis(100));
        person.types("echo still-$((40+2))\r");
        std::thread::sleep(Duration::from_millis(250));
        asked += 1;
        assert!(asked < 200, "{:?}", person.sees());
    }
    assert!(person.child.try_wait().unwrap().is_none());
    person.types("exit\r");
    person.waits_for("shell ended");
    assert!(person.child.wait().unwrap().success(), "{:?}", person.sees());
    assert!(person.is_left_in_order());
    let call = bench.last(&session, "tool_finished").unwrap();
    assert_eq!((&call["outcome"], &call["isolated"]), (&"done".into(), &true.into()));
    assert_eq!(call["changed"]["paths"][0]["path"], "f");
    assert_eq!(call["changed"]["paths"].as_array().unwrap().len(), 1);
    assert!(call["output"][0].to_string().contains("still-42"), "{call}");
    assert_eq!(bench.ok(&["cat", &format!("{session}:f")]), "hi");
    bench.ok(&["undo", &session]);
    bench.sound();
}

#[test]
fn a_shell_can_be_another_program_and_fail() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    let session = bench.isolated();
    let mut person = Person::begins(&bench, &["sh", &session, "--", "sh", "-c", "test -t 0 && echo yes > tty; exit 7"]);
    person.waits_for("shell ended");
    assert_eq!(person.child.wait().unwrap().code(), Some(1));
    assert!(person.is_left_in_order());
    assert_eq!(bench.ok(&["cat", &format!("{session}:tty")]), "yes");
    // One that cannot be started leaves the terminal in order, too.
    for arguments in [&["sh", &session, "--", "no-such-program"][..], &["sh", &session, "--on", "host"]] {
        let mut person = Person::begins(&bench, arguments);
        person.waits_for("error");
        assert_eq!(person.child.wait().unwrap().code(), Some(1), "{:?}", person.sees());
        assert!(person.is_left_in_order());
    }
    bench.sound();
}
