//! The parent's side of a supervisor: a child process at the other end of a socket.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::bound_sockets::BoundSockets;
use super::cgroup::Cgroup;
use super::disk::Quota;
use super::inside;
use super::isolation_level::{IsolationLevel, Refusal};
use super::repository::{GitPlaceholders, Protected};
use super::wire::{self, RawBytes, Setup, SetupResult, StartCommand};
use crate::error::{Error, Result};
use crate::files::{ProtectedPaths, Root};
use crate::host;
use crate::running::StopMode;
use crate::start_lock;
use crate::stop_request::StopRequest;

/// How long to wait for a supervisor to start, to reply or to end.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait for a supervisor of another process to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The lock file of a supervisor. It contains its process id and is locked while the supervisor exists.
const LOCK: &str = "anchor.lock";

/// A running supervisor. It runs commands until it is dropped or [ended](Self::end).
pub(super) struct Supervisor {
    level: IsolationLevel,
    socket: Mutex<Option<UnixStream>>,
    process: OwnedFd,
    child: Mutex<Option<Child>>,
    root: Root,
    not_enforced: Vec<String>,
    live: Mutex<LiveCommands>,
    /// The lock is shared by this process, the supervisor and its command inits. When it is free, nothing is mounted
    /// and no command runs.
    lock: Mutex<Option<fs::File>>,
    ended: AtomicBool,
    quota: Option<Mutex<Quota>>,
    /// Exist while commands may run.
    placeholders: Mutex<Option<GitPlaceholders>>,
    cgroup: Mutex<Option<Cgroup>>,
    /// Paths in the workspace that are covered by mounts, with their device and inode when they were covered.
    covered: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// Sockets and FIFOs of the workspace that are covered, relative to it.
    endpoints: Vec<PathBuf>,
    /// For a workspace that processes outside can access: its path, and the sockets that existed before it was searched
    /// for sockets.
    shared_workspace: Option<(PathBuf, BoundSockets)>,
}

/// The lock on a state directory, which is needed to start a supervisor.
pub(super) struct StateLock(fs::File);

/// The running commands of a supervisor.
#[derive(Default)]
struct LiveCommands {
    commands: HashMap<u64, (Arc<StopRequest>, Vec<oneshot::Sender<()>>)>,
    next: u64,
}

/// Why a supervisor could not be started.
pub(super) enum StartError {
    /// The isolation level is not available.
    Refused(Refusal),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        StartError::Failed(error)
    }
}

impl Supervisor {
    /// Starts a supervisor. `watched` is the workspace's directory outside of the sandbox: if it is removed, the
    /// sandbox is lost.
    pub(super) fn start(setup: Setup, watched: &Path, state_lock: &StateLock) -> Result<Self, StartError> {
        let bound = BoundSockets::now();
        let sockets = bound.absolute().map(|path| path.canonicalize().unwrap_or_else(|_| path.into()));
        let setup = &Setup { sockets: sockets.map(|path| RawBytes::from(&*path)).collect(), ..setup };
        let machine = |doing: &str, error: io::Error| StartError::Failed(Error::machine(doing, error));
        let lock = state_lock.0.try_clone().map_err(|error| machine("duplicating a lock", error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| machine("creating a socket", error))?;
        // A supervisor that does not read, for example a stopped one, must not block this process forever.
        ours.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(|error| machine("creating a socket", error))?;
        // Layers have no repository that programs outside use, and Landlock makes `.git` read-only.
        let own = setup.overlay.is_none() && setup.level == IsolationLevel::Ns && !setup.probe;
        let placeholders = own.then(|| GitPlaceholders::create(&setup.directory.path()));
        let spawned = host::start_foreign_child(|| spawn(theirs));
        let mut child = spawned.map_err(|error| machine("starting a supervisor", error))?;
        let cgroup = Cgroup::make(&setup.limits).filter(|cgroup| cgroup.add_process(child.id()).is_ok());
        // For `supervisor_pid`.
        let _ = fs::write(setup.state.path().join(LOCK), child.id().to_string());
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ready = process.map_err(|error| machine("watching a supervisor", error.into())).and_then(|process| {
            let talked =
                set_up(&ours, setup, &lock).map_err(|error| machine("communicating with a supervisor", error))?;
            Ok((process, talked))
        });
        let (process, (ready, mut files)) = ready.inspect_err(|_| give_up(&mut child))?;
        match (ready, files.pop()) {
            (SetupResult::Yes { not_enforced, covered: endpoints }, Some(workspace)) => {
                let endpoints: Vec<PathBuf> = endpoints.iter().map(RawBytes::path).collect();
                let root = Root::over(watched.into(), workspace)
                    .map_err(|error| machine("opening the workspace", error))
                    .inspect_err(|_| give_up(&mut child))?
                    .with_protected(protected(setup));
                Ok(Self {
                    level: setup.level,
                    socket: Mutex::new(Some(ours)),
                    process,
                    child: Mutex::new(Some(child)),
                    root,
                    not_enforced,
                    live: Mutex::default(),
                    lock: Mutex::new(Some(lock)),
                    ended: AtomicBool::new(false),
                    placeholders: Mutex::new(placeholders),
                    cgroup: Mutex::new(cgroup),
                    covered: covered(setup, &endpoints),
                    endpoints,
                    shared_workspace: own.then(|| (setup.directory.path(), bound)),
                    quota: setup.limits.disk.map(|limit| {
                        let state = setup.state.path();
                        Mutex::new(Quota::begin(limit, vec![watched.into(), state.join("tmp"), state.join("home")]))
                    }),
                })
            }
            (SetupResult::No { doing, errno }, _) => {
                give_up(&mut child);
                Err(StartError::Refused(Refusal::new(setup.level, doing, Errno::from_raw_os_error(errno))))
            }
            (SetupResult::Yes { .. }, None) => {
                give_up(&mut child);
                Err(machine("communicating with a supervisor", io::ErrorKind::InvalidData.into()))
            }
        }
    }

    pub(super) fn level(&self) -> IsolationLevel {
        self.level
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn not_enforced(&self) -> &[String] {
        &self.not_enforced
    }

    /// Whether everything in the workspace that must be covered still is. When a process outside replaces a covered
    /// file, as `git config` does, the kernel removes the mount over it. And a process outside may bind a new socket in
    /// the workspace.
    pub(super) fn covers_are_intact(&self) -> bool {
        let has_new_socket =
            |(workspace, before): &(PathBuf, BoundSockets)| BoundSockets::now().has_new_below(workspace, before);
        self.covered.iter().all(|(path, was)| identity(path) == *was)
            && !self.shared_workspace.as_ref().is_some_and(has_new_socket)
    }

    /// The covered sockets and FIFOs of the workspace, relative to it.
    pub(super) fn covered_endpoints(&self) -> &[PathBuf] {
        &self.endpoints
    }

    /// The disk quota, if there is a limit.
    pub(super) fn quota(&self) -> Option<&Mutex<Quota>> {
        self.quota.as_ref()
    }

    /// Whether its process is running.
    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended() && !await_end(&self.process, Duration::ZERO)
    }

    /// Whether it was ended by something else. Waits up to 1 s, because its commands may end shortly before it.
    pub(super) fn was_killed(&self) -> bool {
        !self.has_ended() && await_end(&self.process, Duration::from_secs(1))
    }

    /// Whether this process ended it.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Sends it a command to start.
    pub(super) fn send(&self, job: &StartCommand, files: [&OwnedFd; 4]) -> io::Result<()> {
        let socket = lock_of(&self.socket);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        wire::send(socket, job, &files.map(|file| file.as_fd()))
    }

    /// Adds a command that is about to start. Returns its number.
    pub(super) fn add(&self, request: Arc<StopRequest>) -> u64 {
        let mut live = lock_of(&self.live);
        live.next += 1;
        let number = live.next;
        live.commands.insert(number, (request, Vec::new()));
        number
    }

    /// Removes a command that has ended. Dropping the returned senders wakes the callers that wait for it.
    pub(super) fn remove(&self, number: u64) -> Vec<oneshot::Sender<()>> {
        lock_of(&self.live).commands.remove(&number).map(|(_, waiting)| waiting).unwrap_or_default()
    }

    /// Number of running commands.
    pub(super) fn running(&self) -> usize {
        lock_of(&self.live).commands.len()
    }

    /// Stops all commands. Each receiver resolves when its command has ended.
    pub(super) fn stop_all(&self) -> Vec<oneshot::Receiver<()>> {
        let mut live = lock_of(&self.live);
        let stopped = live.commands.values_mut().map(|(request, waiting)| {
            request.stop(StopMode::Graceful);
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            receiver
        });
        stopped.collect()
    }

    /// Ends the supervisor and everything that runs in it, and waits for that.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        // This lock is held until the end, so that other callers of `end` wait too.
        let mut child = lock_of(&self.child);
        drop(lock_of(&self.socket).take());
        if !await_end(&self.process, REPLY_TIMEOUT) {
            let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
        }
        child.take().as_mut().map(reap);
        drop((lock_of(&self.placeholders).take(), lock_of(&self.cgroup).take()));
        drop(lock_of(&self.lock).take());
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

/// The paths in the workspace that the supervisor covers, with their device and inode. Empty for layers, which
/// processes outside do not access.
fn covered(setup: &Setup, endpoints: &[PathBuf]) -> Vec<(PathBuf, Option<(u64, u64)>)> {
    if setup.overlay.is_some() {
        return Vec::new();
    }
    let workspace = setup.directory.path();
    let git = workspace.join(".git");
    let Protected { mount_points, covered } = Protected::of(&git);
    let covered = mount_points.into_iter().chain(covered).map(|path| git.join(path));
    let hidden = setup.hidden.iter().map(|path| path.path()).filter(|path| path.starts_with(&workspace));
    let endpoints = endpoints.iter().map(|path| workspace.join(path));
    let all = [git.clone()].into_iter().chain(covered).chain(hidden).chain(endpoints);
    all.map(|path| (identity(&path), path)).map(|(identity, path)| (path, identity)).collect()
}

/// The paths that file operations of this process must protect. Empty for layers: they have no repository that programs
/// outside use, and covered files in them are not replaced from outside.
fn protected(setup: &Setup) -> ProtectedPaths {
    if setup.overlay.is_some() {
        return ProtectedPaths::default();
    }
    let workspace = setup.directory.path();
    let hidden = setup.hidden.iter().map(|path| path.path());
    let hidden = hidden.filter_map(|path| path.strip_prefix(&workspace).map(Path::to_owned).ok()).collect();
    match setup.level {
        IsolationLevel::Ns => {
            let git = Path::new(".git");
            let Protected { mount_points, covered } = Protected::of(&workspace.join(git));
            let names = [git.to_owned()].into_iter().chain(mount_points.iter().map(|path| git.join(path))).collect();
            ProtectedPaths { names, read_only: covered.iter().map(|path| git.join(path)).collect(), hidden }
        }
        IsolationLevel::Landlock => ProtectedPaths { names: Vec::new(), read_only: vec![".git".into()], hidden },
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the current executable under the name that makes it a supervisor.
fn spawn(socket: UnixStream) -> io::Result<Child> {
    assert!(inside::is_linked_in());
    #[allow(clippy::disallowed_methods, reason = "this is the owner")]
    let mut program = std::process::Command::new("/proc/self/exe");
    program.arg0(inside::NAME).env_clear().process_group(0).current_dir("/");
    program.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null()).stderr(Stdio::null());
    let _starting = start_lock::starting();
    program.spawn()
}

/// Sends the setup to the supervisor and waits for its reply.
fn set_up(socket: &UnixStream, setup: &Setup, lock: &fs::File) -> io::Result<(SetupResult, Vec<OwnedFd>)> {
    wire::send(socket, setup, &[lock.as_fd()])?;
    await_message(socket)?;
    let gone = || {
        io::Error::other(
            "it exited at startup without a message; the rath-sandbox crate must be linked into this executable",
        )
    };
    wire::receive(socket)?.ok_or_else(gone)
}

/// Waits for a message, or for the end of the other process.
pub(super) fn await_message(socket: &UnixStream) -> io::Result<()> {
    match await_input(socket, REPLY_TIMEOUT) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "the supervisor does not reply")),
    }
}

fn give_up(child: &mut Child) {
    let _ = child.kill();
    reap(child);
}

fn reap(child: &mut Child) {
    host::before_reaping_foreign_child(child);
    let _ = child.wait();
}

/// Waits for a process to end, for at most `time`. Returns whether it has ended.
fn await_end(process: &OwnedFd, time: Duration) -> bool {
    await_input(process, time)
}

fn await_input(file: impl AsFd, time: Duration) -> bool {
    let timeout = Timespec::try_from(time).ok();
    let mut fds = [PollFd::new(&file, PollFlags::IN)];
    loop {
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            other => return other.is_ok_and(|ready| ready > 0),
        }
    }
}

impl StateLock {
    /// Takes the lock. Waits until the supervisor of an earlier process has ended, which it does by itself.
    pub(super) fn wait(state: &Path) -> Result<Self> {
        let path = state.join(LOCK);
        let machine = |error: io::Error| Error::machine(format!("locking {}", path.display()), error);
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_micros(200);
        loop {
            let file = fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(machine)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, &path) => return Ok(Self(file)),
                // The previous holder removed the file after it was opened here.
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK) if waited < LOCK_TIMEOUT => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(machine(io::Error::other("another process uses this sandbox")));
                }
                Err(error) => return Err(machine(error.into())),
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Removes the lock file. No other supervisor will be started in this state directory.
    pub(super) fn give_up(self, state: &Path) -> Result<()> {
        let path = state.join(LOCK);
        fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))
    }
}

fn is_at(file: &fs::File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().and_then(|own| Ok(same(own, fs::metadata(path)?))).unwrap_or(false)
}

/// Waits until the supervisor of an earlier process in this state directory has ended. It ends by itself, and its
/// mounts exist until then. Returns at once if there was none.
pub fn await_supervisor(state: &Path) -> Result<()> {
    match state.join(LOCK).exists() {
        true => StateLock::wait(state).map(drop),
        false => Ok(()),
    }
}

/// The process id of the supervisor that is running for a state directory, in whichever process it was started. `None`
/// if there is none.
pub fn supervisor_pid(state: &Path) -> Option<u32> {
    let file = fs::File::open(state.join(LOCK)).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => fs::read_to_string(state.join(LOCK)).ok()?.parse().ok(),
        _ => None,
    }
}
