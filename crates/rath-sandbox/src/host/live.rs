//! The commands that run in this process, of all host sandboxes: they share its orphans.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use rustix::event::EventfdFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use super::linux;
use crate::error::{Error, Result};
use crate::running::Stop;

static LIVE: Mutex<Live> = Mutex::new(Live { commands: BTreeMap::new(), owed: None, next: 0 });

/// All of them.
pub(super) struct Live {
    commands: BTreeMap<u64, Entry>,
    /// The start of the oldest command that ended while others ran: what it left unmarked is still to be swept.
    owed: Option<u64>,
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

/// What the watcher of a command is asked.
pub(super) struct Request {
    stop: AtomicU8,
    /// Readable once there is something asked.
    pub(super) wake: OwnedFd,
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

impl Request {
    pub(super) fn new() -> Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| Error::machine("starting a command", error))?;
        Ok(Self { stop: AtomicU8::new(0), wake })
    }

    /// Asks for a stop. The sterner wish wins.
    pub(super) fn stop(&self, how: Stop) {
        self.stop.fetch_max(how as u8 + 1, Ordering::SeqCst);
        // It can only fail when it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// What was asked so far.
    pub(super) fn asked(&self) -> Option<Stop> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        [None, Some(Stop::Politely), Some(Stop::Now)][usize::from(self.stop.load(Ordering::SeqCst))]
    }
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
