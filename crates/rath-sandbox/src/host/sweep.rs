//! Kills the processes that a command leaves behind.
//!
//! This process is a *child subreaper*: a descendant whose parent ends becomes its child, whatever it did to hide. So
//! after a command's main process has ended, the remaining processes of its tree are children of this process or
//! descendants of them. A sweep kills and reaps those that belong to the command, and repeats this until there are
//! none.
//!
//! These processes are killed:
//! - those in the command's process group;
//! - those with the command's marker ([`crate::MARKER`]) in their environment;
//! - those with neither (a daemon that forked twice, called `setsid` and cleared its environment), if they are not in
//!   the process group of this process and were started during this command or one that ended before it. If another
//!   running command could have started them too, the sweep of that command kills them. So nothing is left after the
//!   last command.
//!
//! These processes are not killed:
//! - those that cleared their environment *and* joined the process group of this process;
//! - those that this user may not kill (`setuid` programs), or that hang in the kernel for more than [`KILL_TIMEOUT`];
//! - those that a service started on the command's behalf: `at`, `systemd-run`, a container engine;
//! - those that are running when this process itself is killed. The next process finds them by their marker:
//!   [`kill_marked`].
//!
//! Children of the program itself are not killed if they are in its own process group, or were started before the
//! command, or by a thread other than the main one that still exists. But a sweep kills children that the main thread
//! starts in *other* process groups, without a sandbox, while commands run.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use rustix::process::{Pid, Signal, getpgrp, getpid, getuid};

use super::linux;
use super::running_commands::{self, OrphanCandidate};

/// How long to wait for a killed process to end.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of passes of a sweep. Each pass kills one generation of a process tree.
const MAX_PASSES: usize = 1000;

/// Only one sweep runs at a time: the list of children is incomplete if a child is reaped while it is read.
static SWEEP: Mutex<()> = Mutex::new(());

/// A child of this process that a command left behind.
pub(super) struct Leftover {
    pub(super) handle: OwnedFd,
    /// Whether it is in the command's process group.
    pub(super) in_group: bool,
}

/// Those of `children` that `command` left behind, including zombies.
pub(super) fn leftovers(command: u64, group: Pid, children: Vec<Pid>) -> Vec<(Pid, Leftover)> {
    let (me, own_group) = (getpid().as_raw_pid(), getpgrp().as_raw_pid());
    let group = group.as_raw_pid();
    let found = children.into_iter().filter_map(|pid| {
        // Open the handle first: everything read afterwards is about this process, or the handle is stale.
        let handle = linux::handle(pid).ok()?;
        let stat = linux::stat(pid).filter(|stat| stat.parent == me)?;
        let marker = if stat.zombie || stat.group == group { None } else { linux::marker(pid) };
        let candidate = OrphanCandidate { process: pid.as_raw_pid(), group: stat.group, start: stat.start, marker };
        let owned = running_commands::lock().owns(command, &candidate, own_group);
        owned.then(|| (pid, Leftover { handle, in_group: stat.group == group }))
    });
    found.collect()
}

/// Kills and reaps everything that `command` left behind, and removes the command from the list. Its main process must
/// have ended and not be reaped yet. Returns the number of killed processes, and the senders of callers that wait for
/// the end.
pub(super) fn finish_command(command: u64, group: Pid) -> (u32, Vec<oneshot::Sender<()>>) {
    let _alone = SWEEP.lock().unwrap_or_else(PoisonError::into_inner);
    running_commands::lock().kill_group(command);
    let mut killed = 0;
    let mut unkillable = Vec::new();
    let mut seen_nothing = false;
    for _ in 0..MAX_PASSES {
        let mut children = linux::children();
        children.retain(|pid| !unkillable.contains(pid));
        let childless = children.is_empty();
        let found = leftovers(command, group, children);
        if found.is_empty() {
            // The list may be incomplete if the program reaped a child of its own at the same time. So read it twice.
            if childless || seen_nothing {
                break;
            }
            seen_nothing = true;
            continue;
        }
        seen_nothing = false;
        for (_, leftover) in &found {
            linux::signal(&leftover.handle, Signal::KILL);
        }
        for (pid, leftover) in found {
            let gone = linux::await_end(&leftover.handle, KILL_TIMEOUT);
            match linux::reap(&leftover.handle) {
                Ok(Some(status)) if gone => {
                    killed += u32::from(status.terminating_signal() == Some(Signal::KILL.as_raw()));
                }
                _ => unkillable.push(pid),
            }
        }
    }
    (killed, running_commands::lock().remove(command))
}

/// Kills every process of this user whose [marker](crate::MARKER) is `marker`, or starts with `marker` and a dot. With
/// a sandbox's id, these are the remaining processes of all its commands. To be used after the process that ran the
/// commands was killed, because nothing else kills them then. Returns the number of killed processes.
pub fn kill_marked(marker: &str) -> usize {
    let matches = |pid: Pid| {
        let found = linux::marker_now(pid);
        found.is_some_and(|found| {
            found.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let (me, user) = (getpid(), getuid());
    let mut killed = Vec::new();
    for _ in 0..MAX_PASSES {
        let before = killed.len();
        for pid in linux::processes().filter(|pid| *pid != me && linux::owner(*pid) == Some(user)) {
            if killed.contains(&pid) || !matches(pid) {
                continue;
            }
            let Ok(handle) = linux::handle(pid) else { continue };
            // Check again: the handle now guarantees that the id is not reused.
            if matches(pid) && linux::signal(&handle, Signal::KILL) {
                linux::await_end(&handle, KILL_TIMEOUT);
                killed.push(pid);
            }
        }
        if killed.len() == before {
            break;
        }
    }
    killed.len()
}
