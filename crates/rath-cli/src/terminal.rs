//! Connects the user's terminal to a command that runs on a pseudo-terminal.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rath::sandbox::Command;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// How often the window size is checked.
const RESIZE_INTERVAL: Duration = Duration::from_millis(200);

/// The controlling end of a pseudo-terminal on which a command runs.
pub(crate) struct Terminal {
    ours: Arc<OwnedFd>,
}

/// Forwards input until it is dropped; then restores the terminal.
pub(crate) struct Forwarding {
    before: Termios,
    over: Arc<AtomicBool>,
}

impl Terminal {
    /// Creates a pseudo-terminal of the size of the user's, and gives the command its other end.
    pub(crate) fn for_command(command: Command) -> Result<(Self, Command)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).context("opening a pseudo-terminal")?;
        grantpt(&ours).and_then(|()| unlockpt(&ours)).context("opening a pseudo-terminal")?;
        let theirs = other_end(&ours).context("opening a pseudo-terminal")?;
        if let Ok(size) = tcgetwinsize(stdin()) {
            tcsetwinsize(&ours, size).context("setting the size of the terminal")?;
        }
        let ours = Arc::new(ours);
        Ok((Self { ours: ours.clone() }, command.terminal(theirs).pty_master(ours)))
    }

    /// Forwards keys and changes of the window size until the returned value is dropped.
    pub(crate) fn forward(&self) -> Result<Forwarding> {
        let before = tcgetattr(stdin()).context("reading the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("changing the terminal's settings")?;
        let over = Arc::new(AtomicBool::new(false));
        let (ours, ended) = (self.ours.clone(), over.clone());
        std::thread::spawn(move || forward_input(&ours, &ended));
        Ok(Forwarding { before, over })
    }
}

#[cfg(target_os = "linux")]
fn other_end(ours: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::pty::ioctl_tiocgptpeer(ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
}

#[cfg(not(target_os = "linux"))]
fn other_end(ours: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let name = rustix::pty::ptsname(ours, Vec::new())?;
    rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

fn forward_input(ours: &OwnedFd, over: &AtomicBool) {
    let timeout = Timespec::try_from(RESIZE_INTERVAL).ok();
    let mut size = tcgetwinsize(stdin()).ok();
    let mut keys = [0; 4096];
    while !over.load(Ordering::SeqCst) {
        let input = stdin();
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        let ready = poll(&mut fds, timeout.as_ref()).unwrap_or(0);
        let now = tcgetwinsize(stdin()).ok();
        if let Some(now) =
            now.filter(|now| Some((now.ws_row, now.ws_col)) != size.map(|size| (size.ws_row, size.ws_col)))
        {
            let _ = tcsetwinsize(ours, now);
            size = Some(now);
        }
        if ready == 0 || over.load(Ordering::SeqCst) {
            continue;
        }
        match rustix::io::read(stdin(), &mut keys) {
            Ok(0) => return,
            Ok(length) => {
                if !write_all(ours, &keys[..length]) {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Writes all bytes, also if the other end reads slowly. Returns false if it is closed.
fn write_all(ours: &OwnedFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(ours, bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::AGAIN | Errno::INTR) => {
                let fd = ours.as_fd();
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
            }
            Err(_) => return false,
        }
    }
    true
}
