//! Keeps one command: starts it, hears what it is refused, holds it to its limits, and ends with everything it started.
//!
//! In the tier `ns` a keeper is the first process of a PID namespace. Nothing in there can signal or look into it, and
//! one call reaches everything that the command started. In the tier `landlock` it is a subreaper, and looks below
//! itself until nothing is left.

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

use super::memory::{self, Taken, descendants};
use super::{Doing as _, Ground, Outcome, filter, raw, view};
use crate::error::Error;
use crate::finished::Ended;
use crate::local::tier::Tier;
use crate::local::wire::{self, Job, NOW, POLITELY, Setup, Told, Words};
use crate::program::{self, SHELL};

/// How often a command is held to its limits.
const LOOK: Duration = Duration::from_millis(50);

/// Kinds of refusals that are told.
const MOST_REFUSALS: usize = 64;

/// PIDs that the kernel keeps back once its numbers have come round.
const RESERVED: u64 = 300;

/// What was tried and why it failed, with an error number where it was the machine's fault.
type Failure = (String, String, Option<i32>);

/// Says which limits cannot be held here.
pub(super) fn declare(setup: &Setup, not_enforced: &mut Vec<String>) {
    if setup.limits.memory.is_some() {
        not_enforced.push("memory: looked at every 50 ms, so it may be passed for a moment".into());
    }
    let exact = setup.tier == Tier::Ns && kernel_counts_pids_by_namespace();
    if setup.limits.processes.is_some() && !exact {
        not_enforced.push("processes: looked at every 50 ms, so they may be more for a moment".into());
    }
    if setup.limits.disk.is_some() {
        not_enforced.push("disk: looked at every 100 ms, so it may be passed for a moment".into());
    }
}

/// Since Linux 6.14 every PID namespace has a `pid_max` of its own.
fn kernel_counts_pids_by_namespace() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(14))
}

/// Runs a command and tells `control` about it.
pub(super) fn keep(prepared: Outcome<Prepared>, job: &Job, control: &OwnedFd, streams: [OwnedFd; 3], ground: &Ground) {
    let told = match prepared.and_then(|prepared| Keeper::start(prepared, job, streams, ground)) {
        Ok(Ok(mut keeper)) => {
            if wire::send(control, &Told::Started, &[]).is_ok() {
                keeper.watch(control);
            }
            let orphaned = keeper.orphaned;
            let told = keeper.end();
            if orphaned {
                // Who ended because the anchor was killed has nothing to tell: the sandbox is lost.
                return;
            }
            told
        }
        Ok(Err((tried, why, errno))) => Told::NotStarted { tried, why, errno },
        Err(refused) => Told::NotStarted {
            tried: "a command".into(),
            why: refused.doing,
            errno: Some(refused.error.raw_os_error()),
        },
    };
    let _ = wire::send(control, &told, &[]);
}

/// Makes this process a keeper.
pub(super) fn prepare(ground: &Ground) -> Outcome<Prepared> {
    match ground.tier {
        Tier::Ns => {
            // The kernel takes the whole PID namespace along.
            let die = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            die.doing("tying the command to its sandbox")?;
            view::own_proc()?;
            if let Some(processes) = ground.limits.processes {
                // Kernels before 6.14 have one for the whole machine, and do not let us change that.
                let _ = std::fs::write("/proc/sys/kernel/pid_max", (processes + RESERVED).to_string());
            }
        }
        Tier::Landlock => {
            let me = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(me)).doing("becoming a child subreaper")?;
        }
    }
    // Nobody looks into this process.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).doing("closing the keeper's memory")?;
    Ok(Prepared { listener: ground.guard.around_keeper()? })
}

/// A keeper that waits for its command.
pub(super) struct Prepared {
    /// Hears of refused calls.
    listener: Option<OwnedFd>,
}

struct Keeper<'a> {
    ground: &'a Ground,
    children: SignalFd,
    main: Pid,
    listener: Option<OwnedFd>,
    refused: BTreeMap<String, u64>,
    ended: Option<Ended>,
    /// Others that had to be killed.
    killed: u32,
    killing: bool,
    stopping: bool,
    beyond: Option<String>,
    /// Whether the anchor was killed.
    orphaned: bool,
    /// Memory that the machine could give when the command was first looked at.
    available: Option<u64>,
}

impl<'a> Keeper<'a> {
    fn start(
        prepared: Prepared,
        job: &Job,
        streams: [OwnedFd; 3],
        ground: &'a Ground,
    ) -> Outcome<Result<Self, Failure>> {
        let children = super::hear_children().map_err(|_| Errno::INVAL).doing("listening for ended processes")?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().doing("making a socket")?;
        let main = match raw::fork(false).doing("starting a process")? {
            None => {
                drop(ours);
                become_command(job, &streams, ground, &theirs.into());
                std::process::exit(127);
            }
            Some(main) => main,
        };
        drop((theirs, streams));
        // When it becomes the command, its end of the socket is closed.
        if let Ok(Some((failure, _))) = wire::receive::<Failure>(&ours) {
            let _ = rustix::process::waitpid(Some(main), WaitOptions::empty());
            return Ok(Err(failure));
        }
        Ok(Ok(Self {
            ground,
            children,
            main,
            listener: prepared.listener,
            refused: BTreeMap::new(),
            ended: None,
            killed: 0,
            killing: false,
            stopping: false,
            beyond: None,
            orphaned: false,
            available: None,
        }))
    }

    /// Until the command is over, and what it started has ended or is not waited for.
    fn watch(&mut self, control: &OwnedFd) {
        let looks = self.ground.limits.memory.is_some() || self.ground.limits.processes.is_some();
        let mut looked = Instant::now();
        loop {
            let tether = &self.ground.tether;
            let mut fds = [control, tether].map(|fd| PollFd::new(fd, PollFlags::IN)).to_vec();
            fds.push(PollFd::new(&self.children, PollFlags::IN));
            fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
            // Counted from the last look: a command that keeps us busy is looked at just as often.
            let timeout = LOOK.saturating_sub(looked.elapsed());
            let timeout = Timespec::try_from(timeout).ok().filter(|_| looks);
            match poll(&mut fds, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            let asked = !fds[0].revents().is_empty();
            if !fds[1].revents().is_empty() {
                self.orphaned = !fds[1].revents().contains(PollFlags::IN);
                return;
            }
            let refusal = fds.get(3).map(|fd| fd.revents()).unwrap_or(PollFlags::empty());
            if refusal.contains(PollFlags::IN) {
                self.refuse();
            } else if !refusal.is_empty() {
                self.listener = None;
            }
            if asked && !self.obey(control) {
                return;
            }
            while let Ok(Some(_)) = self.children.read_signal() {}
            let alone = self.reap(WaitOptions::NOHANG);
            if alone || (self.ended.is_some() && !self.stopping) {
                return;
            }
            if looks && looked.elapsed() >= LOOK {
                self.hold_to_limits();
                looked = Instant::now();
            }
        }
    }

    /// Does what it was asked. `false` when it is to stop at once, or nobody asks any more.
    fn obey(&mut self, control: &OwnedFd) -> bool {
        let mut asked = [0; 16];
        let length = rustix::io::read(control, &mut asked).unwrap_or(0);
        if length == 0 || asked[..length].contains(&NOW) {
            return false;
        }
        if asked[..length].contains(&POLITELY) && !self.stopping {
            self.stopping = true;
            self.signal_all(Signal::TERM);
            self.signal_all(Signal::CONT);
        }
        true
    }

    fn refuse(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok((id, number)) = raw::next_asked(listener) else { return };
        let _ = raw::refuse(listener, id);
        let name = filter::name(number);
        if self.refused.len() < MOST_REFUSALS || self.refused.contains_key(&name) {
            *self.refused.entry(name).or_default() += 1;
        }
    }

    fn hold_to_limits(&mut self) {
        let processes = match self.ground.tier {
            Tier::Ns => memory::namespace(),
            Tier::Landlock => descendants(rustix::process::getpid().as_raw_pid()),
        };
        let mut taken = Taken::by(processes.iter().copied());
        let limits = &self.ground.limits;
        // Open files are looked through only when the machine has lost more than the command may have.
        let available = memory::available().unwrap_or(0);
        let lost = self.available.get_or_insert(available).saturating_sub(available);
        if limits.memory.is_some_and(|limit| lost > limit) {
            taken.memory += memory::held_in_files(processes.into_iter());
        }
        if limits.memory.is_some_and(|limit| taken.memory > limit) {
            self.beyond = Some(format!("memory: {} bytes", taken.memory));
        } else if limits.processes.is_some_and(|limit| taken.processes > limit) {
            self.beyond = Some(format!("processes: {}", taken.processes));
        } else {
            return;
        }
        self.kill_all();
    }

    /// Reaps who has ended. `true` when nobody is left.
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

    /// Kills what is left, and says how it all ended.
    fn end(mut self) -> Told {
        self.killing = self.ended.is_some();
        match self.ground.tier {
            Tier::Ns => {
                self.kill_all();
                // Whoever waits for an answer is dead, or gets none.
                self.listener = None;
                self.reap(WaitOptions::empty());
            }
            Tier::Landlock => {
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
        // It may have been over before anybody looked.
        let left = u64::from(self.killed);
        if self.beyond.is_none() && self.ground.limits.processes.is_some_and(|limit| left > limit) {
            self.beyond = Some(format!("processes: {left}"));
        }
        Told::Over {
            ended: self.ended.unwrap_or(Ended::Signalled { signal: Signal::KILL.as_raw(), core: false }),
            escaped: self.killed,
            refused: self.refused.into_iter().collect(),
            beyond: self.beyond,
        }
    }

    fn kill_all(&self) {
        if self.ground.tier == Tier::Landlock {
            // Whoever is stopped starts no others while the rest is looked for.
            self.signal_all(Signal::STOP);
        }
        self.signal_all(Signal::KILL);
    }

    fn signal_all(&self, signal: Signal) {
        match self.ground.tier {
            // Everything in the PID namespace but this process.
            Tier::Ns => drop(nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(-1),
                nix::sys::signal::Signal::try_from(signal.as_raw()).ok(),
            )),
            Tier::Landlock => {
                for pid in descendants(rustix::process::getpid().as_raw_pid()) {
                    let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, signal));
                }
            }
        }
    }
}

fn how_it_ended(status: &WaitStatus) -> Option<Ended> {
    match status.exit_status() {
        Some(code) => Some(Ended::Exited(code)),
        None => {
            let core = status.as_raw() & 0x80 != 0;
            Some(Ended::Signalled { signal: status.terminating_signal()?, core })
        }
    }
}

/// In the child: puts up the walls and turns into the command. Comes back only to fail.
fn become_command(job: &Job, streams: &[OwnedFd; 3], ground: &Ground, handover: &OwnedFd) {
    let failed = |failure: Failure| {
        let _ = wire::send(handover, &failure, &[]);
    };
    let machine = |doing: String, error: Errno| failed(("a command".into(), doing, Some(error.raw_os_error())));
    let directory = ground.workspace.join(job.cwd.path());
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
    if let Err(refused) = ground.guard.around_command(&ground.limits) {
        return machine(refused.doing, refused.error);
    }
    let error = execute(&program, &argv, &env);
    match program::not_started(&error, &program, &directory) {
        Error::CannotStart { tried, why } => failed((tried, why, None)),
        _ => machine("the program".into(), Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Streams, signals, process group: what a command begins with.
fn enter(job: &Job, [stdin, stdout, stderr]: &[OwnedFd; 3]) -> Outcome<()> {
    raw::default_signals();
    SigSet::empty().thread_set_mask().map_err(|_| Errno::INVAL).doing("unblocking signals")?;
    rustix::process::setsid().doing("making a process group")?;
    rustix::stdio::dup2_stdin(stdin).doing("passing on standard input")?;
    rustix::stdio::dup2_stdout(stdout).doing("passing on standard output")?;
    rustix::stdio::dup2_stderr(stderr).doing("passing on standard error")?;
    if job.terminal {
        rustix::process::ioctl_tiocsctty(stdin).doing("taking the terminal")?;
    }
    // Where memory runs out, commands go first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    Ok(())
}

/// The file to execute and its arguments.
fn resolve(job: &Job, env: &[(OsString, OsString)], directory: &Path) -> Result<(PathBuf, Vec<OsString>), Error> {
    match &job.program {
        Words::Argv(argv) => {
            let argv: Vec<OsString> = argv.iter().map(|word| word.os()).collect();
            let Some(name) = argv.first() else { return Err(program::nothing_to_start()) };
            Ok((program::find(name, env, directory)?, argv))
        }
        Words::Shell(line) => Ok((SHELL.into(), vec!["sh".into(), "-c".into(), line.into()])),
    }
}

/// Turns into the program. Comes back only to fail.
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
        // Whoever still writes it lets go of it soon.
        if error != nix::Error::ETXTBSY || pause >= program::LONGEST_PAUSE {
            return io::Error::from_raw_os_error(error as i32);
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
}
