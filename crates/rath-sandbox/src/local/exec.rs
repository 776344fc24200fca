//! Runs a command in a supervisor: a thread transfers its streams, enforces its timeout and the disk quota, and
//! receives the messages of its command init.

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

use super::disk::Quota;
use super::isolation_level::IsolationLevel;
use super::supervisor::{Supervisor, await_message};
use super::wire::{self, GRACEFUL, IMMEDIATE, InitMessage, RawBytes, StartCommand, WireProgram};
use crate::command::{Command, CommandLine, Stdin};
use crate::environment;
use crate::error::{Error, Result};
use crate::finished::{CapturedOutput, ExitStatus, Finished};
use crate::host::kill_marked;
use crate::pump::StreamPump;
use crate::running::{OutputSink, Running, StopMode};
use crate::stop_request::StopRequest;
use crate::thread_cache;

/// A command that is about to start.
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) sandbox: String,
    /// The value of [`MARKER`](crate::MARKER), which is in its environment unless that was cleared.
    pub(super) mark: String,
    pub(super) supervisor: Arc<Supervisor>,
}

/// Starts a command. The receiver gets the result of the start.
pub(super) fn start(start: Start) -> Result<(Running, oneshot::Receiver<Result<()>>)> {
    let request = Arc::new(StopRequest::new()?);
    let number = start.supervisor.add(request.clone());
    let (supervisor, asked) = (start.supervisor.clone(), request.clone());
    let (running, sink) = Running::new(start.command.output_limit, move |how| asked.stop(how));
    let (sender, receiver) = oneshot::channel();
    let job = move || run(start, number, &request, sink, sender);
    thread_cache::run(job).map_err(|error| {
        supervisor.remove(number);
        Error::machine("starting a thread for a command", error)
    })?;
    Ok((running, receiver))
}

fn run(start: Start, number: u64, request: &StopRequest, sink: OutputSink, message: oneshot::Sender<Result<()>>) {
    let (began, since) = (Time::now(), now());
    let supervisor = start.supervisor.clone();
    match Watch::begin(start, since) {
        Ok(mut watch) => {
            let _ = message.send(Ok(()));
            let finished = watch.wait_for_end(&sink, request, began);
            let waiting = supervisor.remove(number);
            // Release the sandbox before reporting the end.
            drop(watch);
            drop(supervisor);
            sink.end(finished);
            drop(waiting);
        }
        Err(error) => {
            supervisor.remove(number);
            drop(supervisor);
            let _ = message.send(Err(error));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a timeout is a span of time, not a time of day")]
fn now() -> Instant {
    Instant::now()
}

/// The state of a running command.
struct Watch {
    sandbox: String,
    mark: String,
    supervisor: Arc<Supervisor>,
    control: UnixStream,
    pump: StreamPump,
    since: Instant,
    deadline: Option<Instant>,
    grace: Duration,
    stopping: Option<StopMode>,
    timed_out: bool,
    killed: bool,
    limit_exceeded: Option<String>,
}

impl Watch {
    fn begin(start: Start, since: Instant) -> Result<Self> {
        let Start { command, env, sandbox, mark, supervisor } = start;
        let machine = |error: io::Error| Error::machine("starting a command", error);
        let gone = || match supervisor.was_killed() {
            true => Error::Lost { id: sandbox.clone(), why: "its supervisor has ended".into() },
            false => Error::machine("starting a command", "it was stopped before it started"),
        };
        let not_sent = |error: io::Error| match error.raw_os_error() {
            Some(libc::E2BIG) => Error::CannotStart { tried: "a command".into(), why: error.to_string() },
            _ => gone(),
        };
        let job = StartCommand {
            program: match &command.program {
                CommandLine::Argv(argv) => WireProgram::Argv(argv.iter().map(|word| RawBytes::from(&**word)).collect()),
                CommandLine::Shell(line) => WireProgram::Shell(line.clone()),
            },
            env: environment::of_command(&command, &env)
                .iter()
                .map(|(n, v)| (RawBytes::from(&**n), RawBytes::from(&**v)))
                .collect(),
            cwd: RawBytes::from(&*command.cwd),
            terminal: command.terminal.is_some(),
        };
        let (control, theirs) = UnixStream::pair().map_err(machine)?;
        let theirs = OwnedFd::from(theirs);
        let bytes = if let Stdin::Bytes(bytes) = &command.stdin { bytes.clone() } else { Vec::new() };
        let pump = match &command.terminal {
            Some(terminal) => {
                let sent = supervisor.send(&job, [&theirs, terminal, terminal, terminal]);
                sent.map_err(not_sent)?;
                let shown = command.pty_master.as_ref().map(|end| end.try_clone()).transpose().map_err(machine)?;
                StreamPump::new(None, Vec::new(), [shown, None]).map_err(machine)?
            }
            None => {
                let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| machine(error.into()));
                let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
                let (stdin, stdin_end) = input(&command.stdin).map_err(machine)?;
                let sent = supervisor.send(&job, [&theirs, &stdin, &out_end, &err_end]);
                sent.map_err(not_sent)?;
                StreamPump::new(stdin_end, bytes, [Some(out), Some(err)]).map_err(machine)?
            }
        };
        drop(theirs);
        await_message(&control).map_err(machine)?;
        match wire::receive::<InitMessage>(&control) {
            Ok(Some((InitMessage::Started, _))) => {}
            Ok(Some((InitMessage::NotStarted { tried, why, errno: None }, _))) => {
                return Err(Error::CannotStart { tried, why });
            }
            Ok(Some((InitMessage::NotStarted { why, errno: Some(errno), .. }, _))) => {
                return Err(Error::machine(format!("starting a command: {why}"), io::Error::from_raw_os_error(errno)));
            }
            Ok(_) => return Err(gone()),
            Err(error) => return Err(machine(error)),
        }
        Ok(Self {
            sandbox,
            mark,
            supervisor,
            control,
            pump,
            since,
            deadline: command.timeout.and_then(|timeout| since.checked_add(timeout)),
            grace: command.grace,
            stopping: None,
            timed_out: false,
            killed: false,
            limit_exceeded: None,
        })
    }

    /// Watches the command until its command init reports that it and everything that it started has ended.
    fn wait_for_end(&mut self, sink: &OutputSink, request: &StopRequest, began: Time) -> Result<Finished> {
        let message = self.watch(sink, request);
        self.pump.drain(sink);
        let machine = |error: io::Error| Error::machine("waiting for a command", error);
        let message = message.map_err(machine)?;
        // When the supervisor is killed, a command init may still report that its command was killed.
        let killed_with_supervisor =
            matches!(&message, Some((InitMessage::Over { ended: ExitStatus::Signalled { .. }, .. }, _)))
                && !self.supervisor.has_ended()
                && !self.supervisor.is_alive();
        let Some((InitMessage::Over { ended, killed_orphans, refused, limit_exceeded }, _)) =
            message.filter(|_| !killed_with_supervisor)
        else {
            if self.supervisor.level() == IsolationLevel::Landlock {
                // The command init was killed, and without a PID namespace its processes continue to run.
                kill_marked(&self.mark);
            }
            return Err(match self.supervisor.was_killed() {
                true => {
                    let why = "its supervisor was killed while a command ran".into();
                    Error::Lost { id: self.sandbox.clone(), why }
                }
                false => machine(io::Error::other("its command init was killed")),
            });
        };
        let limit_exceeded = limit_exceeded.or(self.limit_exceeded.take());
        Ok(Finished {
            // A command that exceeded a limit does not count as stopped on request.
            killed: (self.killed || self.supervisor.has_ended()) && limit_exceeded.is_none(),
            ended,
            timed_out: self.timed_out,
            stdout: CapturedOutput::default(),
            stderr: CapturedOutput::default(),
            killed_orphans,
            refused,
            limit_exceeded,
            started: began,
            duration: now().duration_since(self.since),
        })
    }

    fn watch(&mut self, sink: &OutputSink, request: &StopRequest) -> io::Result<Option<(InitMessage, Vec<OwnedFd>)>> {
        loop {
            let mut fds = vec![PollFd::new(&self.control, PollFlags::IN), PollFd::new(&request.wake, PollFlags::IN)];
            fds.extend(self.pump.poll_fds());
            let until = self.deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let until = until.into_iter().chain(self.supervisor.quota().map(|_| Quota::LOOK_INTERVAL)).min();
            let timeout = until.and_then(|timeout| Timespec::try_from(timeout).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let over = !fds[0].revents().is_empty();
            if fds[2..].iter().any(|fd| !fd.revents().is_empty()) {
                self.pump.turn(sink);
            }
            if over {
                return wire::receive(&self.control);
            }
            self.enforce(request);
        }
    }

    /// Enforces stop requests, the timeout and the disk quota.
    fn enforce(&mut self, request: &StopRequest) {
        // If another command is measuring the disk usage, it does so for all.
        let quota = self.supervisor.quota().filter(|_| self.limit_exceeded.is_none());
        let usage = quota.and_then(|quota| quota.try_lock().ok()?.exceeded(now()));
        if let Some(usage) = usage {
            self.limit_exceeded = Some(format!("disk: {usage} bytes"));
            self.send_stop(StopMode::Immediate);
            return;
        }
        let asked = request.requested();
        let deadline_passed = self.deadline.is_some_and(|deadline| now() >= deadline);
        self.killed |= asked.is_some() && !self.timed_out;
        self.timed_out |= deadline_passed && self.stopping.is_none() && !self.killed;
        match (asked, deadline_passed, self.stopping) {
            (Some(StopMode::Immediate), ..) | (_, true, Some(_)) => self.send_stop(StopMode::Immediate),
            (Some(StopMode::Graceful), ..) | (_, true, None) => self.send_stop(StopMode::Graceful),
            (None, false, _) => {}
        }
    }

    /// Tells the command init to stop the command. Does so once for each mode.
    fn send_stop(&mut self, how: StopMode) {
        if Some(how) <= self.stopping {
            return;
        }
        self.stopping = Some(how);
        self.deadline = if how == StopMode::Graceful { now().checked_add(self.grace) } else { None };
        let word = if how == StopMode::Graceful { GRACEFUL } else { IMMEDIATE };
        // This fails if the command init has ended already.
        let _ = rustix::net::send(&self.control, &[word], rustix::net::SendFlags::NOSIGNAL);
    }
}

/// Opens standard input for a command, and this process's end of it.
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
    /// Closes the socket, which makes the command init kill the command, in case this thread stops early.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
    }
}
