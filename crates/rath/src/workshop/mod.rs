//! Where sessions work: files under versions, commands in sandboxes, everything on the record.
//!
//! A [`Workshop`] has a store, the backends, and a directory for the copies that sessions work in. [`Workshop::place`]
//! says where a session works and opens nothing; the first [`exec`](Workshop::exec) opens the sandbox. Every call has
//! the version of the files before and after it. [`undo`](Workshop::undo) and [`restore`](Workshop::restore) set the
//! files back, [`apply`](Workshop::apply) brings them to the directory they came from, [`resolve`](Workshop::resolve)
//! decides conflicts of a merge.
//!
//! Forks share no directory: a fork works in a copy of its own, made from the version when it first needs it. Where the
//! backend can put layers together, a copy is an empty layer over those that others stand on too.
//!
//! ```
//! use std::sync::Arc;
//! use rath::prelude::*;
//! use rath::sandbox::{Command, Local, Registry};
//! use rath::workshop::Place;
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let home = dir.path().join("workspaces");
//! let store = Memory::new();
//! let workshop = Workshop::new(store.clone(), home, Registry::new().with(Arc::new(Local::new())));
//! let mut session = store.create(Actor::person("ada"));
//! workshop.place(&mut session, Place::empty("local")).await?;
//!
//! let done = workshop.exec(&mut session, Command::shell("echo one > file"), |_| {}).await?;
//! assert_eq!(done.changed[0].path.to_string(), "file");
//! workshop.undo(&mut session, false).await?; // the file is gone, the version that has it stays
//! workshop.restore(&mut session, done.record.point(), false).await?; // and there again
//! # Ok::<(), rath::workshop::Error>(())
//! # }).unwrap();
//! ```

mod apply;
mod desk;
mod error;
mod exec;
mod fork;
mod place;
mod prune;
mod restore;
mod setup;
mod site;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_core::files::{Name, Version};
use rath_core::store::GcGuard;
use rath_core::{SessionId, Store};
use rath_sandbox::{Limits, Registry};
use rath_workspace::{Options, Recovered, Workspace};

pub use apply::Applied;
pub(crate) use desk::Before;
pub use error::{Error, Result};
pub use exec::Done;
pub use place::{Place, PlaceSession};
pub use prune::{Kept, Prune, Pruned, SiteInfo};
pub use restore::{Back, Decision};

use site::Site;

/// What isolated sandboxes show, hide and allow. The store is always hidden.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// The user's home, of which only tools are shown.
    pub home: Option<PathBuf>,
    /// What is shown besides the system, to read.
    pub readable: Vec<PathBuf>,
    /// What is hidden, wherever it lies.
    pub hidden: Vec<PathBuf>,
    /// What commands may take.
    pub limits: Limits,
}

/// Opens the places where sessions work.
pub struct Workshop {
    store: Arc<dyn Store>,
    backends: Registry,
    /// Where copies, indexes and journals are kept.
    home: PathBuf,
    options: Options,
    /// What commands find in their environment.
    env: Vec<(OsString, OsString)>,
    confinement: Confinement,
    /// Sites that are open in this process, by session.
    open: Mutex<HashMap<SessionId, Site>>,
    /// Who is told what happened besides what was asked for.
    told: Option<Box<dyn Fn(String) + Send + Sync>>,
    /// Versions are saved here that no record names yet.
    gc_guard: OnceLock<GcGuard>,
}

impl Workshop {
    /// A workshop on `store` that keeps what it needs in `home`.
    pub fn new(store: Arc<dyn Store>, home: impl Into<PathBuf>, backends: Registry) -> Self {
        Self {
            store,
            backends,
            home: home.into(),
            options: Options::default(),
            env: Vec::new(),
            confinement: Confinement::default(),
            open: Mutex::default(),
            told: None,
            gc_guard: OnceLock::new(),
        }
    }

    /// Sets ignore rules, budgets and guards.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets what commands find in their environment. Nothing else of this process's is handed on.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(OsString, OsString)>) -> Self {
        self.env = env;
        self
    }

    /// Sets what isolated sandboxes show, hide and allow.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// Tells `told` what happens besides what is asked for: that an interrupted restore was finished.
    #[must_use]
    pub fn telling(mut self, told: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.told = Some(Box::new(told));
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Where copies, indexes and journals are kept.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Keeps collections of the store away for as long as this workshop lives.
    fn hold_off(&self) -> Result<()> {
        if self.gc_guard.get().is_none() {
            let _ = self.gc_guard.set(self.store.gc_guard()?);
        }
        Ok(())
    }

    /// Opens a directory, or the layers that `state` knows of in its place, and says so when that finished what an
    /// earlier process had begun. What the versions `tracked` have stays versioned whatever the ignore rules say: those
    /// are the versions that the files there stem from.
    fn open_workspace(
        &self,
        directory: &Path,
        state: &Path,
        options: &Options,
        tracked: &[Option<&Version>],
    ) -> Result<(Workspace, Option<Recovered>)> {
        let (mut workspace, recovered) = match Workspace::is_layered(state) {
            true => Workspace::open_layered(self.store.clone(), &self.home, state, options)?,
            false => Workspace::open(self.store.clone(), directory, state, options)?,
        };
        workspace.track(tracked.iter().copied().flatten().cloned().collect());
        if let (Some(recovered), Some(told)) = (&recovered, &self.told) {
            let changed = workspace.changes(&recovered.from, &recovered.version)?.len();
            let kept = recovered.kept.len();
            told(format!(
                "in {} a restore had been interrupted; now {changed} paths differ from before it, {kept} were left alone",
                workspace.directory().display()
            ));
        }
        Ok((workspace, recovered))
    }

    /// How a workspace is opened whose files come from `origin`: hidden paths are hidden in copies too.
    fn options_of(&self, origin: Option<&Name>) -> Options {
        let hidden = origin.map(|origin| hidden_in(&site::path_of(origin), &self.confinement.hidden));
        Options { hidden: hidden.unwrap_or_default(), ..self.options.clone() }
    }

    /// Lets go of the directory that a session works in; the sandbox stays.
    pub fn leave(&self, session: SessionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
}

/// Those of `hidden` that lie below a directory, relative to it: as they were named, and where they lead.
fn hidden_in(directory: &Path, hidden: &[PathBuf]) -> Vec<Name> {
    let named = hidden.iter().filter_map(|path| std::path::absolute(path).ok());
    let real = hidden.iter().filter_map(|path| path.canonicalize().ok());
    let inside = |path: PathBuf| path.strip_prefix(directory).ok().map(site::name_of);
    let mut found: Vec<Name> =
        named.chain(real).filter_map(inside).filter(|name| !name.as_bytes().is_empty()).collect();
    found.sort();
    found.dedup();
    found
}
