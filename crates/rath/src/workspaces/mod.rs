//! The files of sessions: versioned directories, commands in sandboxes, and the records of both.
//!
//! A [`Workspaces`] has a store, the backends, and a directory for the copies that sessions work in.
//! [`assign`](Workspaces::assign) sets where a session works, and opens nothing; the first [`exec`](Workspaces::exec)
//! opens the sandbox. Every call records the version of the files before and after it. [`undo`](Workspaces::undo) and
//! [`restore`](Workspaces::restore) restore earlier versions, [`apply`](Workspaces::apply) writes the changes to the
//! directory that the files came from, and [`resolve`](Workspaces::resolve) resolves merge conflicts.
//!
//! Each fork works in its own copy. The copy is made from the version when the fork first uses its files. On a backend
//! with overlay layers, the copy is an empty layer over the layers of the session that it was forked from, so it
//! contains the ignored files too.
//!
//! ```
//! use std::sync::Arc;
//! use rath::prelude::*;
//! use rath::sandbox::{Command, Local, Registry};
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let home = dir.path().join("workspaces");
//! let store = InMemory::new();
//! let workspaces = Workspaces::new(store.clone(), home, Registry::new().with(Arc::new(Local::new())));
//! let mut session = store.create(Actor::person("ada"));
//! workspaces.assign(&mut session, PlacementSpec::empty("local")).await?;
//!
//! let done = workspaces.exec(&mut session, Command::shell("echo one > file"), |_| {}).await?;
//! assert_eq!(done.changed[0].path.to_string(), "file");
//! workspaces.undo(&mut session, false).await?; // the file is deleted, the version with it stays stored
//! workspaces.restore(&mut session, done.record.point(), false).await?; // and exists again
//! # Ok::<(), rath::workspaces::Error>(())
//! # }).unwrap();
//! ```

mod agent_call;
mod apply;
mod error;
mod exec;
mod fork;
mod open_workspace;
mod placement;
mod prune;
mod restore;
mod setup;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_core::files::{FilePath, Version};
use rath_core::store::GcGuard;
use rath_core::{SessionId, Store};
use rath_sandbox::{Limits, Registry};
use rath_workspace::{Options, RecoveredRestore, Workspace};

pub(crate) use agent_call::BeforeCall;
pub use apply::ApplyReport;
pub use error::{Error, Result};
pub use exec::ExecReport;
pub use placement::{PlacementSpec, WorkspaceExt};
pub use prune::{Kept, PruneOptions, PruneReport, WorkspaceInfo};
pub use restore::{Resolution, RestoreReport};

use open_workspace::OpenWorkspace;

/// The paths that isolated sandboxes show and hide, and their limits. The store is always hidden.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// The user's home directory. Only the tools installed in it are visible.
    pub home: Option<PathBuf>,
    /// Paths that are visible read-only, in addition to the system's.
    pub readable: Vec<PathBuf>,
    /// Paths that are hidden, also inside a workspace.
    pub hidden: Vec<PathBuf>,
    /// Resource limits of commands.
    pub limits: Limits,
}

/// Assigns workspaces to sessions, opens them, and runs commands in them.
pub struct Workspaces {
    store: Arc<dyn Store>,
    backends: Registry,
    /// The directory of copies, indexes and journals.
    home: PathBuf,
    options: Options,
    /// The environment of commands.
    env: Vec<(OsString, OsString)>,
    confinement: Confinement,
    /// The workspaces that are open in this process, by session.
    open: Mutex<HashMap<SessionId, OpenWorkspace>>,
    /// Locked while layers are taken out of `open` or sealed for forks.
    sharing: tokio::sync::Mutex<()>,
    /// Receives notices about side effects, such as an interrupted restore that was finished.
    on_notice: Option<Box<dyn Fn(String) + Send + Sync>>,
    /// Prevents garbage collection: versions are saved before a record names them.
    gc_guard: OnceLock<GcGuard>,
}

impl Workspaces {
    /// Workspaces for the sessions of `store`, with their copies and indexes in the directory `home`.
    pub fn new(store: Arc<dyn Store>, home: impl Into<PathBuf>, backends: Registry) -> Self {
        Self {
            store,
            backends,
            home: home.into(),
            options: Options::default(),
            env: Vec::new(),
            confinement: Confinement::default(),
            open: Mutex::default(),
            sharing: tokio::sync::Mutex::default(),
            on_notice: None,
            gc_guard: OnceLock::new(),
        }
    }

    /// Sets ignore rules, size budgets and protected directories.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets the environment of commands. They inherit no other variables from this process.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(OsString, OsString)>) -> Self {
        self.env = env;
        self
    }

    /// Sets the paths that isolated sandboxes show and hide, and their limits.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// Calls `notice` with a message for people about each side effect, such as an interrupted restore that was
    /// finished.
    #[must_use]
    pub fn on_notice(mut self, notice: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.on_notice = Some(Box::new(notice));
        self
    }

    /// The store of the sessions.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The directory of copies, indexes and journals.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Blocks garbage collection of the store until this value is dropped.
    fn block_gc(&self) -> Result<()> {
        if self.gc_guard.get().is_none() {
            let _ = self.gc_guard.set(self.store.gc_guard()?);
        }
        Ok(())
    }

    /// Opens a directory, or its layers if `state` has layers. Sends a notice if an interrupted restore was finished.
    /// Files in the versions `tracked`, which the directory was made from, stay versioned even if an ignore rule
    /// matches them.
    fn open_workspace(
        &self,
        directory: &Path,
        state: &Path,
        options: &Options,
        tracked: &[Option<&Version>],
    ) -> Result<(Workspace, Option<RecoveredRestore>)> {
        let (mut workspace, recovered) = match Workspace::is_layered(state) {
            true => Workspace::open_layered(self.store.clone(), &self.home, state, options)?,
            false => Workspace::open(self.store.clone(), directory, state, options)?,
        };
        workspace.track(tracked.iter().copied().flatten().cloned().collect());
        if let (Some(recovered), Some(notice)) = (&recovered, &self.on_notice) {
            let changed = workspace.changes(&recovered.from, &recovered.version)?.len();
            let kept = recovered.kept.len();
            notice(format!(
                "finished an interrupted restore in {}: {changed} paths changed, {kept} were left as they are",
                workspace.directory().display()
            ));
        }
        Ok((workspace, recovered))
    }

    /// The options for a workspace whose files come from `origin`. Paths hidden in `origin` are hidden in copies too.
    fn options_of(&self, origin: Option<&FilePath>) -> Options {
        let hidden = origin.map(|origin| hidden_in(&open_workspace::path_of(origin), &self.confinement.hidden));
        Options { hidden: hidden.unwrap_or_default(), ..self.options.clone() }
    }

    /// Closes the workspace of a session, so that another process can open it. The sandbox stays open.
    pub fn leave(&self, session: SessionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
}

/// The `hidden` paths below a directory, relative to it: both as given and with links resolved.
fn hidden_in(directory: &Path, hidden: &[PathBuf]) -> Vec<FilePath> {
    let named = hidden.iter().filter_map(|path| std::path::absolute(path).ok());
    let real = hidden.iter().filter_map(|path| path.canonicalize().ok());
    let inside = |path: PathBuf| path.strip_prefix(directory).ok().map(open_workspace::name_of);
    let mut found: Vec<FilePath> =
        named.chain(real).filter_map(inside).filter(|name| !name.as_bytes().is_empty()).collect();
    found.sort();
    found.dedup();
    found
}
