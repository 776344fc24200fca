//! The isolated backend: commands see the system to read, their workspace to write, and nothing else of the machine.
//!
//! ```text
//!  rath ──── socket ──── anchor            a process in namespaces of its own (user, mount, network, ipc, uts,
//!    │                     │               cgroup), with a root that has only what is shown
//!    │                   keeper            one a command: the first process of a PID namespace
//!    └──── socket ─────────┤
//!                       command            Landlock, no capabilities, no new privileges, seccomp
//! ```
//!
//! One anchor serves all commands of a sandbox, so that starting one costs little more than a fork. It ends with the
//! process that started it, however that one ends, and takes every mount and every process along.
//!
//! Where the machine refuses user namespaces, commands run behind Landlock and seccomp alone ([`Tier::Landlock`]), and
//! the record says what that cannot do. Where it has neither, opening fails: nothing ever runs unisolated.

mod anchor;
mod bound;
mod cgroup;
mod disk;
mod exec;
mod inside;
mod place;
mod repository;
mod tier;
mod tools;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rath_core::store::BoxFuture;

use crate::backend::{Backend, Capabilities, Identity, Overlay, Spec};
use crate::command::Command;
use crate::error::{Error, Result, Why};
use crate::files::{self, Root};
use crate::host::MARKER;
use crate::limits::Limits;
use crate::program::DEFAULT_PATH;
use crate::running::Running;
use crate::sandbox::{Closed, Contents, Entry, Part, Sandbox, Status, Written};
use crate::state::{Agreed, State};
use anchor::{Anchor, NoAnchor, Turn};
use wire::{Layers, Raw, Setup};

pub use anchor::{anchor_of, await_anchor};
pub use tier::{Refusal, Tier};

const NAME: &str = "local";

/// Opens isolated sandboxes on this machine.
#[derive(Clone, Debug, Default)]
pub struct Local {
    only: Option<Tier>,
    diagnosis: Arc<OnceLock<Diagnosis>>,
}

/// What this machine can do, found by trying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The tier that sandboxes get; `None` when none can be opened.
    pub tier: Option<Tier>,
    /// What was refused on the way to it.
    pub refusals: Vec<Refusal>,
    /// What the tier does not enforce here.
    pub not_enforced: Vec<String>,
}

/// The anchor that all values of one sandbox share. None, or one that was ended, while it rests; locked while one is
/// started.
type Slot = Mutex<Option<Arc<Anchor>>>;

/// Those of this process, by the state directory of their sandbox.
static SLOTS: Mutex<BTreeMap<PathBuf, Weak<Slot>>> = Mutex::new(BTreeMap::new());

impl Local {
    /// The backend. Nothing is tried yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens sandboxes of this tier only.
    #[must_use]
    pub fn only(tier: Tier) -> Self {
        Self { only: Some(tier), ..Self::default() }
    }

    /// Finds out what this machine can do. It is tried once.
    pub fn diagnose(&self) -> &Diagnosis {
        self.diagnosis.get_or_init(|| {
            let mut diagnosis = Diagnosis::default();
            for tier in self.tiers() {
                match probe(tier, &std::env::temp_dir(), false) {
                    Ok(not_enforced) => {
                        return Diagnosis { tier: Some(tier), not_enforced, ..diagnosis };
                    }
                    Err(NoAnchor::Refused(refusal)) => diagnosis.refusals.push(refusal),
                    Err(NoAnchor::Failed(error)) => diagnosis.refusals.push(Refusal {
                        tier,
                        doing: "trying it".into(),
                        error: error.to_string(),
                        advice: None,
                    }),
                }
            }
            diagnosis
        })
    }

    fn tiers(&self) -> Vec<Tier> {
        self.only.map_or_else(|| vec![Tier::Ns, Tier::Landlock], |tier| vec![tier])
    }

    /// Starts the best anchor that the machine allows. A refusal counts only if it is the machine's way with all
    /// sandboxes: what is wrong with this one alone is an error.
    fn anchor(&self, spec: &Spec, turn: &Turn) -> Result<Anchor> {
        let known = self.diagnosis.get().map(|diagnosis| diagnosis.tier);
        let first = known.unwrap_or(self.only.or(Some(Tier::Ns)));
        let refused = match first.map(|tier| start(tier, spec, turn)) {
            Some(Ok(anchor)) => return Ok(anchor),
            Some(Err(NoAnchor::Failed(error))) => return Err(error),
            Some(Err(NoAnchor::Refused(refusal))) => Some(refusal),
            None => None,
        };
        let diagnosis = self.diagnose();
        match (diagnosis.tier, refused) {
            (Some(tier), Some(refusal)) if Some(tier) == first => {
                Err(Error::machine(refusal.doing, format!("{} (tier {})", refusal.error, refusal.tier)))
            }
            (Some(tier), _) => start(tier, spec, turn).map_err(|error| match error {
                NoAnchor::Failed(error) => error,
                NoAnchor::Refused(refusal) => Error::machine(refusal.doing, refusal.error),
            }),
            (None, _) => {
                Err(Error::NoIsolation { refusals: diagnosis.refusals.iter().map(Refusal::to_string).collect() })
            }
        }
    }
}

/// Starts an anchor of a tier.
fn start(tier: Tier, spec: &Spec, turn: &Turn) -> Result<Anchor, NoAnchor> {
    if tier == Tier::Landlock && spec.overlay.is_some() {
        return Err(Error::Incapable { name: NAME.into(), missing: vec!["copy on write"] }.into());
    }
    let raw = |path: &Path| Raw::from(path);
    let layers = |overlay: &Overlay| Layers {
        lowers: overlay.lowers.iter().map(|lower| raw(lower)).collect(),
        upper: raw(&overlay.upper),
        work: raw(&overlay.work),
    };
    let setup = Setup {
        tier,
        probe: false,
        appears_at: raw(&place::of_workspace(spec)),
        directory: raw(&spec.directory),
        overlay: spec.overlay.as_ref().map(layers),
        state: raw(&spec.state),
        readable: tools::of(spec.home.as_deref()).iter().chain(&spec.readable).map(|path| raw(path)).collect(),
        home: spec.home.as_deref().map(raw),
        hidden: spec.hidden.iter().map(|path| raw(path)).collect(),
        sockets: Vec::new(),
        limits: spec.limits.clone(),
    };
    make_private(&spec.state)?;
    let watched = spec.overlay.as_ref().map_or(&spec.directory, |overlay| &overlay.upper);
    Anchor::start(setup, watched, turn)
}

/// The spec with paths that mean the same wherever this process goes, and without links.
fn settled(spec: Spec) -> Spec {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| absolute(path));
    let directory = canonical(&spec.directory);
    let hidden = |path: &PathBuf| match (path.canonicalize(), path.strip_prefix(&spec.directory)) {
        (Ok(path), _) => path,
        // Only a layer may have it.
        (Err(_), Ok(inside)) => directory.join(inside),
        (Err(_), Err(_)) => absolute(path),
    };
    Spec {
        // A store in the workspace is not the commands' affair, whoever's it is.
        hidden: spec.hidden.iter().map(hidden).chain([directory.join(".rath")]).collect(),
        state: canonical(&spec.state),
        home: spec.home.as_deref().map(canonical).filter(|home| place::is_for_home(home)),
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

/// The private directories of a sandbox, beside what is remembered of it.
fn make_private(state: &Path) -> Result<()> {
    for name in ["root", "tmp", "home"] {
        let path = state.join(name);
        let machine = |error: io::Error| Error::machine(format!("making {}", path.display()), error);
        fs::create_dir_all(&path).map_err(machine)?;
    }
    Ok(())
}

/// Removes them. Nothing of the sandbox runs.
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

/// Tries a tier in a directory of its own below `place`, with layers if asked.
fn probe(tier: Tier, place: &Path, layered: bool) -> Result<Vec<String>, NoAnchor> {
    let base = place.join(format!(".rath-probe-{}", rath_core::fresh_name()));
    let machine = |error: io::Error| NoAnchor::Failed(Error::machine(format!("making {}", base.display()), error));
    for name in ["state/root", "state/tmp", "state/home", "files", "lower", "upper", "work"] {
        fs::create_dir_all(base.join(name)).map_err(machine)?;
    }
    let raw = |name: &str| Raw::from(&*base.join(name));
    let setup = Setup {
        tier,
        probe: true,
        directory: raw("files"),
        overlay: layered.then(|| Layers { lowers: vec![raw("lower")], upper: raw("upper"), work: raw("work") }),
        appears_at: Raw::from(Path::new("/workspace")),
        state: raw("state"),
        home: None,
        readable: Vec::new(),
        hidden: Vec::new(),
        sockets: Vec::new(),
        limits: Limits::default(),
    };
    let turn = Turn::wait(&base.join("state"));
    let anchor = turn.map_err(NoAnchor::from).and_then(|turn| Anchor::start(setup, &base, &turn));
    let tried = anchor.map(|anchor| anchor.not_enforced().to_vec());
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

    fn layers_in(&self, directory: &Path) -> bool {
        self.only != Some(Tier::Landlock) && probe(Tier::Ns, directory, true).is_ok()
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let spec = settled(spec);
            check_directory(&spec)?;
            // The one before is lost, with what was private to it. Its values keep its anchor, which is no more.
            if let Some(earlier) = forget_slot(&spec.state) {
                earlier.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|anchor| anchor.end());
            }
            let turn = Turn::wait(&spec.state)?;
            let identity = State::renew(&spec.state, NAME)?;
            remove_private(&spec.state)?;
            self.sandbox(identity, spec, Some(turn))
        })
    }

    fn reopen(&self, identity: Identity, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let spec = settled(spec);
            let lost = |why: String| Error::Lost { id: identity.id.clone(), why };
            if let Some(why) = State::contradicts(&spec.state, NAME, &identity)? {
                return Err(lost(why));
            }
            check_directory(&spec).map_err(|error| lost(error.to_string()))?;
            self.sandbox(identity, spec, None)
        })
    }
}

fn capabilities(tier: Option<Tier>) -> Capabilities {
    Capabilities {
        isolated: true,
        network_control: false,
        copy_on_write: tier != Some(Tier::Landlock),
        background: true,
    }
}

fn check_directory(spec: &Spec) -> Result<()> {
    let directory = spec.overlay.as_ref().map_or(&spec.directory, |overlay| &overlay.upper);
    let opened = Root::open(directory);
    opened.map(drop).map_err(|error| Error::machine(format!("opening the workspace {}", directory.display()), error))
}

impl Local {
    /// A sandbox with its anchor: isolation that cannot be had is noticed when it is opened, not when it is used.
    fn sandbox(&self, identity: Identity, spec: Spec, turn: Option<Turn>) -> Result<Arc<dyn Sandbox>> {
        let slot = slot(&spec.state);
        let (agreed, closed) = (Agreed::default(), AtomicBool::new(false));
        let sandbox = LocalSandbox { local: self.clone(), identity, agreed, spec, slot, closed };
        sandbox.anchor_from(turn)?;
        Ok(Arc::new(sandbox))
    }
}

/// Where the anchor of a state directory is.
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
    agreed: Agreed,
    spec: Spec,
    slot: Arc<Slot>,
    closed: AtomicBool,
}

impl LocalSandbox {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Anchor>>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The anchor, started if the sandbox rests.
    fn anchor(&self) -> Result<Arc<Anchor>> {
        self.anchor_from(None)
    }

    /// The same for whoever has waited for its turn already.
    fn anchor_from(&self, turn: Option<Turn>) -> Result<Arc<Anchor>> {
        let mut slot = self.slot();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed { id: self.identity.id.clone() });
        }
        if let Some(anchor) = slot.as_ref().filter(|anchor| !anchor.has_ended()) {
            return match anchor.is_alive() {
                true => Ok(anchor.clone()),
                false => Err(self.lost("its anchor was killed".into())),
            };
        }
        if let Some(why) = State::contradicts(&self.spec.state, NAME, &self.identity)? {
            return Err(self.lost(why));
        }
        let turn = turn.map_or_else(|| Turn::wait(&self.spec.state), Ok)?;
        let anchor = Arc::new(self.local.anchor(&self.spec, &turn)?);
        *slot = Some(anchor.clone());
        Ok(anchor)
    }

    fn lost(&self, why: String) -> Error {
        Error::Lost { id: self.identity.id.clone(), why }
    }

    /// Does something with the files. What fails because the workspace is gone is told as that.
    fn with_files<T>(&self, path: &Path, act: impl FnOnce(&Root) -> files::Outcome<T>) -> Result<T> {
        let anchor = self.anchor()?;
        act(anchor.root()).map_err(|fault| match (fault, anchor.root().gone()) {
            (_, Some(why)) => self.lost(why),
            (files::Fault::Path(why), None) => Error::path(path, why),
            (files::Fault::Machine(error), None) => Error::machine(path.display().to_string(), error),
        })
    }

    /// What every command begins with.
    fn environment(&self, anchor: &Anchor, mark: &str) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), DEFAULT_PATH.into())];
        let (home, tmp) = match anchor.tier() {
            Tier::Ns => (self.spec.home.clone().unwrap_or_else(|| "/tmp".into()), None),
            Tier::Landlock => (self.spec.state.join("home"), Some(self.spec.state.join("tmp"))),
        };
        env.push(("HOME".into(), home.into()));
        env.extend(tmp.map(|tmp| ("TMPDIR".into(), tmp.into())));
        // Those two are the sandbox's own, whatever the user's are.
        for (name, value) in self.spec.env.iter().filter(|(name, _)| name != "HOME" && name != "TMPDIR") {
            env.retain(|(known, _)| known != name);
            env.push((name.clone(), value.clone()));
        }
        env.push((MARKER.into(), mark.into()));
        env
    }
}

impl Sandbox for LocalSandbox {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        let anchor = self.slot();
        capabilities(anchor.as_ref().map(|anchor| anchor.tier()).or(self.local.only))
    }

    fn isolation(&self) -> Option<String> {
        let anchor = self.slot();
        anchor.as_ref().map(|anchor| anchor.tier().to_string())
    }

    fn not_enforced(&self) -> Vec<String> {
        let anchor = self.slot();
        anchor.as_ref().map(|anchor| anchor.not_enforced().to_vec()).unwrap_or_default()
    }

    fn covered(&self) -> Vec<PathBuf> {
        let anchor = self.slot();
        anchor.as_ref().map(|anchor| anchor.covered_endpoints().to_vec()).unwrap_or_default()
    }

    fn exec(&self, mut command: Command) -> BoxFuture<'_, Result<Running>> {
        Box::pin(async move {
            let mut anchor = self.anchor()?;
            if !anchor.covers_still() && anchor.running() == 0 {
                anchor.end();
                anchor = self.anchor()?;
            }
            if let Some(why) = anchor.root().gone() {
                return Err(self.lost(why));
            }
            let cwd = command.cwd.clone();
            self.with_files(&cwd, |root| root.directory(&cwd)).map_err(|error| match error {
                Error::BadPath { path, why: why @ (Why::Missing | Why::NotADirectory) } => {
                    Error::CannotStart { tried: format!("a command in {}", path.display()), why: why.to_string() }
                }
                other => other,
            })?;
            command.timeout = command.timeout.or(self.spec.limits.wall_time.filter(|_| command.terminal.is_none()));
            let mark = format!("{}.{}", self.identity.id, rath_core::fresh_name());
            let (env, sandbox) = (self.environment(&anchor, &mark), self.identity.id.clone());
            let start = exec::Start { command, env, sandbox, mark, anchor };
            let (running, started) = exec::start(start)?;
            started.await.map_err(|error| Error::machine("starting a command", error))??;
            Ok(running)
        })
    }

    fn read<'a>(&'a self, path: &'a Path, part: Part) -> BoxFuture<'a, Result<Contents>> {
        Box::pin(async move { self.with_files(path, |root| files::read(root, path, part)) })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<Written>> {
        Box::pin(async move { self.with_files(path, |root| files::write(root, path, bytes, mode)) })
    }

    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move { self.with_files(path, |root| files::list(root, path)) })
    }

    fn real<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move { self.with_files(path, |root| files::real(root, path)) })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with_files(path, |root| files::remove(root, path)) })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        Box::pin(async move {
            if self.closed.load(Ordering::SeqCst) {
                return Ok(Status::Closed);
            }
            if let Some(why) = self.agreed.contradicts(&self.spec.state, NAME, &self.identity)? {
                return Ok(Status::Lost { why });
            }
            let anchor = self.slot().clone().filter(|anchor| !anchor.has_ended());
            Ok(match anchor {
                None => Status::Open { running: 0 },
                Some(anchor) if !anchor.is_alive() => Status::Lost { why: "its anchor was killed".into() },
                Some(anchor) => match anchor.root().gone() {
                    Some(why) => Status::Lost { why },
                    None => Status::Open { running: anchor.running() },
                },
            })
        })
    }

    fn rest(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.stop().await;
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<Closed>> {
        Box::pin(async move {
            self.closed.store(true, Ordering::SeqCst);
            let stopped = self.stop().await;
            let is_ours = || Ok(State::contradicts(&self.spec.state, NAME, &self.identity)?.is_none());
            if is_ours()? {
                let turn = Turn::wait(&self.spec.state)?;
                if is_ours()? {
                    remove_private(&self.spec.state)?;
                    State::forget(&self.spec.state)?;
                    turn.give_up(&self.spec.state)?;
                }
            }
            Ok(Closed { stopped })
        })
    }
}

impl LocalSandbox {
    /// Stops its commands and ends its anchor. How many commands there were.
    async fn stop(&self) -> usize {
        let anchor = self.slot().clone();
        let Some(anchor) = anchor else { return 0 };
        let stopping = anchor.stop_all();
        let stopped = stopping.len();
        for command in stopping {
            // The other end is dropped when the command is over.
            let _ = command.await;
        }
        anchor.end();
        // Not before: whoever comes meanwhile must not start another one beside it.
        self.slot().take_if(|own| Arc::ptr_eq(own, &anchor));
        stopped
    }
}
