//! An anchor as the program that started it sees it: a child at the other end of a socket.

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

use super::bound::BoundSockets;
use super::cgroup::Cgroup;
use super::disk::Quota;
use super::inside;
use super::repository::{Protected, StandIns};
use super::tier::{Refusal, Tier};
use super::wire::{self, Job, Raw, Ready, Setup};
use crate::error::{Error, Result};
use crate::files::{Kept, Root};
use crate::host;
use crate::request::Request;
use crate::running::Stop;
use crate::starting;

/// How long an anchor may take to get ready, or to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long one of another process may take to be gone.
const TURN: Duration = Duration::from_secs(5);

/// The file that is locked as long as an anchor lives. It has the number of its process.
const LOCK: &str = "anchor.lock";

/// Commands run in it until it is dropped or [ended](Self::end).
pub(super) struct Anchor {
    tier: Tier,
    socket: Mutex<Option<UnixStream>>,
    process: OwnedFd,
    child: Mutex<Option<Child>>,
    root: Root,
    not_enforced: Vec<String>,
    live: Mutex<Live>,
    /// Held by this process, by the anchor and by its keepers: when nobody has it, nothing is mounted and nothing runs.
    lock: Mutex<Option<fs::File>>,
    ended: AtomicBool,
    quota: Option<Mutex<Quota>>,
    /// Lives as long as commands may run.
    stand_ins: Mutex<Option<StandIns>>,
    cgroup: Mutex<Option<Cgroup>>,
    /// What is covered in the workspace, as it was.
    covered: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// Sockets and FIFOs of the workspace that are covered, relative to it.
    endpoints: Vec<PathBuf>,
    /// A workspace that others can reach, with the sockets that were bound before it was looked for them.
    in_place: Option<(PathBuf, BoundSockets)>,
}

/// The right to have an anchor in a state directory.
pub(super) struct Turn(fs::File);

/// The commands that run in it.
#[derive(Default)]
struct Live {
    commands: HashMap<u64, (Arc<Request>, Vec<oneshot::Sender<()>>)>,
    next: u64,
}

/// Why there is no anchor.
pub(super) enum NoAnchor {
    /// The machine refused something on the way.
    Refused(Refusal),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for NoAnchor {
    fn from(error: Error) -> Self {
        NoAnchor::Failed(error)
    }
}

impl Anchor {
    /// Starts one. `watched` is the directory outside that the workspace stands and falls with.
    pub(super) fn start(setup: Setup, watched: &Path, turn: &Turn) -> Result<Self, NoAnchor> {
        let bound = BoundSockets::now();
        let sockets = bound.absolute().map(|path| path.canonicalize().unwrap_or_else(|_| path.into()));
        let setup = &Setup { sockets: sockets.map(|path| Raw::from(&*path)).collect(), ..setup };
        let machine = |doing: &str, error: io::Error| NoAnchor::Failed(Error::machine(doing, error));
        let lock = turn.0.try_clone().map_err(|error| machine("keeping a lock", error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| machine("making a socket", error))?;
        // Whoever stops the process must not stop us.
        ours.set_write_timeout(Some(PATIENCE)).map_err(|error| machine("making a socket", error))?;
        // Layers are nobody's repository, and Landlock leaves none to write to.
        let own = setup.overlay.is_none() && setup.tier == Tier::Ns && !setup.probe;
        let stand_ins = own.then(|| StandIns::put(&setup.directory.path()));
        let spawned = host::start_spared(|| spawn(theirs));
        let mut child = spawned.map_err(|error| machine("starting an anchor", error))?;
        let cgroup = Cgroup::make(&setup.limits).filter(|cgroup| cgroup.take_in(child.id()).is_ok());
        // For whoever wonders which process it is.
        let _ = fs::write(setup.state.path().join(LOCK), child.id().to_string());
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ready = process.map_err(|error| machine("watching an anchor", error.into())).and_then(|process| {
            let talked = talk(&ours, setup, &lock).map_err(|error| machine("talking to an anchor", error))?;
            Ok((process, talked))
        });
        let (process, (ready, mut files)) = ready.inspect_err(|_| give_up(&mut child))?;
        match (ready, files.pop()) {
            (Ready::Yes { not_enforced, covered: endpoints }, Some(workspace)) => {
                let endpoints: Vec<PathBuf> = endpoints.iter().map(Raw::path).collect();
                let root = Root::over(watched.into(), workspace)
                    .map_err(|error| machine("opening the workspace", error))
                    .inspect_err(|_| give_up(&mut child))?
                    .keeping(kept(setup));
                Ok(Self {
                    tier: setup.tier,
                    socket: Mutex::new(Some(ours)),
                    process,
                    child: Mutex::new(Some(child)),
                    root,
                    not_enforced,
                    live: Mutex::default(),
                    lock: Mutex::new(Some(lock)),
                    ended: AtomicBool::new(false),
                    stand_ins: Mutex::new(stand_ins),
                    cgroup: Mutex::new(cgroup),
                    covered: covered(setup, &endpoints),
                    endpoints,
                    in_place: own.then(|| (setup.directory.path(), bound)),
                    quota: setup.limits.disk.map(|limit| {
                        let state = setup.state.path();
                        Mutex::new(Quota::begin(limit, vec![watched.into(), state.join("tmp"), state.join("home")]))
                    }),
                })
            }
            (Ready::No { doing, errno }, _) => {
                give_up(&mut child);
                Err(NoAnchor::Refused(Refusal::new(setup.tier, doing, Errno::from_raw_os_error(errno))))
            }
            (Ready::Yes { .. }, None) => {
                give_up(&mut child);
                Err(machine("talking to an anchor", io::ErrorKind::InvalidData.into()))
            }
        }
    }

    pub(super) fn tier(&self) -> Tier {
        self.tier
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn not_enforced(&self) -> &[String] {
        &self.not_enforced
    }

    /// Whether all that it is to cover in the workspace is covered. The kernel takes away what lies over a file when a
    /// process outside replaces it, as `git config` does; and a process outside may bind a new socket there.
    pub(super) fn covers_still(&self) -> bool {
        let has_new_socket =
            |(workspace, before): &(PathBuf, BoundSockets)| BoundSockets::now().has_new_below(workspace, before);
        self.covered.iter().all(|(path, was)| identity(path) == *was)
            && !self.in_place.as_ref().is_some_and(has_new_socket)
    }

    /// Sockets and FIFOs of the workspace that it covers, relative to it.
    pub(super) fn covered_endpoints(&self) -> &[PathBuf] {
        &self.endpoints
    }

    /// How much its directories may take.
    pub(super) fn quota(&self) -> Option<&Mutex<Quota>> {
        self.quota.as_ref()
    }

    /// Whether its process lives.
    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended() && !await_end(&self.process, Duration::ZERO)
    }

    /// Whether somebody else ended it. Its commands may be gone a moment before it.
    pub(super) fn was_killed(&self) -> bool {
        !self.has_ended() && await_end(&self.process, Duration::from_secs(1))
    }

    /// Whether it was ended, in contrast to killed.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Hands it a command.
    pub(super) fn send(&self, job: &Job, files: [&OwnedFd; 4]) -> io::Result<()> {
        let socket = lock_of(&self.socket);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        wire::send(socket, job, &files.map(|file| file.as_fd()))
    }

    /// Counts a command that is about to start. Its number.
    pub(super) fn add(&self, request: Arc<Request>) -> u64 {
        let mut live = lock_of(&self.live);
        live.next += 1;
        let number = live.next;
        live.commands.insert(number, (request, Vec::new()));
        number
    }

    /// A command is over. Who waits for it is told by dropping what is returned.
    pub(super) fn remove(&self, number: u64) -> Vec<oneshot::Sender<()>> {
        lock_of(&self.live).commands.remove(&number).map(|(_, waiting)| waiting).unwrap_or_default()
    }

    /// How many commands run.
    pub(super) fn running(&self) -> usize {
        lock_of(&self.live).commands.len()
    }

    /// Stops all commands. Each receiver resolves when its command is over.
    pub(super) fn stop_all(&self) -> Vec<oneshot::Receiver<()>> {
        let mut live = lock_of(&self.live);
        let stopped = live.commands.values_mut().map(|(request, waiting)| {
            request.stop(Stop::Politely);
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            receiver
        });
        stopped.collect()
    }

    /// Ends it, with all that runs in it, and waits until it is gone.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        // Taken first and held to the end: whoever else ends it waits.
        let mut child = lock_of(&self.child);
        drop(lock_of(&self.socket).take());
        if !await_end(&self.process, PATIENCE) {
            let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
        }
        child.take().as_mut().map(reap);
        drop((lock_of(&self.stand_ins).take(), lock_of(&self.cgroup).take()));
        drop(lock_of(&self.lock).take());
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an anchor covers in a workspace that others can reach too.
fn covered(setup: &Setup, endpoints: &[PathBuf]) -> Vec<(PathBuf, Option<(u64, u64)>)> {
    if setup.overlay.is_some() {
        return Vec::new();
    }
    let workspace = setup.directory.path();
    let git = workspace.join(".git");
    let Protected { places, covered } = Protected::of(&git);
    let covered = places.into_iter().chain(covered).map(|path| git.join(path));
    let hidden = setup.hidden.iter().map(|path| path.path()).filter(|path| path.starts_with(&workspace));
    let endpoints = endpoints.iter().map(|path| workspace.join(path));
    let all = [git.clone()].into_iter().chain(covered).chain(hidden).chain(endpoints);
    all.map(|path| (identity(&path), path)).map(|(identity, path)| (path, identity)).collect()
}

/// What is kept from those who have files read and written here, in a workspace that others can reach too. In layers
/// nobody else replaces what is covered, and there is no repository of anybody's.
fn kept(setup: &Setup) -> Kept {
    if setup.overlay.is_some() {
        return Kept::default();
    }
    let workspace = setup.directory.path();
    let hidden = setup.hidden.iter().map(|path| path.path());
    let hidden = hidden.filter_map(|path| path.strip_prefix(&workspace).map(Path::to_owned).ok()).collect();
    match setup.tier {
        Tier::Ns => {
            let git = Path::new(".git");
            let Protected { places, covered } = Protected::of(&workspace.join(git));
            let names = [git.to_owned()].into_iter().chain(places.iter().map(|path| git.join(path))).collect();
            Kept { names, read_only: covered.iter().map(|path| git.join(path)).collect(), hidden }
        }
        Tier::Landlock => Kept { names: Vec::new(), read_only: vec![".git".into()], hidden },
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts this very program under the name that makes it an anchor.
fn spawn(socket: UnixStream) -> io::Result<Child> {
    assert!(inside::has_entrance());
    #[allow(clippy::disallowed_methods, reason = "this is the owner")]
    let mut program = std::process::Command::new("/proc/self/exe");
    program.arg0(inside::NAME).env_clear().process_group(0).current_dir("/");
    program.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null()).stderr(Stdio::null());
    let _starting = starting::one();
    program.spawn()
}

/// Says what it is to be and waits for its answer.
fn talk(socket: &UnixStream, setup: &Setup, lock: &fs::File) -> io::Result<(Ready, Vec<OwnedFd>)> {
    wire::send(socket, setup, &[lock.as_fd()])?;
    await_word(socket)?;
    let gone = || io::Error::other("it ended without a word; is the code of rath part of this program?");
    wire::receive(socket)?.ok_or_else(gone)
}

/// Waits until there is something to hear, or the other end is gone.
pub(super) fn await_word(socket: &UnixStream) -> io::Result<()> {
    match await_input(socket, PATIENCE) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "its anchor does not answer")),
    }
}

fn give_up(child: &mut Child) {
    let _ = child.kill();
    reap(child);
}

fn reap(child: &mut Child) {
    host::no_longer_spared(child);
    let _ = child.wait();
}

/// Whether a process ends within a time.
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

impl Turn {
    /// Waits until no anchor of an earlier process is left in this state directory. They end by themselves.
    pub(super) fn wait(state: &Path) -> Result<Self> {
        let path = state.join(LOCK);
        let machine = |error: io::Error| Error::machine(format!("locking {}", path.display()), error);
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_micros(200);
        loop {
            let file = fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(machine)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, &path) => return Ok(Self(file)),
                // It was removed by whoever had it before.
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK) if waited < TURN => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(machine(io::Error::other("another process works in this sandbox")));
                }
                Err(error) => return Err(machine(error.into())),
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Removes its file too: there will be no other anchor here.
    pub(super) fn give_up(self, state: &Path) -> Result<()> {
        let path = state.join(LOCK);
        fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))
    }
}

fn is_at(file: &fs::File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().and_then(|own| Ok(same(own, fs::metadata(path)?))).unwrap_or(false)
}

/// Waits until no anchor of an earlier process is left in a state directory: it ends by itself, and has what it mounted
/// until then. Where there was none there is nothing to wait for.
pub fn await_anchor(state: &Path) -> Result<()> {
    match state.join(LOCK).exists() {
        true => Turn::wait(state).map(drop),
        false => Ok(()),
    }
}

/// The process of the anchor that is alive in a state directory, whoever started it.
pub fn anchor_of(state: &Path) -> Option<u32> {
    let file = fs::File::open(state.join(LOCK)).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => fs::read_to_string(state.join(LOCK)).ok()?.parse().ok(),
        _ => None,
    }
}
