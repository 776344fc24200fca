//! The isolated backend: commands can read the system directories, read and write their workspace, and access nothing
//! else of the machine.
//!
//! ```text
//!  rath ──── socket ──── supervisor        one for each sandbox: a process in its own namespaces (user, mount,
//!    │                     │               network, ipc, uts, cgroup) with its own root directory
//!    │                command init         one for each command: the first process of a PID namespace
//!    └──── socket ─────────┤
//!                       command            Landlock, no capabilities, no new privileges, seccomp
//! ```
//!
//! One supervisor serves all commands of a sandbox, so starting a command costs little more than a fork. The supervisor
//! ends when the process that started it ends, even after SIGKILL. All mounts and processes of the sandbox end with it.
//!
//! If the machine does not allow user namespaces, commands are restricted by Landlock and seccomp only
//! ([`IsolationLevel::Landlock`]), and the sandbox's record lists what that does not enforce. If it has neither,
//! opening a sandbox fails: commands never run without isolation.

mod bound_sockets;
mod cgroup;
mod disk;
mod exec;
mod home_tools;
mod inside;
mod isolation_level;
mod mount_point;
mod repository;
mod supervisor;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rath_core::store::BoxFuture;

use crate::backend::{Backend, Capabilities, Identity, Overlay, SandboxSpec};
use crate::command::Command;
use crate::environment;
use crate::error::{Error, PathError, Result};
use crate::files::{self, Root};
use crate::limits::Limits;
use crate::running::Running;
use crate::sandbox::{ByteRange, CloseReport, DirEntry, FileContent, Sandbox, SandboxStatus, WriteOutcome};
use crate::sandbox_state::{CachedIdentity, SandboxState};
use supervisor::{StartError, StateLock, Supervisor};
use wire::{Layers, RawBytes, Setup};

pub use isolation_level::{IsolationLevel, Refusal};
pub use supervisor::{await_supervisor, supervisor_pid};

const NAME: &str = "local";

/// Opens isolated sandboxes on this machine.
#[derive(Clone, Debug, Default)]
pub struct Local {
    only: Option<IsolationLevel>,
    diagnosis: Arc<OnceLock<Diagnosis>>,
}

/// The isolation that this machine supports, found out by trying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The isolation level of sandboxes; `None` if none can be opened.
    pub level: Option<IsolationLevel>,
    /// Why higher levels are not available.
    pub refusals: Vec<Refusal>,
    /// What the level does not enforce on this machine.
    pub not_enforced: Vec<String>,
}

/// The supervisor that all values of one sandbox share. `None`, or one that has ended, while the sandbox is suspended.
/// Locked while a supervisor is started.
type Slot = Mutex<Option<Arc<Supervisor>>>;

/// The slots of this process, by the state directory of their sandbox.
static SLOTS: Mutex<BTreeMap<PathBuf, Weak<Slot>>> = Mutex::new(BTreeMap::new());

impl Local {
    /// Creates the backend. Does not check yet what the machine supports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a backend that opens sandboxes of this level only.
    #[must_use]
    pub fn only(level: IsolationLevel) -> Self {
        Self { only: Some(level), ..Self::default() }
    }

    /// Finds out which isolation this machine supports. The result is cached.
    pub fn diagnose(&self) -> &Diagnosis {
        self.diagnosis.get_or_init(|| {
            let mut diagnosis = Diagnosis::default();
            for level in self.levels() {
                match probe(level, &std::env::temp_dir(), false) {
                    Ok(not_enforced) => {
                        return Diagnosis { level: Some(level), not_enforced, ..diagnosis };
                    }
                    Err(StartError::Refused(refusal)) => diagnosis.refusals.push(refusal),
                    Err(StartError::Failed(error)) => diagnosis.refusals.push(Refusal {
                        level,
                        doing: "trying it".into(),
                        error: error.to_string(),
                        advice: None,
                    }),
                }
            }
            diagnosis
        })
    }

    fn levels(&self) -> Vec<IsolationLevel> {
        self.only.map_or_else(|| vec![IsolationLevel::Ns, IsolationLevel::Landlock], |level| vec![level])
    }

    /// Starts a supervisor with the highest level that the machine supports. If a level fails for this sandbox although
    /// the machine supports it, that is an error, not a reason to use a lower level.
    fn supervisor(&self, spec: &SandboxSpec, state_lock: &StateLock) -> Result<Supervisor> {
        let known = self.diagnosis.get().map(|diagnosis| diagnosis.level);
        let first = known.unwrap_or(self.only.or(Some(IsolationLevel::Ns)));
        let refused = match first.map(|level| start(level, spec, state_lock)) {
            Some(Ok(supervisor)) => return Ok(supervisor),
            Some(Err(StartError::Failed(error))) => return Err(error),
            Some(Err(StartError::Refused(refusal))) => Some(refusal),
            None => None,
        };
        let diagnosis = self.diagnose();
        match (diagnosis.level, refused) {
            (Some(level), Some(refusal)) if Some(level) == first => {
                Err(Error::machine(refusal.doing, format!("{} (isolation level {})", refusal.error, refusal.level)))
            }
            (Some(level), _) => start(level, spec, state_lock).map_err(|error| match error {
                StartError::Failed(error) => error,
                StartError::Refused(refusal) => Error::machine(refusal.doing, refusal.error),
            }),
            (None, _) => {
                Err(Error::NoIsolation { refusals: diagnosis.refusals.iter().map(Refusal::to_string).collect() })
            }
        }
    }
}

/// Starts a supervisor with an isolation level.
fn start(level: IsolationLevel, spec: &SandboxSpec, state_lock: &StateLock) -> Result<Supervisor, StartError> {
    if level == IsolationLevel::Landlock && spec.overlay.is_some() {
        return Err(Error::Incapable { name: NAME.into(), missing: vec!["copy on write"] }.into());
    }
    let raw = |path: &Path| RawBytes::from(path);
    let layers = |overlay: &Overlay| Layers {
        lowers: overlay.lowers.iter().map(|lower| raw(lower)).collect(),
        upper: raw(&overlay.upper),
        work: raw(&overlay.work),
    };
    let setup = Setup {
        level,
        probe: false,
        mount_path: raw(&mount_point::for_workspace(spec)),
        directory: raw(&spec.directory),
        overlay: spec.overlay.as_ref().map(layers),
        state: raw(&spec.state),
        readable: home_tools::existing(spec.home.as_deref())
            .iter()
            .chain(&spec.readable)
            .map(|path| raw(path))
            .collect(),
        home: spec.home.as_deref().map(raw),
        hidden: spec.hidden.iter().map(|path| raw(path)).collect(),
        sockets: Vec::new(),
        limits: spec.limits.clone(),
    };
    make_private(&spec.state)?;
    let watched = spec.overlay.as_ref().map_or(&spec.directory, |overlay| &overlay.upper);
    Supervisor::start(setup, watched, state_lock)
}

/// Makes the paths of a spec absolute and resolves links, so that they do not depend on the working directory.
fn normalize(spec: SandboxSpec) -> SandboxSpec {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| absolute(path));
    let directory = canonical(&spec.directory);
    let hidden = |path: &PathBuf| match (path.canonicalize(), path.strip_prefix(&spec.directory)) {
        (Ok(path), _) => path,
        // It does not exist in the directory, but a layer may have it.
        (Err(_), Ok(inside)) => directory.join(inside),
        (Err(_), Err(_)) => absolute(path),
    };
    SandboxSpec {
        // A store in the workspace is always hidden from commands.
        hidden: spec.hidden.iter().map(hidden).chain([directory.join(".rath")]).collect(),
        state: canonical(&spec.state),
        home: spec.home.as_deref().map(canonical).filter(|home| mount_point::is_replaceable_home(home)),
        readable: spec.readable.iter().map(|path| absolute(path)).collect(),
        overlay: spec.overlay.map(|overlay| Overlay {
            lowers: overlay.lowers.iter().map(|lower| canonical(lower)).collect(),
            upper: canonical(&overlay.upper),
            work: canonical(&overlay.work),
        }),
        directory,
        ..spec
    }
}

/// Creates the private directories of a sandbox in its state directory.
fn make_private(state: &Path) -> Result<()> {
    for name in ["root", "tmp", "home"] {
        let path = state.join(name);
        let machine = |error: io::Error| Error::machine(format!("making {}", path.display()), error);
        fs::create_dir_all(&path).map_err(machine)?;
    }
    Ok(())
}

/// Removes the private directories. No process of the sandbox may be running.
fn remove_private(state: &Path) -> Result<()> {
    for name in ["root", "tmp", "home"] {
        let path = state.join(name);
        match files::tree::remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::machine(format!("removing {}", path.display()), error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Tries an isolation level in a temporary directory below `place`, with layers if `layered`. Returns what it does not
/// enforce.
fn probe(level: IsolationLevel, place: &Path, layered: bool) -> Result<Vec<String>, StartError> {
    let base = place.join(format!(".rath-probe-{}", rath_core::fresh_name()));
    let machine = |error: io::Error| StartError::Failed(Error::machine(format!("making {}", base.display()), error));
    for name in ["state/root", "state/tmp", "state/home", "files", "lower", "upper", "work"] {
        fs::create_dir_all(base.join(name)).map_err(machine)?;
    }
    let raw = |name: &str| RawBytes::from(&*base.join(name));
    let setup = Setup {
        level,
        probe: true,
        directory: raw("files"),
        overlay: layered.then(|| Layers { lowers: vec![raw("lower")], upper: raw("upper"), work: raw("work") }),
        mount_path: RawBytes::from(Path::new("/workspace")),
        state: raw("state"),
        home: None,
        readable: Vec::new(),
        hidden: Vec::new(),
        sockets: Vec::new(),
        limits: Limits::default(),
    };
    let state_lock = StateLock::wait(&base.join("state"));
    let supervisor =
        state_lock.map_err(StartError::from).and_then(|state_lock| Supervisor::start(setup, &base, &state_lock));
    let tried = supervisor.map(|supervisor| supervisor.not_enforced().to_vec());
    let _ = files::tree::remove(&base);
    tried
}

impl Backend for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.only)
    }

    fn supports_layers_in(&self, directory: &Path) -> bool {
        self.only != Some(IsolationLevel::Landlock) && probe(IsolationLevel::Ns, directory, true).is_ok()
    }

    fn open(&self, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let spec = normalize(spec);
            check_directory(&spec)?;
            // An earlier sandbox with this state directory is lost: end its supervisor. Values of it keep the ended
            // supervisor, so their operations fail.
            if let Some(earlier) = forget_slot(&spec.state) {
                earlier.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|supervisor| supervisor.end());
            }
            let state_lock = StateLock::wait(&spec.state)?;
            let identity = SandboxState::next_generation(&spec.state, NAME)?;
            remove_private(&spec.state)?;
            self.sandbox(identity, spec, Some(state_lock))
        })
    }

    fn reopen(&self, identity: Identity, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let spec = normalize(spec);
            let lost = |why: String| Error::Lost { id: identity.id.clone(), why };
            if let Some(why) = SandboxState::mismatch(&spec.state, NAME, &identity)? {
                return Err(lost(why));
            }
            check_directory(&spec).map_err(|error| lost(error.to_string()))?;
            self.sandbox(identity, spec, None)
        })
    }
}

fn capabilities(level: Option<IsolationLevel>) -> Capabilities {
    Capabilities {
        isolated: true,
        network_control: false,
        copy_on_write: level != Some(IsolationLevel::Landlock),
        background: true,
    }
}

fn check_directory(spec: &SandboxSpec) -> Result<()> {
    let directory = spec.overlay.as_ref().map_or(&spec.directory, |overlay| &overlay.upper);
    let opened = Root::open(directory);
    opened.map(drop).map_err(|error| Error::machine(format!("opening the workspace {}", directory.display()), error))
}

impl Local {
    /// Creates the sandbox and starts its supervisor, so that missing isolation is reported by opening the sandbox and
    /// not by its first use.
    fn sandbox(
        &self,
        identity: Identity,
        spec: SandboxSpec,
        state_lock: Option<StateLock>,
    ) -> Result<Arc<dyn Sandbox>> {
        let slot = slot(&spec.state);
        let (cached_identity, closed) = (CachedIdentity::default(), AtomicBool::new(false));
        let sandbox = LocalSandbox { local: self.clone(), identity, cached_identity, spec, slot, closed };
        sandbox.supervisor_with_lock(state_lock)?;
        Ok(Arc::new(sandbox))
    }
}

/// The slot of a state directory.
fn slot(state: &Path) -> Arc<Slot> {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = slots.get(state).and_then(Weak::upgrade) {
        return slot;
    }
    slots.retain(|_, slot| slot.strong_count() > 0);
    let slot = Arc::default();
    slots.insert(state.to_owned(), Arc::downgrade(&slot));
    slot
}

fn forget_slot(state: &Path) -> Option<Arc<Slot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner).remove(state)?.upgrade()
}

struct LocalSandbox {
    local: Local,
    identity: Identity,
    cached_identity: CachedIdentity,
    spec: SandboxSpec,
    slot: Arc<Slot>,
    closed: AtomicBool,
}

impl LocalSandbox {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Supervisor>>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The supervisor. Starts one if the sandbox is suspended.
    fn supervisor(&self) -> Result<Arc<Supervisor>> {
        self.supervisor_with_lock(None)
    }

    /// Like [`supervisor`](Self::supervisor), with a lock on the state directory that was taken already.
    fn supervisor_with_lock(&self, state_lock: Option<StateLock>) -> Result<Arc<Supervisor>> {
        let mut slot = self.slot();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed { id: self.identity.id.clone() });
        }
        if let Some(supervisor) = slot.as_ref().filter(|supervisor| !supervisor.has_ended()) {
            return match supervisor.is_alive() {
                true => Ok(supervisor.clone()),
                false => Err(self.lost("its supervisor was killed".into())),
            };
        }
        if let Some(why) = SandboxState::mismatch(&self.spec.state, NAME, &self.identity)? {
            return Err(self.lost(why));
        }
        let state_lock = state_lock.map_or_else(|| StateLock::wait(&self.spec.state), Ok)?;
        let supervisor = Arc::new(self.local.supervisor(&self.spec, &state_lock)?);
        *slot = Some(supervisor.clone());
        Ok(supervisor)
    }

    fn lost(&self, why: String) -> Error {
        Error::Lost { id: self.identity.id.clone(), why }
    }

    /// Runs a file operation. If it fails and the workspace does not exist any more, returns [`Error::Lost`].
    fn with_files<T>(&self, path: &Path, act: impl FnOnce(&Root) -> files::FileResult<T>) -> Result<T> {
        let supervisor = self.supervisor()?;
        act(supervisor.root()).map_err(|fault| match (fault, supervisor.root().missing_reason()) {
            (_, Some(why)) => self.lost(why),
            (files::FileError::Path(why), None) => Error::path(path, why),
            (files::FileError::Machine(error), None) => Error::machine(path.display().to_string(), error),
        })
    }

    /// The variables of the sandbox, before those of a command.
    fn environment(&self, supervisor: &Supervisor, mark: &str) -> Vec<(OsString, OsString)> {
        let (home, tmp) = match supervisor.level() {
            IsolationLevel::Ns => (self.spec.home.clone().unwrap_or_else(|| "/tmp".into()), None),
            IsolationLevel::Landlock => (self.spec.state.join("home"), Some(self.spec.state.join("tmp"))),
        };
        environment::of_isolated_sandbox(&self.spec.env, home, tmp, mark)
    }
}

impl Sandbox for LocalSandbox {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        let supervisor = self.slot();
        capabilities(supervisor.as_ref().map(|supervisor| supervisor.level()).or(self.local.only))
    }

    fn isolation(&self) -> Option<String> {
        let supervisor = self.slot();
        supervisor.as_ref().map(|supervisor| supervisor.level().to_string())
    }

    fn not_enforced(&self) -> Vec<String> {
        let supervisor = self.slot();
        supervisor.as_ref().map(|supervisor| supervisor.not_enforced().to_vec()).unwrap_or_default()
    }

    fn covered(&self) -> Vec<PathBuf> {
        let supervisor = self.slot();
        supervisor.as_ref().map(|supervisor| supervisor.covered_endpoints().to_vec()).unwrap_or_default()
    }

    fn exec(&self, mut command: Command) -> BoxFuture<'_, Result<Running>> {
        Box::pin(async move {
            let mut supervisor = self.supervisor()?;
            if !supervisor.covers_are_intact() && supervisor.running() == 0 {
                supervisor.end();
                supervisor = self.supervisor()?;
            }
            if let Some(why) = supervisor.root().missing_reason() {
                return Err(self.lost(why));
            }
            let cwd = command.cwd.clone();
            self.with_files(&cwd, |root| root.directory(&cwd)).map_err(|error| match error {
                Error::BadPath { path, why: why @ (PathError::Missing | PathError::NotADirectory) } => {
                    Error::CannotStart { tried: format!("a command in {}", path.display()), why: why.to_string() }
                }
                other => other,
            })?;
            command.timeout = command.timeout.or(self.spec.limits.wall_time.filter(|_| command.terminal.is_none()));
            let mark = format!("{}.{}", self.identity.id, rath_core::fresh_name());
            let (env, sandbox) = (self.environment(&supervisor, &mark), self.identity.id.clone());
            let start = exec::Start { command, env, sandbox, mark, supervisor };
            let (running, started) = exec::start(start)?;
            started.await.map_err(|error| Error::machine("starting a command", error))??;
            Ok(running)
        })
    }

    fn read<'a>(&'a self, path: &'a Path, part: ByteRange) -> BoxFuture<'a, Result<FileContent>> {
        Box::pin(async move { self.with_files(path, |root| files::read(root, path, part)) })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<WriteOutcome>> {
        Box::pin(async move { self.with_files(path, |root| files::write(root, path, bytes, mode)) })
    }

    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<DirEntry>>> {
        Box::pin(async move { self.with_files(path, |root| files::list(root, path)) })
    }

    fn real_path<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move { self.with_files(path, |root| files::real_path(root, path)) })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with_files(path, |root| files::remove(root, path)) })
    }

    fn status(&self) -> BoxFuture<'_, Result<SandboxStatus>> {
        Box::pin(async move {
            if self.closed.load(Ordering::SeqCst) {
                return Ok(SandboxStatus::Closed);
            }
            if let Some(why) = self.cached_identity.mismatch(&self.spec.state, NAME, &self.identity)? {
                return Ok(SandboxStatus::Lost { why });
            }
            let supervisor = self.slot().clone().filter(|supervisor| !supervisor.has_ended());
            Ok(match supervisor {
                None => SandboxStatus::Open { running: 0 },
                Some(supervisor) if !supervisor.is_alive() => {
                    SandboxStatus::Lost { why: "its supervisor was killed".into() }
                }
                Some(supervisor) => match supervisor.root().missing_reason() {
                    Some(why) => SandboxStatus::Lost { why },
                    None => SandboxStatus::Open { running: supervisor.running() },
                },
            })
        })
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.stop().await;
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<CloseReport>> {
        Box::pin(async move {
            self.closed.store(true, Ordering::SeqCst);
            let stopped = self.stop().await;
            let is_ours = || Ok(SandboxState::mismatch(&self.spec.state, NAME, &self.identity)?.is_none());
            if is_ours()? {
                let state_lock = StateLock::wait(&self.spec.state)?;
                if is_ours()? {
                    remove_private(&self.spec.state)?;
                    SandboxState::remove(&self.spec.state)?;
                    state_lock.give_up(&self.spec.state)?;
                }
            }
            Ok(CloseReport { stopped })
        })
    }
}

impl LocalSandbox {
    /// Stops all commands and ends the supervisor. Returns the number of commands.
    async fn stop(&self) -> usize {
        let supervisor = self.slot().clone();
        let Some(supervisor) = supervisor else { return 0 };
        let stopping = supervisor.stop_all();
        let stopped = stopping.len();
        for command in stopping {
            // The sender is dropped when the command has ended, which is an error here.
            let _ = command.await;
        }
        supervisor.end();
        // Clear the slot only now, so that no second supervisor is started while this one is ending.
        self.slot().take_if(|own| Arc::ptr_eq(own, &supervisor));
        stopped
    }
}
