//! Nothing outlives its command.
//!
//! This process is a *child subreaper*: a process whose parent died becomes its child, whatever it did to hide. So
//! when a command's main process is dead, all that is left of its tree are children of this process, or below them.
//! Each sweep kills and reaps those that belong to the command, and looks again, until there are none.
//!
//! Caught are processes that
//! - are in the command's process group, or
//! - have the command's mark ([`super::MARKER`]) in their environment, or
//! - have neither (a daemon that forked twice, called `setsid` and cleared its environment), are not in the process
//!   group of this process, and started while this command ran, or one that ended before it. While another command
//!   runs that could have started them as well, they are left to the sweep of that one: the last command to end
//!   leaves nothing behind.
//!
//! Not caught are processes that
//! - cleared their environment *and* joined the process group of this process;
//! - this user may not kill (`setuid` programs), or that hang in the kernel for more than [`PATIENCE`];
//! - were started on the command's behalf by someone else: `at`, `systemd-run`, a container engine;
//! - live on when this process itself is killed. The next one finds them by their mark: [`sweep_marked`].
//!
//! Spared are children that the program started in its own process group, or before the command, or from a thread
//! other than the main one that still lives. A program that starts children elsewhere in *other* process groups from
//! its main thread, without a sandbox, while commands run, loses them to the sweep.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use rustix::process::{Pid, Signal, getpgrp, getpid, getuid};

use super::linux;
use super::live::{self, Suspect};

/// How long a killed process may take to be gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How often a sweep looks again. Each look kills a generation of a tree.
const MOST_LOOKS: usize = 1000;

/// One sweep at a time: the list of children is only whole while nobody else reaps.
static SWEEP: Mutex<()> = Mutex::new(());

/// A child of this process that a command left behind.
pub(super) struct Leftover {
    pub(super) handle: OwnedFd,
    /// Whether it is in the command's process group.
    pub(super) in_group: bool,
}

/// Which of `children` were left behind by `command`, dead or alive.
pub(super) fn leftovers(command: u64, group: Pid, children: Vec<Pid>) -> Vec<(Pid, Leftover)> {
    let (me, own_group) = (getpid().as_raw_pid(), getpgrp().as_raw_pid());
    let group = group.as_raw_pid();
    let found = children.into_iter().filter_map(|pid| {
        // The handle comes first: what is read afterwards is of this process or of none.
        let handle = linux::handle(pid).ok()?;
        let stat = linux::stat(pid).filter(|stat| stat.parent == me)?;
        let marker = if stat.zombie || stat.group == group { None } else { linux::marker(pid) };
        let suspect = Suspect { process: pid.as_raw_pid(), group: stat.group, start: stat.start, marker };
        let owned = live::lock().owns(command, &suspect, own_group);
        owned.then(|| (pid, Leftover { handle, in_group: stat.group == group }))
    });
    found.collect()
}

/// Kills and reaps all that `command` left behind, and forgets it. Its main process has ended and is not reaped yet.
/// Says how many had to be killed, and who waits for its end.
pub(super) fn settle(command: u64, group: Pid) -> (u32, Vec<oneshot::Sender<()>>) {
    let _alone = SWEEP.lock().unwrap_or_else(PoisonError::into_inner);
    live::lock().kill_group(command);
    let mut killed = 0;
    let mut hopeless = Vec::new();
    let mut seen_nothing = false;
    for _ in 0..MOST_LOOKS {
        let mut children = linux::children();
        children.retain(|pid| !hopeless.contains(pid));
        let childless = children.is_empty();
        let found = leftovers(command, group, children);
        if found.is_empty() {
            // A list read while the program reaps children of its own may lack one, so it is read twice.
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
            let gone = linux::await_end(&leftover.handle, PATIENCE);
            match linux::reap(&leftover.handle) {
                Ok(Some(status)) if gone => {
                    killed += u32::from(status.terminating_signal() == Some(Signal::KILL.as_raw()));
                }
                _ => hopeless.push(pid),
            }
        }
    }
    (killed, live::lock().remove(command))
}

/// Kills every process of this user whose mark is `marker`, or begins with it and a dot: with a sandbox's id, all that
/// its commands left. For the time after the process that ran them was killed: nobody else sweeps them then. Says how
/// many there were.
pub fn sweep_marked(marker: &str) -> usize {
    let matches = |pid: Pid| {
        let found = linux::marker_now(pid);
        found.is_some_and(|found| {
            found.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let (me, user) = (getpid(), getuid());
    let mut killed = Vec::new();
    for _ in 0..MOST_LOOKS {
        let before = killed.len();
        for pid in linux::processes().filter(|pid| *pid != me && linux::owner(*pid) == Some(user)) {
            if killed.contains(&pid) || !matches(pid) {
                continue;
            }
            let Ok(handle) = linux::handle(pid) else { continue };
            // Read again, now that the handle holds the number.
            if matches(pid) && linux::signal(&handle, Signal::KILL) {
                linux::await_end(&handle, PATIENCE);
                killed.push(pid);
            }
        }
        if killed.len() == before {
            break;
        }
    }
    killed.len()
}
