//! The code that runs inside the supervisor process.
//!
//! The supervisor is the same executable, started with one thread and without the memory and environment of the process
//! that started it. It creates the namespaces and the file system view of a sandbox ([`namespaces`], [`view`]), keeps
//! them alive, and starts commands in them. Each command has a [command init](command_init), which is the first process
//! of its own PID namespace, so everything that the command started ends with it. The supervisor and all commands end
//! when the other end of its socket closes, even after `kill -9`.

#![allow(clippy::disallowed_methods, reason = "this code runs in processes of its own")]

mod command_init;
mod endpoints;
mod filter;
mod guard;
mod memory;
mod namespaces;
mod raw;
mod view;

use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::isolation_level::IsolationLevel;
use super::repository;
use super::wire::{self, InitMessage, RawBytes, Setup, SetupResult, StartCommand};
use guard::Guard;

pub(super) use raw::is_linked_in;
pub(super) use view::SYSTEM;

/// The `argv[0]` that makes the executable a supervisor.
pub(super) const NAME: &str = "rath-supervisor";

/// A setup step that failed.
pub(super) struct SetupError {
    doing: String,
    error: Errno,
}

type Outcome<T> = Result<T, SetupError>;

/// Adds the step that failed to an error.
trait Doing<T> {
    fn doing(self, what: &str) -> Outcome<T>;
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, what: &str) -> Outcome<T> {
        self.map_err(|error| SetupError { doing: what.into(), error })
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: &str) -> Outcome<T> {
        self.map_err(|error| SetupError {
            doing: what.into(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }
}

/// What all commands of a sandbox have in common.
struct SandboxContext {
    level: IsolationLevel,
    workspace: PathBuf,
    limits: crate::limits::Limits,
    guard: Guard,
    /// A pipe that hangs up when the supervisor has ended.
    liveness: OwnedFd,
    /// The other end of the pipe, which only the supervisor has.
    liveness_writer: Cell<Option<OwnedFd>>,
}

/// Runs the supervisor if the executable was started as one. Called before `main`.
fn become_supervisor_if_named() {
    if std::env::args_os().next().is_some_and(|name| name == NAME) {
        std::process::exit(run());
    }
}

fn run() -> i32 {
    // The socket is standard input. All other inherited descriptors are closed.
    raw::close_from(3);
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else { return 1 };
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    if null.is_ok_and(|null| rustix::stdio::dup2_stdin(null).is_err()) {
        return 1;
    }
    // The message comes with the lock of the state directory, which is held while this process and its command inits
    // exist.
    let Ok(Some((setup, _lock))) = wire::receive::<Setup>(&socket) else { return 1 };
    match prepare_sandbox(&setup) {
        Ok(PreparedSandbox { context, workspace, not_enforced, covered }) => {
            let covered = covered.iter().map(|path| RawBytes::from(&**path)).collect();
            if wire::send(&socket, &SetupResult::Yes { not_enforced, covered }, &[workspace.as_fd()]).is_err() {
                return 1;
            }
            drop(workspace);
            if !setup.probe {
                serve(&socket, &context);
            }
            0
        }
        Err(SetupError { doing, error }) => {
            let _ = wire::send(&socket, &SetupResult::No { doing, errno: error.raw_os_error() }, &[]);
            1
        }
    }
}

/// A sandbox that is ready for its first command.
struct PreparedSandbox {
    context: SandboxContext,
    workspace: OwnedFd,
    not_enforced: Vec<String>,
    covered: Vec<PathBuf>,
}

/// Sets up the sandbox.
fn prepare_sandbox(setup: &Setup) -> Outcome<PreparedSandbox> {
    let mut not_enforced: Vec<String> = setup.level.lacks().iter().map(|lack| (*lack).into()).collect();
    if setup.overlay.is_none() && repository::links_into_workspace(&setup.directory.path()) {
        not_enforced.push(".git names a repository inside the workspace, which is not protected from changes".into());
    }
    let (workspace, covered) = match setup.level {
        IsolationLevel::Ns => {
            namespaces::enter()?;
            let made = view::make(setup, &mut not_enforced)?;
            try_proc()?;
            made
        }
        IsolationLevel::Landlock => {
            let workspace = setup.directory.path();
            view::report_fifos(&workspace, &mut not_enforced)?;
            (workspace, Vec::new())
        }
    };
    rustix::process::chdir(&workspace).doing("entering the workspace")?;
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(&workspace, flags, rustix::fs::Mode::empty()).doing("opening the workspace")?;
    let guard = Guard::make(setup, &workspace, &mut not_enforced)?;
    command_init::report_inexact_limits(setup, &mut not_enforced);
    let (liveness, liveness_writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing("creating a pipe")?;
    let (level, limits, liveness_writer) = (setup.level, setup.limits.clone(), Cell::new(Some(liveness_writer)));
    let context = SandboxContext { level, workspace, limits, guard, liveness, liveness_writer };
    Ok(PreparedSandbox { context, workspace: opened, not_enforced, covered })
}

/// Tries to mount `/proc` in a PID namespace, which each command init does. Whether that is allowed is known only by
/// trying.
fn try_proc() -> Outcome<()> {
    let doing = "mounting /proc";
    match raw::fork(true).doing("creating a PID namespace")? {
        None => std::process::exit(view::own_proc().map_or_else(|refused| refused.error.raw_os_error(), |()| 0)),
        Some(child) => {
            let status = rustix::process::waitpid(Some(child), WaitOptions::empty()).doing(doing)?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                code => Err(code.map_or(Errno::IO, Errno::from_raw_os_error)).doing(doing),
            }
        }
    }
}

/// Starts commands until the socket closes, then waits until all of them have ended.
fn serve(socket: &OwnedFd, context: &SandboxContext) {
    start_all(socket, context);
    // The byte tells command inits that the supervisor ends normally and was not killed.
    let liveness_writer = context.liveness_writer.take();
    let _ = liveness_writer.map(|liveness_writer| rustix::io::write(liveness_writer, b"."));
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}

/// Starts commands until the socket closes. One command init is always prepared, so that the next command does not wait
/// for its namespaces.
fn start_all(socket: &OwnedFd, context: &SandboxContext) {
    let Ok(children) = child_signals() else { return };
    let mut ready = fork_init(context).ok();
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let asked = !fds[0].revents().is_empty();
        let ended = !fds[1].revents().is_empty();
        if ended {
            while let Ok(Some(_)) = children.read_signal() {}
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        }
        if asked {
            let Ok(Some((job, files))) = wire::receive::<StartCommand>(socket) else { return };
            start(ready.take(), &job, &files, context);
            drop(files);
            ready = fork_init(context).ok();
        }
    }
}

/// Sends a command to the prepared command init, or to a new one.
fn start(ready: Option<UnixStream>, job: &StartCommand, files: &[OwnedFd], context: &SandboxContext) {
    let [control, ..] = files else { return };
    let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    if ready.is_some_and(|init| wire::send(init, job, &borrowed).is_ok()) {
        return;
    }
    let handed = fork_init(context).and_then(|init| wire::send(init, job, &borrowed));
    if let Err(error) = handed {
        let errno = Some(error.raw_os_error().unwrap_or(libc::EIO));
        let message = InitMessage::NotStarted { tried: "a command".into(), why: "a process for it".into(), errno };
        let _ = wire::send(control, &message, &[]);
    }
}

/// Forks a command init, which prepares itself and waits for its command at the other end of the socket.
fn fork_init(context: &SandboxContext) -> std::io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    if raw::fork(context.level == IsolationLevel::Ns)?.is_some() {
        return Ok(ours);
    }
    drop((ours, context.liveness_writer.take()));
    let prepared = command_init::prepare(context);
    if let Ok(Some((job, files))) = wire::receive::<StartCommand>(&theirs)
        && let Ok([control, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(files)
    {
        drop(theirs);
        command_init::run(prepared, &job, &control, [stdin, stdout, stderr], context);
    }
    std::process::exit(0)
}

/// A descriptor that becomes readable when a child has ended.
fn child_signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
