//! Runs one command: a thread that starts it, watches it, and clears up after it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use rath_core::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::live;
use super::{linux, spawn, sweep};
use crate::command::{Command, Stdin};
use crate::error::{Error, Result};
use crate::finished::{Captured, Ended, Finished};
use crate::pump::Pump;
use crate::request::Request;
use crate::running::{Feed, Running, Stop};
use crate::workers;

/// A command that is about to start.
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) base: Arc<[(OsString, OsString)]>,
    pub(super) directory: PathBuf,
    /// Its number among the live commands, and its mark.
    pub(super) number: u64,
    pub(super) marker: String,
    pub(super) request: Arc<Request>,
}

/// Starts it. The receiver tells whether it could be started.
pub(super) fn start(start: Start) -> Result<(Running, oneshot::Receiver<Result<()>>)> {
    let (number, request) = (start.number, start.request.clone());
    let (running, feed) = Running::new(start.command.output_limit, move |how| {
        if how == Stop::Now {
            live::lock().kill_group(number);
        }
        request.stop(how);
    });
    let (sender, receiver) = oneshot::channel();
    workers::run(move || run(start, feed, sender)).map_err(|error| {
        live::lock().remove(number);
        Error::machine("starting a thread for a command", error)
    })?;
    Ok((running, receiver))
}

fn run(start: Start, feed: Feed, told: oneshot::Sender<Result<()>>) {
    let (began, since, number) = (Time::now(), now(), start.number);
    let child = spawn::spawn(&start.command, &start.base, &start.marker, &start.directory);
    let watch = child.and_then(|child| Watch::new(start, child, since));
    match watch {
        Ok(mut watch) => {
            let _ = told.send(Ok(()));
            let finished = watch.see_out(&feed, began);
            feed.end(finished);
        }
        Err(error) => {
            live::lock().remove(number);
            let _ = told.send(Err(error));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a timeout is a span of time, not a time of day")]
fn now() -> Instant {
    Instant::now()
}

/// A command that runs.
struct Watch {
    number: u64,
    request: Arc<Request>,
    group: Pid,
    handle: OwnedFd,
    pump: Pump,
    since: Instant,
    deadline: Option<Instant>,
    grace: Duration,
    stopping: Option<Stop>,
    timed_out: bool,
    killed: bool,
    /// Who waits for the end; told by dropping it.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Watch {
    fn new(start: Start, mut child: Child, since: Instant) -> Result<Self> {
        let Start { command, number, request, .. } = start;
        let machine = |error: io::Error| Error::machine("watching a command", error);
        let group = Pid::from_child(&child);
        live::lock().started(number, group);
        let bytes = if let Stdin::Bytes(bytes) = command.stdin { bytes } else { Vec::new() };
        let stdin = child.stdin.take().map(OwnedFd::from);
        let output = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let opened = linux::handle(group).and_then(|handle| Ok((handle, Pump::new(stdin, bytes, output)?)));
        let (handle, pump) = opened.map_err(machine).inspect_err(|_| {
            live::lock().kill_group(number);
            live::lock().remove(number);
            let _ = child.wait();
        })?;
        Ok(Self {
            number,
            request,
            group,
            handle,
            pump,
            since,
            deadline: command.timeout.and_then(|timeout| since.checked_add(timeout)),
            grace: command.grace,
            stopping: None,
            timed_out: false,
            killed: false,
            waiting: Vec::new(),
        })
    }

    /// Watches it until it and all that it started is gone.
    fn see_out(&mut self, feed: &Feed, began: Time) -> Result<Finished> {
        let watched = self.watch(feed);
        if watched.is_err() {
            live::lock().kill_group(self.number);
            linux::await_end(&self.handle, sweep::PATIENCE);
        }
        let ended = watched.and_then(|()| linux::how_it_ended(&self.handle));
        let (escaped, waiting) = sweep::settle(self.number, self.group);
        self.waiting = waiting;
        self.pump.drain(feed);
        let reaped = linux::reap(&self.handle);
        let machine = |error| Error::machine("waiting for a command", error);
        let status = ended.and_then(|status| reaped.map(|_| status)).map_err(machine)?;
        let ended = status.and_then(|status| match status.exit_status() {
            Some(code) => Some(Ended::Exited(code)),
            None => Some(Ended::Signalled { signal: status.terminating_signal()?, core: status.dumped() }),
        });
        Ok(Finished {
            ended: ended.ok_or_else(|| machine(io::Error::other("it did not end")))?,
            timed_out: self.timed_out,
            killed: self.killed,
            stdout: Captured::default(),
            stderr: Captured::default(),
            escaped,
            refused: Vec::new(),
            beyond: None,
            started: began,
            duration: now().duration_since(self.since),
        })
    }

    /// Passes output on until the main process has ended and, if it was stopped, its group had its grace.
    fn watch(&mut self, feed: &Feed) -> io::Result<()> {
        let mut ended = false;
        let mut leaving: Vec<OwnedFd> = Vec::new();
        loop {
            let timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            let waiting = std::iter::once(&self.handle).filter(|_| !ended).chain(&leaving);
            let mut fds: Vec<PollFd<'_>> = waiting.map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
            let processes = fds.len();
            fds.push(PollFd::new(&self.request.wake, PollFlags::IN));
            fds.extend(self.pump.wishes());
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let gone: Vec<bool> = fds[..processes].iter().map(|fd| !fd.revents().is_empty()).collect();
            let busy = fds[processes + 1..].iter().any(|fd| !fd.revents().is_empty());
            if busy {
                self.pump.turn(feed);
            }
            let main = usize::from(!ended);
            let mut left = gone[main..].iter();
            leaving.retain(|_| !left.next().is_some_and(|gone| *gone));
            if !ended && gone[0] {
                ended = true;
                if self.stopping == Some(Stop::Politely) {
                    leaving = self.ask_the_others();
                }
            }
            if ended && leaving.is_empty() {
                return Ok(());
            }
            self.mind(ended);
            if ended && self.stopping == Some(Stop::Now) {
                return Ok(());
            }
        }
    }

    /// Does what was asked, and what the time demands.
    fn mind(&mut self, ended: bool) {
        let asked = self.request.asked();
        let late = self.deadline.is_some_and(|deadline| now() >= deadline);
        self.killed |= asked.is_some() && !self.timed_out;
        self.timed_out |= late && self.stopping.is_none() && !self.killed;
        let wish = match (asked, late, self.stopping) {
            (Some(Stop::Now), ..) | (_, true, Some(_)) => Some(Stop::Now),
            (Some(Stop::Politely), ..) | (_, true, None) => Some(Stop::Politely),
            (None, false, _) => None,
        };
        if wish <= self.stopping {
            return;
        }
        self.stopping = wish;
        if wish == Some(Stop::Now) {
            self.deadline = None;
            let _ = kill_process_group(self.group, Signal::KILL);
        } else if !ended {
            self.deadline = now().checked_add(self.grace);
            let _ = kill_process_group(self.group, Signal::TERM);
            let _ = kill_process_group(self.group, Signal::CONT);
        }
    }

    /// What is left of a stopped command after its main process: those in the group were asked to end, the others
    /// are asked now. All have until the deadline.
    fn ask_the_others(&self) -> Vec<OwnedFd> {
        let left = sweep::leftovers(self.number, self.group, linux::children());
        let asked = left.into_iter().map(|(_, leftover)| {
            if !leftover.in_group {
                linux::signal(&leftover.handle, Signal::TERM);
            }
            leftover.handle
        });
        asked.collect()
    }
}
