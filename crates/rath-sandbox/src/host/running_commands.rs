//! The running commands of all host sandboxes in this process. They share one list, because any of them may have
//! started an orphan that this process adopts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use rustix::process::{Pid, Signal, kill_process_group};

use super::linux;
use crate::running::StopMode;
use crate::stop_request::StopRequest;

static RUNNING: Mutex<RunningCommands> = Mutex::new(RunningCommands {
    commands: BTreeMap::new(),
    unswept_since: None,
    foreign_children: Vec::new(),
    next: 0,
});

/// All running commands.
pub(super) struct RunningCommands {
    commands: BTreeMap<u64, RunningCommand>,
    /// Start time of the oldest command that ended while others were running. Its processes without a marker have not
    /// been swept yet, because they could belong to another command.
    unswept_since: Option<u64>,
    /// Children of this process that no command started.
    foreign_children: Vec<i32>,
    next: u64,
}

/// A running command.
struct RunningCommand {
    sandbox: String,
    marker: String,
    /// Time before its process was started, in [`linux::ticks`].
    start: u64,
    /// Its main process, from the start until just before it is reaped.
    process: Option<Pid>,
    request: Arc<StopRequest>,
    /// Dropped when the command and all its processes have ended, which wakes the receivers.
    waiting: Vec<oneshot::Sender<()>>,
}

/// A process that a command may have left behind.
#[derive(Clone, Debug)]
pub(super) struct OrphanCandidate {
    pub(super) process: i32,
    pub(super) group: i32,
    pub(super) start: u64,
    pub(super) marker: Option<String>,
}

pub(super) fn lock() -> MutexGuard<'static, RunningCommands> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunningCommands {
    /// Adds a command that is about to start. Returns its number and its marker.
    pub(super) fn add(&mut self, sandbox: &str, request: Arc<StopRequest>) -> (u64, String) {
        self.next += 1;
        let marker = format!("{sandbox}.{}", rath_core::fresh_name());
        let entry = RunningCommand {
            sandbox: sandbox.to_owned(),
            marker: marker.clone(),
            start: linux::ticks(),
            process: None,
            request,
            waiting: Vec::new(),
        };
        self.commands.insert(self.next, entry);
        (self.next, marker)
    }

    /// Sets the process of a command.
    pub(super) fn started(&mut self, command: u64, process: Pid) {
        if let Some(entry) = self.commands.get_mut(&command) {
            entry.process = Some(process);
        }
    }

    /// Removes a command that has ended and was swept. Dropping the returned senders wakes the callers that wait for
    /// it.
    pub(super) fn remove(&mut self, command: u64) -> Vec<oneshot::Sender<()>> {
        let Some(entry) = self.commands.remove(&command) else { return Vec::new() };
        self.unswept_since =
            (!self.commands.is_empty()).then(|| self.unswept_since.unwrap_or(entry.start).min(entry.start));
        entry.waiting
    }

    /// Excludes a child of this process from sweeps.
    pub(super) fn add_foreign_child(&mut self, process: u32) {
        self.foreign_children.extend(i32::try_from(process));
    }

    /// Removes a foreign child that is about to be reaped, because its id may be reused.
    pub(super) fn remove_foreign_child(&mut self, process: u32) {
        self.foreign_children.retain(|foreign_children| i32::try_from(process) != Ok(*foreign_children));
    }

    /// Number of running commands of a sandbox.
    pub(super) fn running(&self, sandbox: &str) -> usize {
        self.commands.values().filter(|entry| entry.sandbox == sandbox).count()
    }

    /// Stops the commands of a sandbox. Each receiver resolves when its command has ended.
    pub(super) fn stop_all(&mut self, sandbox: &str) -> Vec<oneshot::Receiver<()>> {
        let entries = self.commands.values_mut().filter(|entry| entry.sandbox == sandbox);
        let stopped = entries.map(|entry| {
            entry.request.stop(StopMode::Graceful);
            let (sender, receiver) = oneshot::channel();
            entry.waiting.push(sender);
            receiver
        });
        stopped.collect()
    }

    /// Kills a command's process group. While the command is in this list, its process has not been reaped, so the id
    /// has not been reused.
    pub(super) fn kill_group(&self, command: u64) {
        if let Some(group) = self.commands.get(&command).and_then(|entry| entry.process) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Whether `candidate`, a child of this process, was left behind by `command` or by a command that ended before it.
    pub(super) fn owns(&self, command: u64, candidate: &OrphanCandidate, own_group: i32) -> bool {
        let Some(mine) = self.commands.get(&command) else { return false };
        let is = |process: Option<Pid>, number: i32| process.is_some_and(|pid| pid.as_raw_pid() == number);
        let mut others = self.commands.iter().filter(|(number, _)| **number != command).map(|(_, entry)| entry);
        if self.commands.values().any(|entry| is(entry.process, candidate.process)) {
            return false; // the process of a command itself: its watcher reaps it
        }
        if self.foreign_children.contains(&candidate.process) {
            return false;
        }
        if candidate.marker.as_deref() == Some(&*mine.marker) || is(mine.process, candidate.group) {
            return true;
        }
        let since = self.unswept_since.unwrap_or(mine.start).min(mine.start);
        candidate.group != own_group
            && candidate.start >= since
            && others.all(|other| {
                other.start > candidate.start
                    && candidate.marker.as_deref() != Some(&*other.marker)
                    && !is(other.process, candidate.group)
            })
    }
}

#[cfg(test)]
#[path = "running_commands_tests.rs"]
mod tests;
