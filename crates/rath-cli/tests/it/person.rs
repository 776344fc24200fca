//! A simulated user at the other end of a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::workspace::{TestProject, text};

pub(crate) struct Person {
    pub(crate) terminal: File,
    theirs: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    pub(crate) child: Child,
}

pub(crate) fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Person {
    /// Runs `rath` on a new pseudo-terminal.
    pub(crate) fn begins(project: &TestProject, arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).and_then(|()| unlockpt(&ours)).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&ours, size(24, 80)).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_rath"));
        command.args(arguments).current_dir(project.root()).env("USER", "ada").env("TERM", "dumb");
        command
            .env("RATH_PAGER", "cat")
            .env("XDG_CONFIG_HOME", project.path("config"))
            .env("XDG_STATE_HOME", project.path("state"));
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

    pub(crate) fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn sees(&self) -> String {
        text(&self.seen.lock().unwrap())
    }

    pub(crate) fn sees_within_a_minute(&mut self, what: impl Fn(&str) -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if what(&self.sees()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(crate) fn waits_for(&mut self, what: &str) {
        assert!(self.sees_within_a_minute(|seen| seen.contains(what)), "no {what:?} in {:?}", self.sees());
    }

    /// Whether the terminal has its original modes: echo and line editing.
    pub(crate) fn is_left_in_order(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}
