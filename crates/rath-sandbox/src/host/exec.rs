//! Runs a command without isolation: a thread starts it, watches it, and kills what it leaves behind.

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

use super::running_commands;
use super::{linux, spawn, sweep};
use crate::command::{Command, Stdin};
use crate::error::{Error, Result};
use crate::finished::{CapturedOutput, ExitStatus, Finished};
use crate::pump::StreamPump;
use crate::running::{OutputSink, Running, StopMode};
use crate::stop_request::StopRequest;
use crate::thread_cache;

/// A command that is about to start.
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) base: Arc<[(OsString, OsString)]>,
    pub(super) directory: PathBuf,
    /// Its number among the running commands. Its marker is in the environment of all its processes.
    pub(super) number: u64,
    pub(super) marker: String,
    pub(super) request: Arc<StopRequest>,
}

/// Starts a command. The receiver gets the result of the start.
pub(super) fn start(start: Start) -> Result<(Running, oneshot::Receiver<Result<()>>)> {
    let (number, request) = (start.number, start.request.clone());
    let (running, sink) = Running::new(start.command.output_limit, move |how| {
        if how == StopMode::Immediate {
            running_commands::lock().kill_group(number);
        }
        request.stop(how);
    });
    let (sender, receiver) = oneshot::channel();
    thread_cache::run(move || run(start, sink, sender)).map_err(|error| {
        running_commands::lock().remove(number);
        Error::machine("starting a thread for a command", error)
    })?;
    Ok((running, receiver))
}

fn run(start: Start, sink: OutputSink, started: oneshot::Sender<Result<()>>) {
    let (began, since, number) = (Time::now(), now(), start.number);
    let child = spawn::spawn(&start.command, &start.base, &start.marker, &start.directory);
    let watch = child.and_then(|child| Watch::new(start, child, since));
    match watch {
        Ok(mut watch) => {
            let _ = started.send(Ok(()));
            let finished = watch.wait_for_end(&sink, began);
            sink.end(finished);
        }
        Err(error) => {
            running_commands::lock().remove(number);
            let _ = started.send(Err(error));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a timeout is a span of time, not a time of day")]
fn now() -> Instant {
    Instant::now()
}

/// The state of a running command.
struct Watch {
    number: u64,
    request: Arc<StopRequest>,
    group: Pid,
    handle: OwnedFd,
    pump: StreamPump,
    since: Instant,
    deadline: Option<Instant>,
    grace: Duration,
    stopping: Option<StopMode>,
    timed_out: bool,
    killed: bool,
    /// Senders of callers that wait for the end. Dropping them wakes the callers.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Watch {
    fn new(start: Start, mut child: Child, since: Instant) -> Result<Self> {
        let Start { command, number, request, .. } = start;
        let machine = |error: io::Error| Error::machine("watching a command", error);
        let group = Pid::from_child(&child);
        running_commands::lock().started(number, group);
        let bytes = if let Stdin::Bytes(bytes) = command.stdin { bytes } else { Vec::new() };
        let stdin = child.stdin.take().map(OwnedFd::from);
        let output = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let opened = linux::handle(group).and_then(|handle| Ok((handle, StreamPump::new(stdin, bytes, output)?)));
        let (handle, pump) = opened.map_err(machine).inspect_err(|_| {
            running_commands::lock().kill_group(number);
            running_commands::lock().remove(number);
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

    /// Watches the command until it and everything that it started has ended.
    fn wait_for_end(&mut self, sink: &OutputSink, began: Time) -> Result<Finished> {
        let watched = self.watch(sink);
        if watched.is_err() {
            running_commands::lock().kill_group(self.number);
            linux::await_end(&self.handle, sweep::KILL_TIMEOUT);
        }
        let ended = watched.and_then(|()| linux::how_it_ended(&self.handle));
        let (killed_orphans, waiting) = sweep::finish_command(self.number, self.group);
        self.waiting = waiting;
        self.pump.drain(sink);
        let reaped = linux::reap(&self.handle);
        let machine = |error| Error::machine("waiting for a command", error);
        let status = ended.and_then(|status| reaped.map(|_| status)).map_err(machine)?;
        let ended = status.and_then(|status| match status.exit_status() {
            Some(code) => Some(ExitStatus::Exited(code)),
            None => Some(ExitStatus::Signalled { signal: status.terminating_signal()?, core: status.dumped() }),
        });
        Ok(Finished {
            ended: ended.ok_or_else(|| machine(io::Error::other("it did not end")))?,
            timed_out: self.timed_out,
            killed: self.killed,
            stdout: CapturedOutput::default(),
            stderr: CapturedOutput::default(),
            killed_orphans,
            refused: Vec::new(),
            limit_exceeded: None,
            started: began,
            duration: now().duration_since(self.since),
        })
    }

    /// Transfers the streams until the main process has ended. If the command was stopped, also until its other
    /// processes have ended or the grace period is over.
    fn watch(&mut self, sink: &OutputSink) -> io::Result<()> {
        let mut ended = false;
        let mut terminating: Vec<OwnedFd> = Vec::new();
        loop {
            let timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            let waiting = std::iter::once(&self.handle).filter(|_| !ended).chain(&terminating);
            let mut fds: Vec<PollFd<'_>> = waiting.map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
            let processes = fds.len();
            fds.push(PollFd::new(&self.request.wake, PollFlags::IN));
            fds.extend(self.pump.poll_fds());
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let gone: Vec<bool> = fds[..processes].iter().map(|fd| !fd.revents().is_empty()).collect();
            let busy = fds[processes + 1..].iter().any(|fd| !fd.revents().is_empty());
            if busy {
                self.pump.turn(sink);
            }
            let main = usize::from(!ended);
            let mut left = gone[main..].iter();
            terminating.retain(|_| !left.next().is_some_and(|gone| *gone));
            if !ended && gone[0] {
                ended = true;
                if self.stopping == Some(StopMode::Graceful) {
                    terminating = self.terminate_leftovers();
                }
            }
            if ended && terminating.is_empty() {
                return Ok(());
            }
            self.enforce(ended);
            if ended && self.stopping == Some(StopMode::Immediate) {
                return Ok(());
            }
        }
    }

    /// Enforces stop requests and the timeout.
    fn enforce(&mut self, ended: bool) {
        let asked = self.request.requested();
        let deadline_passed = self.deadline.is_some_and(|deadline| now() >= deadline);
        self.killed |= asked.is_some() && !self.timed_out;
        self.timed_out |= deadline_passed && self.stopping.is_none() && !self.killed;
        let requested = match (asked, deadline_passed, self.stopping) {
            (Some(StopMode::Immediate), ..) | (_, true, Some(_)) => Some(StopMode::Immediate),
            (Some(StopMode::Graceful), ..) | (_, true, None) => Some(StopMode::Graceful),
            (None, false, _) => None,
        };
        if requested <= self.stopping {
            return;
        }
        self.stopping = requested;
        if requested == Some(StopMode::Immediate) {
            self.deadline = None;
            let _ = kill_process_group(self.group, Signal::KILL);
        } else if !ended {
            self.deadline = now().checked_add(self.grace);
            let _ = kill_process_group(self.group, Signal::TERM);
            let _ = kill_process_group(self.group, Signal::CONT);
        }
    }

    /// Sends SIGTERM to the remaining processes of a stopped command that are outside its process group; the group has
    /// received it already. Returns handles of all remaining processes.
    fn terminate_leftovers(&self) -> Vec<OwnedFd> {
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
