//! The command init: starts one command, counts its refused system calls, enforces its limits, and kills everything
//! that it started.
//!
//! At the level `ns`, it is the first process of a PID namespace: no process in the namespace can signal or inspect it,
//! and a single `kill` call reaches everything that the command started. At the level `landlock`, it is a child
//! subreaper, and kills its descendants until none is left.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};

use super::memory::{self, Usage, descendants};
use super::{Doing as _, Outcome, SandboxContext, filter, raw, view};
use crate::error::Error;
use crate::finished::ExitStatus;
use crate::local::isolation_level::IsolationLevel;
use crate::local::wire::{self, GRACEFUL, IMMEDIATE, InitMessage, Setup, StartCommand, WireProgram};
use crate::program::{self, SHELL};

/// Interval between two checks of a command's limits.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of different refused calls that are reported.
const MOST_REFUSALS: usize = 64;

/// The kernel does not use process ids below this number again after a wrap-around.
const RESERVED: u64 = 300;

/// The program or directory that was tried, the reason of the failure, and the error number if a system call failed
/// that is not about the program.
type Failure = (String, String, Option<i32>);

/// Reports which limits are not enforced exactly on this machine.
pub(super) fn report_inexact_limits(setup: &Setup, not_enforced: &mut Vec<String>) {
    if setup.limits.memory.is_some() {
        not_enforced.push("memory: checked every 50 ms, so the limit can be exceeded for a moment".into());
    }
    let exact = setup.level == IsolationLevel::Ns && kernel_counts_pids_by_namespace();
    if setup.limits.processes.is_some() && !exact {
        not_enforced.push("processes: checked every 50 ms, so the limit can be exceeded for a moment".into());
    }
    if setup.limits.disk.is_some() {
        not_enforced.push("disk: checked every 100 ms, so the limit can be exceeded for a moment".into());
    }
}

/// Whether each PID namespace has its own `pid_max`, as since Linux 6.14.
fn kernel_counts_pids_by_namespace() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(14))
}

/// Runs a command and reports to `control`.
pub(super) fn run(
    prepared: Outcome<PreparedInit>,
    job: &StartCommand,
    control: &OwnedFd,
    streams: [OwnedFd; 3],
    context: &SandboxContext,
) {
    let message = match prepared.and_then(|prepared| CommandInit::start(prepared, job, streams, context)) {
        Ok(Ok(mut init)) => {
            if wire::send(control, &InitMessage::Started, &[]).is_ok() {
                init.watch(control);
            }
            let supervisor_died = init.supervisor_died;
            let message = init.end();
            if supervisor_died {
                // The supervisor was killed, so the sandbox is lost and needs no report.
                return;
            }
            message
        }
        Ok(Err((tried, why, errno))) => InitMessage::NotStarted { tried, why, errno },
        Err(refused) => InitMessage::NotStarted {
            tried: "a command".into(),
            why: refused.doing,
            errno: Some(refused.error.raw_os_error()),
        },
    };
    let _ = wire::send(control, &message, &[]);
}

/// Makes this process a command init.
pub(super) fn prepare(context: &SandboxContext) -> Outcome<PreparedInit> {
    match context.level {
        IsolationLevel::Ns => {
            // When this process dies, the kernel kills the whole PID namespace.
            let die = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            die.doing("tying the command to its sandbox")?;
            view::own_proc()?;
            if let Some(processes) = context.limits.processes {
                // Before Linux 6.14, `pid_max` applies to the whole machine, and this write fails.
                let _ = std::fs::write("/proc/sys/kernel/pid_max", (processes + RESERVED).to_string());
            }
        }
        IsolationLevel::Landlock => {
            let me = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(me)).doing("becoming a child subreaper")?;
        }
    }
    // No process may read this one's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .doing("protecting the memory of the command init")?;
    Ok(PreparedInit { listener: context.guard.restrict_init()? })
}

/// A command init that waits for its command.
pub(super) struct PreparedInit {
    /// The listener for refused calls.
    listener: Option<OwnedFd>,
}

struct CommandInit<'a> {
    context: &'a SandboxContext,
    children: SignalFd,
    main: Pid,
    listener: Option<OwnedFd>,
    refused: BTreeMap<String, u64>,
    ended: Option<ExitStatus>,
    /// Number of other processes that were killed.
    killed: u32,
    killing: bool,
    stopping: bool,
    limit_exceeded: Option<String>,
    /// Whether the supervisor was killed.
    supervisor_died: bool,
    /// Available memory of the machine at the first check.
    available: Option<u64>,
}

impl<'a> CommandInit<'a> {
    fn start(
        prepared: PreparedInit,
        job: &StartCommand,
        streams: [OwnedFd; 3],
        context: &'a SandboxContext,
    ) -> Outcome<Result<Self, Failure>> {
        let children = super::child_signals().map_err(|_| Errno::INVAL).doing("listening for ended processes")?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().doing("creating a socket")?;
        let main = match raw::fork(false).doing("starting a process")? {
            None => {
                drop(ours);
                become_command(job, &streams, context, &theirs.into());
                std::process::exit(127);
            }
            Some(main) => main,
        };
        drop((theirs, streams));
        // A successful exec closes the child's end of the socket.
        if let Ok(Some((failure, _))) = wire::receive::<Failure>(&ours) {
            let _ = rustix::process::waitpid(Some(main), WaitOptions::empty());
            return Ok(Err(failure));
        }
        Ok(Ok(Self {
            context,
            children,
            main,
            listener: prepared.listener,
            refused: BTreeMap::new(),
            ended: None,
            killed: 0,
            killing: false,
            stopping: false,
            limit_exceeded: None,
            supervisor_died: false,
            available: None,
        }))
    }

    /// Watches the command until its main process has ended. If the command is being stopped gracefully, waits for its
    /// other processes too.
    fn watch(&mut self, control: &OwnedFd) {
        let looks = self.context.limits.memory.is_some() || self.context.limits.processes.is_some();
        let mut looked = Instant::now();
        loop {
            let liveness = &self.context.liveness;
            let mut fds = [control, liveness].map(|fd| PollFd::new(fd, PollFlags::IN)).to_vec();
            fds.push(PollFd::new(&self.children, PollFlags::IN));
            fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
            // Count from the last check, so that a command that causes many events is checked as often as others.
            let timeout = LOOK_INTERVAL.saturating_sub(looked.elapsed());
            let timeout = Timespec::try_from(timeout).ok().filter(|_| looks);
            match poll(&mut fds, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            let asked = !fds[0].revents().is_empty();
            if !fds[1].revents().is_empty() {
                self.supervisor_died = !fds[1].revents().contains(PollFlags::IN);
                return;
            }
            let refusal = fds.get(3).map(|fd| fd.revents()).unwrap_or(PollFlags::empty());
            if refusal.contains(PollFlags::IN) {
                self.answer_refused_call();
            } else if !refusal.is_empty() {
                self.listener = None;
            }
            if asked && !self.handle_stop_request(control) {
                return;
            }
            while let Ok(Some(_)) = self.children.read_signal() {}
            let alone = self.reap(WaitOptions::NOHANG);
            if alone || (self.ended.is_some() && !self.stopping) {
                return;
            }
            if looks && looked.elapsed() >= LOOK_INTERVAL {
                self.enforce_limits();
                looked = Instant::now();
            }
        }
    }

    /// Handles stop requests. Returns `false` if the command must be killed at once, or if the other end is closed.
    fn handle_stop_request(&mut self, control: &OwnedFd) -> bool {
        let mut asked = [0; 16];
        let length = rustix::io::read(control, &mut asked).unwrap_or(0);
        if length == 0 || asked[..length].contains(&IMMEDIATE) {
            return false;
        }
        if asked[..length].contains(&GRACEFUL) && !self.stopping {
            self.stopping = true;
            self.signal_all(Signal::TERM);
            self.signal_all(Signal::CONT);
        }
        true
    }

    fn answer_refused_call(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok((id, number)) = raw::next_notification(listener) else { return };
        let _ = raw::refuse(listener, id);
        let name = filter::name(number);
        if self.refused.len() < MOST_REFUSALS || self.refused.contains_key(&name) {
            *self.refused.entry(name).or_default() += 1;
        }
    }

    fn enforce_limits(&mut self) {
        let processes = match self.context.level {
            IsolationLevel::Ns => memory::namespace(),
            IsolationLevel::Landlock => descendants(rustix::process::getpid().as_raw_pid()),
        };
        let mut usage = Usage::of(processes.iter().copied());
        let limits = &self.context.limits;
        // Searching open files is slow, so it is done only if the machine lost more memory than the limit.
        let available = memory::available().unwrap_or(0);
        let lost = self.available.get_or_insert(available).saturating_sub(available);
        if limits.memory.is_some_and(|limit| lost > limit) {
            usage.memory += memory::memfd_bytes(processes.into_iter());
        }
        if limits.memory.is_some_and(|limit| usage.memory > limit) {
            self.limit_exceeded = Some(format!("memory: {} bytes", usage.memory));
        } else if limits.processes.is_some_and(|limit| usage.processes > limit) {
            self.limit_exceeded = Some(format!("processes: {}", usage.processes));
        } else {
            return;
        }
        self.kill_all();
    }

    /// Reaps processes that have ended. Returns `true` if none is left.
    fn reap(&mut self, how: WaitOptions) -> bool {
        loop {
            match rustix::process::wait(how) {
                Ok(Some((pid, status))) if pid == self.main => self.ended = how_it_ended(&status),
                Ok(Some((_, status))) => {
                    let by_us = self.killing && status.terminating_signal() == Some(Signal::KILL.as_raw());
                    self.killed += u32::from(by_us);
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Kills the remaining processes and returns the final message.
    fn end(mut self) -> InitMessage {
        self.killing = self.ended.is_some();
        match self.context.level {
            IsolationLevel::Ns => {
                self.kill_all();
                // The processes that wait for a reply to a refused call are dead.
                self.listener = None;
                self.reap(WaitOptions::empty());
            }
            IsolationLevel::Landlock => {
                self.listener = None;
                loop {
                    self.kill_all();
                    if self.reap(WaitOptions::NOHANG) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        // The command may have ended before the first check.
        let left = u64::from(self.killed);
        if self.limit_exceeded.is_none() && self.context.limits.processes.is_some_and(|limit| left > limit) {
            self.limit_exceeded = Some(format!("processes: {left}"));
        }
        InitMessage::Over {
            ended: self.ended.unwrap_or(ExitStatus::Signalled { signal: Signal::KILL.as_raw(), core: false }),
            killed_orphans: self.killed,
            refused: self.refused.into_iter().collect(),
            limit_exceeded: self.limit_exceeded,
        }
    }

    fn kill_all(&self) {
        if self.context.level == IsolationLevel::Landlock {
            // A stopped process cannot start others while the rest is searched.
            self.signal_all(Signal::STOP);
        }
        self.signal_all(Signal::KILL);
    }

    fn signal_all(&self, signal: Signal) {
        match self.context.level {
            // All processes in the PID namespace except this one.
            IsolationLevel::Ns => drop(nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(-1),
                nix::sys::signal::Signal::try_from(signal.as_raw()).ok(),
            )),
            IsolationLevel::Landlock => {
                for pid in descendants(rustix::process::getpid().as_raw_pid()) {
                    let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, signal));
                }
            }
        }
    }
}

fn how_it_ended(status: &WaitStatus) -> Option<ExitStatus> {
    match status.exit_status() {
        Some(code) => Some(ExitStatus::Exited(code)),
        None => {
            let core = status.as_raw() & 0x80 != 0;
            Some(ExitStatus::Signalled { signal: status.terminating_signal()?, core })
        }
    }
}

/// In the child process: applies the restrictions and executes the command. Returns only on failure.
fn become_command(job: &StartCommand, streams: &[OwnedFd; 3], context: &SandboxContext, handover: &OwnedFd) {
    let failed = |failure: Failure| {
        let _ = wire::send(handover, &failure, &[]);
    };
    let machine = |doing: String, error: Errno| failed(("a command".into(), doing, Some(error.raw_os_error())));
    let directory = context.workspace.join(job.cwd.path());
    if let Err(error) = rustix::process::chdir(&directory) {
        return failed((format!("a command in {}", directory.display()), error.to_string(), None));
    }
    if let Err(refused) = enter(job, streams) {
        return machine(refused.doing, refused.error);
    }
    let env: Vec<(OsString, OsString)> = job.env.iter().map(|(name, value)| (name.os(), value.os())).collect();
    let (program, argv) = match resolve(job, &env, &directory) {
        Ok(found) => found,
        Err(Error::CannotStart { tried, why }) => return failed((tried, why, None)),
        Err(other) => return failed(("a command".into(), other.to_string(), None)),
    };
    if let Err(refused) = context.guard.restrict_command(&context.limits) {
        return machine(refused.doing, refused.error);
    }
    let error = execute(&program, &argv, &env);
    match program::not_started(&error, &program, &directory) {
        Error::CannotStart { tried, why } => failed((tried, why, None)),
        _ => machine("the program".into(), Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Sets up streams, signals and the process group of a command.
fn enter(job: &StartCommand, [stdin, stdout, stderr]: &[OwnedFd; 3]) -> Outcome<()> {
    raw::default_signals();
    SigSet::empty().thread_set_mask().map_err(|_| Errno::INVAL).doing("unblocking signals")?;
    rustix::process::setsid().doing("creating a session")?;
    rustix::stdio::dup2_stdin(stdin).doing("setting standard input")?;
    rustix::stdio::dup2_stdout(stdout).doing("setting standard output")?;
    rustix::stdio::dup2_stderr(stderr).doing("setting standard error")?;
    if job.terminal {
        rustix::process::ioctl_tiocsctty(stdin).doing("taking the terminal")?;
    }
    // If memory runs out, the kernel kills commands first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    Ok(())
}

/// The file to execute, and its arguments.
fn resolve(
    job: &StartCommand,
    env: &[(OsString, OsString)],
    directory: &Path,
) -> Result<(PathBuf, Vec<OsString>), Error> {
    match &job.program {
        WireProgram::Argv(argv) => {
            let argv: Vec<OsString> = argv.iter().map(|word| word.os()).collect();
            let Some(name) = argv.first() else { return Err(program::nothing_to_start()) };
            Ok((program::find(name, env, directory)?, argv))
        }
        WireProgram::Shell(line) => Ok((SHELL.into(), vec!["sh".into(), "-c".into(), line.into()])),
    }
}

/// Executes the program. Returns only on failure.
fn execute(program: &Path, argv: &[OsString], env: &[(OsString, OsString)]) -> io::Error {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let variables = env.iter().map(|(name, value)| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(b'=');
        bytes.extend(value.as_bytes());
        text(&bytes)
    });
    let prepared = (|| {
        let program = text(program.as_os_str().as_bytes())?;
        let argv = argv.iter().map(|word| text(word.as_bytes())).collect::<io::Result<Vec<_>>>()?;
        Ok((program, argv, variables.collect::<io::Result<Vec<_>>>()?))
    })();
    let (program, argv, env) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let mut pause = Duration::from_millis(1);
    loop {
        let error = match nix::unistd::execve(&program, &argv, &env) {
            Err(error) => error,
            Ok(never) => match never {},
        };
        // A process between fork and exec may have the program open for writing. It closes it soon.
        if error != nix::Error::ETXTBSY || pause >= program::MAX_RETRY_PAUSE {
            return io::Error::from_raw_os_error(error as i32);
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
}
