//! What opens sandboxes, and what it needs to know.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::limits::Limits;
use crate::sandbox::Sandbox;

/// Opens sandboxes of one sort. One conformance suite in `rath-testkit` holds for all.
pub trait Backend: Send + Sync {
    /// The name it is found by.
    fn name(&self) -> &'static str;

    /// What its sandboxes can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether a workspace may be given as [layers](Overlay) that lie in this directory. It is found out by trying.
    fn layers_in(&self, directory: &Path) -> bool {
        let _ = directory;
        false
    }

    /// Opens a sandbox over a directory. Where the state directory knows an earlier sandbox, the new one has its id
    /// and the next generation, and the earlier one is lost.
    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>>;

    /// Takes up a sandbox that was opened before, maybe by another process. Fails with [`crate::Error::Lost`] when
    /// its directory or its state is gone, or another generation took its place.
    fn reopen(&self, identity: Identity, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>>;
}

impl fmt::Debug for dyn Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name())
    }
}

/// What a sandbox is made of.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The workspace: an existing directory.
    pub directory: PathBuf,
    /// An existing directory where the backend keeps what it must remember of this sandbox.
    pub state: PathBuf,
    /// The environment that every command begins with. Nothing else is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Layers that make up the workspace instead of what is in `directory`, for backends with copy on write.
    pub overlay: Option<Overlay>,
    /// Where an isolated sandbox shows the workspace; without it, where `directory` is.
    pub appears_at: Option<PathBuf>,
    /// The user's home, which an isolated sandbox replaces by an empty one.
    pub home: Option<PathBuf>,
    /// What an isolated sandbox shows besides the system, to read.
    pub readable: Vec<PathBuf>,
    /// What an isolated sandbox hides, wherever it lies.
    pub hidden: Vec<PathBuf>,
    /// What commands may take.
    pub limits: Limits,
}

/// Directories that overlayfs puts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Layers that nobody writes, the upmost first.
    pub lowers: Vec<PathBuf>,
    /// What is written goes here.
    pub upper: PathBuf,
    /// An empty directory beside it.
    pub work: PathBuf,
}

impl Spec {
    /// A sandbox over `directory` with an empty environment.
    pub fn new(directory: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), state: state.into(), ..Self::default() }
    }

    /// Sets a variable for every command.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// Which sandbox, and which of those that stood in its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// A name that no other sandbox has.
    pub id: String,
    /// Counts how often the sandbox was opened anew; the first is 1.
    pub generation: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {})", self.id, self.generation)
    }
}

/// What a sandbox can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Commands cannot touch what lies outside the workspace.
    pub isolated: bool,
    /// The network can be turned off and allowed host by host.
    pub network_control: bool,
    /// A fork of the workspace shares what did not change.
    pub copy_on_write: bool,
    /// Commands may run on while others are started.
    pub background: bool,
}

impl Capabilities {
    /// What `needed` has and `self` has not.
    pub fn missing(&self, needed: &Capabilities) -> Vec<&'static str> {
        let all = [
            ("isolation", needed.isolated, self.isolated),
            ("network control", needed.network_control, self.network_control),
            ("copy on write", needed.copy_on_write, self.copy_on_write),
            ("background commands", needed.background, self.background),
        ];
        all.into_iter().filter(|(_, needed, has)| *needed && !has).map(|(name, ..)| name).collect()
    }
}
