//! The commands that run in this process, of all host sandboxes: they share its orphans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use rustix::process::{Pid, Signal, kill_process_group};

use super::linux;
use crate::request::Request;
use crate::running::Stop;

static LIVE: Mutex<Live> = Mutex::new(Live { commands: BTreeMap::new(), owed: None, spared: Vec::new(), next: 0 });

/// All of them.
pub(super) struct Live {
    commands: BTreeMap<u64, Entry>,
    /// The start of the oldest command that ended while others ran: what it left unmarked is still to be swept.
    owed: Option<u64>,
    /// Children of this process that no command started.
    spared: Vec<i32>,
    next: u64,
}

/// One of them.
struct Entry {
    sandbox: String,
    marker: String,
    /// In [`linux::ticks`], before its process was made.
    start: u64,
    /// The process, from its start until it is about to be reaped.
    process: Option<Pid>,
    request: Arc<Request>,
    /// Dropped when all is over, which tells the other end.
    waiting: Vec<oneshot::Sender<()>>,
}

/// A process that may be what a command left behind.
#[derive(Clone, Debug)]
pub(super) struct Suspect {
    pub(super) process: i32,
    pub(super) group: i32,
    pub(super) start: u64,
    pub(super) marker: Option<String>,
}

pub(super) fn lock() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Adds a command that is about to start. Its number and its mark.
    pub(super) fn add(&mut self, sandbox: &str, request: Arc<Request>) -> (u64, String) {
        self.next += 1;
        let marker = format!("{sandbox}.{}", rath_core::fresh_name());
        let entry = Entry {
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

    /// The command has a process now.
    pub(super) fn started(&mut self, command: u64, process: Pid) {
        if let Some(entry) = self.commands.get_mut(&command) {
            entry.process = Some(process);
        }
    }

    /// The command is over and swept. Who waits for it is told by dropping what is returned.
    pub(super) fn remove(&mut self, command: u64) -> Vec<oneshot::Sender<()>> {
        let Some(entry) = self.commands.remove(&command) else { return Vec::new() };
        self.owed = (!self.commands.is_empty()).then(|| self.owed.unwrap_or(entry.start).min(entry.start));
        entry.waiting
    }

    /// This child is none that a command left behind.
    pub(super) fn spare(&mut self, process: u32) {
        self.spared.extend(i32::try_from(process));
    }

    /// It is about to be reaped, and its number may be another's.
    pub(super) fn spare_no_longer(&mut self, process: u32) {
        self.spared.retain(|spared| i32::try_from(process) != Ok(*spared));
    }

    /// How many commands a sandbox runs.
    pub(super) fn running(&self, sandbox: &str) -> usize {
        self.commands.values().filter(|entry| entry.sandbox == sandbox).count()
    }

    /// Stops the commands of a sandbox. Each receiver resolves when its command is over.
    pub(super) fn stop_all(&mut self, sandbox: &str) -> Vec<oneshot::Receiver<()>> {
        let entries = self.commands.values_mut().filter(|entry| entry.sandbox == sandbox);
        let stopped = entries.map(|entry| {
            entry.request.stop(Stop::Politely);
            let (sender, receiver) = oneshot::channel();
            entry.waiting.push(sender);
            receiver
        });
        stopped.collect()
    }

    /// Kills a command's process group from any thread. It is not yet reaped while it is here, so the number is its.
    pub(super) fn kill_group(&self, command: u64) {
        if let Some(group) = self.commands.get(&command).and_then(|entry| entry.process) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Whether `suspect`, a child of this process, was left behind by `command`, or by one that ended before it.
    pub(super) fn owns(&self, command: u64, suspect: &Suspect, own_group: i32) -> bool {
        let Some(mine) = self.commands.get(&command) else { return false };
        let is = |process: Option<Pid>, number: i32| process.is_some_and(|pid| pid.as_raw_pid() == number);
        let mut others = self.commands.iter().filter(|(number, _)| **number != command).map(|(_, entry)| entry);
        if self.commands.values().any(|entry| is(entry.process, suspect.process)) {
            return false; // the process of a command itself: its watcher reaps it
        }
        if self.spared.contains(&suspect.process) {
            return false;
        }
        if suspect.marker.as_deref() == Some(&*mine.marker) || is(mine.process, suspect.group) {
            return true;
        }
        let since = self.owed.unwrap_or(mine.start).min(mine.start);
        suspect.group != own_group
            && suspect.start >= since
            && others.all(|other| {
                other.start > suspect.start
                    && suspect.marker.as_deref() != Some(&*other.marker)
                    && !is(other.process, suspect.group)
            })
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
