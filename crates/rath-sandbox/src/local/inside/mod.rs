//! The anchor: what this program becomes when it is started as one.
//!
//! An anchor is a process with one thread and nothing of the memory or environment of the program that started it. It
//! makes the namespaces and the view of a sandbox ([`namespaces`], [`view`]), keeps them alive, and starts commands in
//! them. Each command has a [`keeper`], which is the first process of a PID namespace of its own: when the command
//! ends, whatever it started ends with it. The anchor ends when the other end of its socket closes, with all of it:
//! nothing stays behind, not even after `kill -9`.

#![allow(clippy::disallowed_methods, reason = "processes of their own, with a start, a clock and an end of their own")]

mod endpoints;
mod filter;
mod guard;
mod keeper;
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

use super::repository;
use super::tier::Tier;
use super::wire::{self, Job, Raw, Ready, Setup, Told};
use guard::Guard;

pub(super) use raw::has_entrance;
pub(super) use view::SYSTEM;

/// The name that a program is started under to become an anchor.
pub(super) const NAME: &str = "rath-anchor";

/// A step that the machine refused.
pub(super) struct Refused {
    doing: String,
    error: Errno,
}

type Outcome<T> = Result<T, Refused>;

/// Says what was being done when the machine refused.
trait Doing<T> {
    fn doing(self, what: &str) -> Outcome<T>;
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, what: &str) -> Outcome<T> {
        self.map_err(|error| Refused { doing: what.into(), error })
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: &str) -> Outcome<T> {
        self.map_err(|error| Refused { doing: what.into(), error: Errno::from_io_error(&error).unwrap_or(Errno::IO) })
    }
}

/// What commands are started with.
struct Ground {
    tier: Tier,
    workspace: PathBuf,
    limits: crate::limits::Limits,
    guard: Guard,
    /// Hangs up when the anchor is gone.
    tether: OwnedFd,
    /// The other end, which only the anchor has.
    held: Cell<Option<OwnedFd>>,
}

/// Called before `main`.
fn enter_if_anchor() {
    if std::env::args_os().next().is_some_and(|name| name == NAME) {
        std::process::exit(run());
    }
}

fn run() -> i32 {
    // The socket came as standard input; whatever else was left open is not ours.
    raw::close_from(3);
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else { return 1 };
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    if null.is_ok_and(|null| rustix::stdio::dup2_stdin(null).is_err()) {
        return 1;
    }
    // What came with it is the lock of the state directory: held as long as this process and its keepers live.
    let Ok(Some((setup, _lock))) = wire::receive::<Setup>(&socket) else { return 1 };
    match settle(&setup) {
        Ok(Settled { ground, workspace, not_enforced, covered }) => {
            let covered = covered.iter().map(|path| Raw::from(&**path)).collect();
            if wire::send(&socket, &Ready::Yes { not_enforced, covered }, &[workspace.as_fd()]).is_err() {
                return 1;
            }
            drop(workspace);
            if !setup.probe {
                serve(&socket, &ground);
            }
            0
        }
        Err(Refused { doing, error }) => {
            let _ = wire::send(&socket, &Ready::No { doing, errno: error.raw_os_error() }, &[]);
            1
        }
    }
}

/// The place where commands run, ready for the first one.
struct Settled {
    ground: Ground,
    workspace: OwnedFd,
    not_enforced: Vec<String>,
    covered: Vec<PathBuf>,
}

/// Makes the place where commands run.
fn settle(setup: &Setup) -> Outcome<Settled> {
    let mut not_enforced: Vec<String> = setup.tier.lacks().iter().map(|lack| (*lack).into()).collect();
    if setup.overlay.is_none() && repository::leads_inside(&setup.directory.path()) {
        not_enforced.push(".git leads to a repository in the workspace: it is not kept from being changed".into());
    }
    let (workspace, covered) = match setup.tier {
        Tier::Ns => {
            namespaces::enter()?;
            let made = view::make(setup, &mut not_enforced)?;
            try_proc()?;
            made
        }
        Tier::Landlock => {
            let workspace = setup.directory.path();
            view::tell_of_fifos(&workspace, &mut not_enforced)?;
            (workspace, Vec::new())
        }
    };
    rustix::process::chdir(&workspace).doing("entering the workspace")?;
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(&workspace, flags, rustix::fs::Mode::empty()).doing("opening the workspace")?;
    let guard = Guard::make(setup, &workspace, &mut not_enforced)?;
    keeper::declare(setup, &mut not_enforced);
    let (tether, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing("making a pipe")?;
    let (tier, limits, held) = (setup.tier, setup.limits.clone(), Cell::new(Some(held)));
    let ground = Ground { tier, workspace, limits, guard, tether, held };
    Ok(Settled { ground, workspace: opened, not_enforced, covered })
}

/// Tries what every keeper does: whether a PID namespace can have its own `/proc` shows only in one.
fn try_proc() -> Outcome<()> {
    let doing = "mounting proc";
    match raw::fork(true).doing("making a PID namespace")? {
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

/// Starts commands until nobody wants any, and waits until the last of them is gone.
fn serve(socket: &OwnedFd, ground: &Ground) {
    start_all(socket, ground);
    // Keepers see the byte, which nobody reads, and know that they were not orphaned.
    let held = ground.held.take();
    let _ = held.map(|held| rustix::io::write(held, b"."));
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}

/// One keeper is always ready, so that the next command need not wait for its namespaces.
fn start_all(socket: &OwnedFd, ground: &Ground) {
    let Ok(children) = hear_children() else { return };
    let mut ready = new_keeper(ground).ok();
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
            let Ok(Some((job, files))) = wire::receive::<Job>(socket) else { return };
            start(ready.take(), &job, &files, ground);
            drop(files);
            ready = new_keeper(ground).ok();
        }
    }
}

/// Hands a command to the keeper that is ready, or to a new one.
fn start(ready: Option<UnixStream>, job: &Job, files: &[OwnedFd], ground: &Ground) {
    let [control, ..] = files else { return };
    let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    if ready.is_some_and(|keeper| wire::send(keeper, job, &borrowed).is_ok()) {
        return;
    }
    let handed = new_keeper(ground).and_then(|keeper| wire::send(keeper, job, &borrowed));
    if let Err(error) = handed {
        let errno = Some(error.raw_os_error().unwrap_or(libc::EIO));
        let told = Told::NotStarted { tried: "a command".into(), why: "a process for it".into(), errno };
        let _ = wire::send(control, &told, &[]);
    }
}

/// Forks a keeper, which gets ready and waits for its command at the other end of the socket.
fn new_keeper(ground: &Ground) -> std::io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    if raw::fork(ground.tier == Tier::Ns)?.is_some() {
        return Ok(ours);
    }
    drop((ours, ground.held.take()));
    let prepared = keeper::prepare(ground);
    if let Ok(Some((job, files))) = wire::receive::<Job>(&theirs)
        && let Ok([control, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(files)
    {
        drop(theirs);
        keeper::keep(prepared, &job, &control, [stdin, stdout, stderr], ground);
    }
    std::process::exit(0)
}

/// Becomes readable when a child has ended.
fn hear_children() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
