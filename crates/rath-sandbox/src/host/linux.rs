//! Linux interfaces for processes: pidfds, the child subreaper and `/proc`.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, Uid, WaitId, WaitIdOptions, WaitIdStatus};
use rustix::time::{ClockId, clock_gettime};

use crate::environment::MARKER;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) zombie: bool,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// Start time, in [`ticks`].
    pub(super) start: u64,
}

/// Makes this process a child subreaper: orphaned descendants become its children.
pub(super) fn become_subreaper() -> io::Result<()> {
    static DONE: OnceLock<Result<(), Errno>> = OnceLock::new();
    let done = DONE.get_or_init(|| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    done.map_err(io::Error::from)
}

/// The current time on the clock of process start times, in clock ticks since boot.
pub(super) fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let hertz = rustix::param::clock_ticks_per_second();
    now.tv_sec as u64 * hertz + now.tv_nsec as u64 * hertz / 1_000_000_000
}

/// The children of the main thread: adopted orphans, and processes that the main thread started. Children of another
/// thread are not included while that thread exists.
pub(super) fn children() -> Vec<Pid> {
    let me = rustix::process::getpid();
    match fs::read(format!("/proc/self/task/{me}/children")) {
        Ok(list) => list.split(|byte| *byte == b' ').filter_map(pid).collect(),
        // The kernel does not have that file.
        Err(_) => processes().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == me.as_raw_pid())).collect(),
    }
}

/// All processes in `/proc`.
pub(super) fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| pid(entry.file_name().as_encoded_bytes()))
}

fn pid(digits: &[u8]) -> Option<Pid> {
    Pid::from_raw(std::str::from_utf8(digits).ok()?.trim().parse().ok()?)
}

/// Reads the fields of a process. `None` if it does not exist.
pub(super) fn stat(pid: Pid) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The process name in parentheses may contain any characters, including parentheses.
fn parse(stat: &str) -> Option<Stat> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some(Stat {
        zombie: matches!(fields.next()?, "Z" | "X"),
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        start: fields.nth(16)?.parse().ok()?,
    })
}

/// The user that owns a process.
pub(super) fn owner(pid: Pid) -> Option<Uid> {
    Some(Uid::from_raw(fs::metadata(format!("/proc/{pid}")).ok()?.uid()))
}

/// The marker in a process's environment. During an `execve` the environment is empty for a moment, so an empty one is
/// read again.
pub(super) fn marker(pid: Pid) -> Option<String> {
    let mut environ = environ(pid)?;
    for _ in 0..2 {
        if environ.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            environ = self::environ(pid)?;
        }
    }
    marker_in(&environ)
}

/// Like [`marker`], but reads the environment only once.
pub(super) fn marker_now(pid: Pid) -> Option<String> {
    marker_in(&environ(pid)?)
}

fn environ(pid: Pid) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

fn marker_in(environ: &[u8]) -> Option<String> {
    let mut variables = environ.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// A pidfd: it refers to this process even if its id is reused.
pub(super) fn handle(pid: Pid) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal. Returns whether that succeeded.
pub(super) fn signal(handle: &OwnedFd, signal: Signal) -> bool {
    rustix::process::pidfd_send_signal(handle, signal).is_ok()
}

/// Waits until the process has ended, for at most `time`. Returns whether it has ended.
pub(super) fn await_end(handle: &OwnedFd, time: Duration) -> bool {
    let timeout = Timespec::try_from(time).ok();
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// How a child ended. It stays a zombie, and so keeps its id, until it is [reaped](reap).
pub(super) fn how_it_ended(handle: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    wait(handle, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// Reaps a child that has ended.
pub(super) fn reap(handle: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    wait(handle, WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
}

fn wait(handle: &OwnedFd, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
    Ok(rustix::process::waitid(WaitId::PidFd(handle.as_fd()), options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_any_characters() {
        let line = "12 (a) R (b) c) S 7 12 11 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(parse(line), Some(Stat { zombie: false, parent: 7, group: 12, start: 4711 }));
        assert_eq!(parse("12 (a"), None);
    }

    #[test]
    fn this_process_is_listed() {
        let me = rustix::process::getpid();
        let stat = stat(me).unwrap();
        assert_eq!(Some(stat.parent), rustix::process::getppid().map(|pid| pid.as_raw_pid()));
        assert!(!stat.zombie && stat.start <= ticks() && stat.start > 0);
        assert!(processes().any(|pid| pid == me));
    }
}
