//! Runs one command in an anchor: a thread that moves its streams, minds its time and its disk, and hears its keeper.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use rath_core::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::anchor::{Anchor, await_word};
use super::disk::Quota;
use super::tier::Tier;
use super::wire::{self, Job, NOW, POLITELY, Raw, Told, Words};
use crate::command::{Command, Program, Stdin};
use crate::error::{Error, Result};
use crate::finished::{Captured, Ended, Finished};
use crate::host::sweep_marked;
use crate::program;
use crate::pump::Pump;
use crate::request::Request;
use crate::running::{Feed, Running, Stop};
use crate::workers;

/// A command that is about to start.
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) sandbox: String,
    /// In its environment, unless that was emptied.
    pub(super) mark: String,
    pub(super) anchor: Arc<Anchor>,
}

/// Starts it. The receiver tells whether it could be started.
pub(super) fn start(start: Start) -> Result<(Running, oneshot::Receiver<Result<()>>)> {
    let request = Arc::new(Request::new()?);
    let number = start.anchor.add(request.clone());
    let (anchor, asked) = (start.anchor.clone(), request.clone());
    let (running, feed) = Running::new(start.command.output_limit, move |how| asked.stop(how));
    let (sender, receiver) = oneshot::channel();
    let job = move || run(start, number, &request, feed, sender);
    workers::run(job).map_err(|error| {
        anchor.remove(number);
        Error::machine("starting a thread for a command", error)
    })?;
    Ok((running, receiver))
}

fn run(start: Start, number: u64, request: &Request, feed: Feed, told: oneshot::Sender<Result<()>>) {
    let (began, since) = (Time::now(), now());
    let anchor = start.anchor.clone();
    match Watch::begin(start, since) {
        Ok(mut watch) => {
            let _ = told.send(Ok(()));
            let finished = watch.see_out(&feed, request, began);
            let waiting = anchor.remove(number);
            // Nothing holds the sandbox any more when the end is told.
            drop(watch);
            drop(anchor);
            feed.end(finished);
            drop(waiting);
        }
        Err(error) => {
            anchor.remove(number);
            drop(anchor);
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
    sandbox: String,
    mark: String,
    anchor: Arc<Anchor>,
    control: UnixStream,
    pump: Pump,
    since: Instant,
    deadline: Option<Instant>,
    grace: Duration,
    stopping: Option<Stop>,
    timed_out: bool,
    killed: bool,
    beyond: Option<String>,
}

impl Watch {
    fn begin(start: Start, since: Instant) -> Result<Self> {
        let Start { command, env, sandbox, mark, anchor } = start;
        let machine = |error: io::Error| Error::machine("starting a command", error);
        let gone = || match anchor.was_killed() {
            true => Error::Lost { id: sandbox.clone(), why: "its anchor is gone".into() },
            false => Error::machine("starting a command", "it was stopped before it began"),
        };
        let not_sent = |error: io::Error| match error.raw_os_error() {
            Some(libc::E2BIG) => Error::CannotStart { tried: "a command".into(), why: error.to_string() },
            _ => gone(),
        };
        let job = Job {
            program: match &command.program {
                Program::Argv(argv) => Words::Argv(argv.iter().map(|word| Raw::from(&**word)).collect()),
                Program::Shell(line) => Words::Shell(line.clone()),
            },
            env: program::environment(&command, &env).iter().map(|(n, v)| (Raw::from(&**n), Raw::from(&**v))).collect(),
            cwd: Raw::from(&*command.cwd),
            terminal: command.terminal.is_some(),
        };
        let (control, theirs) = UnixStream::pair().map_err(machine)?;
        let theirs = OwnedFd::from(theirs);
        let bytes = if let Stdin::Bytes(bytes) = &command.stdin { bytes.clone() } else { Vec::new() };
        let pump = match &command.terminal {
            Some(terminal) => {
                let sent = anchor.send(&job, [&theirs, terminal, terminal, terminal]);
                sent.map_err(not_sent)?;
                let shown = command.shown_by.as_ref().map(|end| end.try_clone()).transpose().map_err(machine)?;
                Pump::new(None, Vec::new(), [shown, None]).map_err(machine)?
            }
            None => {
                let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| machine(error.into()));
                let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
                let (stdin, stdin_end) = input(&command.stdin).map_err(machine)?;
                let sent = anchor.send(&job, [&theirs, &stdin, &out_end, &err_end]);
                sent.map_err(not_sent)?;
                Pump::new(stdin_end, bytes, [Some(out), Some(err)]).map_err(machine)?
            }
        };
        drop(theirs);
        await_word(&control).map_err(machine)?;
        match wire::receive::<Told>(&control) {
            Ok(Some((Told::Started, _))) => {}
            Ok(Some((Told::NotStarted { tried, why, errno: None }, _))) => {
                return Err(Error::CannotStart { tried, why });
            }
            Ok(Some((Told::NotStarted { why, errno: Some(errno), .. }, _))) => {
                return Err(Error::machine(format!("starting a command: {why}"), io::Error::from_raw_os_error(errno)));
            }
            Ok(_) => return Err(gone()),
            Err(error) => return Err(machine(error)),
        }
        Ok(Self {
            sandbox,
            mark,
            anchor,
            control,
            pump,
            since,
            deadline: command.timeout.and_then(|timeout| since.checked_add(timeout)),
            grace: command.grace,
            stopping: None,
            timed_out: false,
            killed: false,
            beyond: None,
        })
    }

    /// Watches it until its keeper says that it and all that it started is gone.
    fn see_out(&mut self, feed: &Feed, request: &Request, began: Time) -> Result<Finished> {
        let told = self.watch(feed, request);
        self.pump.drain(feed);
        let machine = |error: io::Error| Error::machine("waiting for a command", error);
        let told = told.map_err(machine)?;
        // A keeper may still have said that its command was killed when its anchor was.
        let killed_with_anchor = matches!(&told, Some((Told::Over { ended: Ended::Signalled { .. }, .. }, _)))
            && !self.anchor.has_ended()
            && !self.anchor.is_alive();
        let Some((Told::Over { ended, escaped, refused, beyond }, _)) = told.filter(|_| !killed_with_anchor) else {
            if self.anchor.tier() == Tier::Landlock {
                // Nobody else looks after what its keeper left.
                sweep_marked(&self.mark);
            }
            return Err(match self.anchor.was_killed() {
                true => {
                    let why = "its anchor was killed while a command ran".into();
                    Error::Lost { id: self.sandbox.clone(), why }
                }
                false => machine(io::Error::other("its keeper was killed")),
            });
        };
        let beyond = beyond.or(self.beyond.take());
        Ok(Finished {
            // What the limits of the sandbox stopped was not stopped by a wish.
            killed: (self.killed || self.anchor.has_ended()) && beyond.is_none(),
            ended,
            timed_out: self.timed_out,
            stdout: Captured::default(),
            stderr: Captured::default(),
            escaped,
            refused,
            beyond,
            started: began,
            duration: now().duration_since(self.since),
        })
    }

    fn watch(&mut self, feed: &Feed, request: &Request) -> io::Result<Option<(Told, Vec<OwnedFd>)>> {
        loop {
            let mut fds = vec![PollFd::new(&self.control, PollFlags::IN), PollFd::new(&request.wake, PollFlags::IN)];
            fds.extend(self.pump.wishes());
            let until = self.deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let until = until.into_iter().chain(self.anchor.quota().map(|_| Quota::LOOK)).min();
            let timeout = until.and_then(|timeout| Timespec::try_from(timeout).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let over = !fds[0].revents().is_empty();
            if fds[2..].iter().any(|fd| !fd.revents().is_empty()) {
                self.pump.turn(feed);
            }
            if over {
                return wire::receive(&self.control);
            }
            self.mind(request);
        }
    }

    /// Does what was asked, and what time and disk demand.
    fn mind(&mut self, request: &Request) {
        // Whoever else measures does it for all.
        let quota = self.anchor.quota().filter(|_| self.beyond.is_none());
        let taken = quota.and_then(|quota| quota.try_lock().ok()?.exceeded(now()));
        if let Some(taken) = taken {
            self.beyond = Some(format!("disk: {taken} bytes"));
            self.tell(Stop::Now);
            return;
        }
        let asked = request.asked();
        let late = self.deadline.is_some_and(|deadline| now() >= deadline);
        self.killed |= asked.is_some() && !self.timed_out;
        self.timed_out |= late && self.stopping.is_none() && !self.killed;
        match (asked, late, self.stopping) {
            (Some(Stop::Now), ..) | (_, true, Some(_)) => self.tell(Stop::Now),
            (Some(Stop::Politely), ..) | (_, true, None) => self.tell(Stop::Politely),
            (None, false, _) => {}
        }
    }

    /// Has the keeper stop the command, once each way.
    fn tell(&mut self, how: Stop) {
        if Some(how) <= self.stopping {
            return;
        }
        self.stopping = Some(how);
        self.deadline = if how == Stop::Politely { now().checked_add(self.grace) } else { None };
        let word = if how == Stop::Politely { POLITELY } else { NOW };
        // A keeper that is gone needs no telling.
        let _ = rustix::net::send(&self.control, &[word], rustix::net::SendFlags::NOSIGNAL);
    }
}

/// What a command reads, and our end of it.
fn input(stdin: &Stdin) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    Ok(match stdin {
        Stdin::Null => (std::fs::File::open("/dev/null")?.into(), None),
        Stdin::Bytes(_) => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (theirs, Some(ours))
        }
        Stdin::Inherit => (rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?, None),
    })
}

impl Drop for Watch {
    /// A watcher that gives up takes its command along: the keeper sees the end of its socket.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
    }
}
