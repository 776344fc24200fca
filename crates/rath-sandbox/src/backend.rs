//! Backends, and the specification of a sandbox.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::limits::Limits;
use crate::sandbox::Sandbox;

/// Opens sandboxes of one kind. All backends must pass the conformance suite in `rath-testkit`.
pub trait Backend: Send + Sync {
    /// The name in a [`Registry`](crate::Registry).
    fn name(&self) -> &'static str;

    /// What the backend's sandboxes can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether the backend can mount [layers](Overlay) that are in this directory. Found out by trying.
    fn supports_layers_in(&self, directory: &Path) -> bool {
        let _ = directory;
        false
    }

    /// Opens a sandbox. If the state directory has an earlier sandbox, the new one gets its id and the next generation,
    /// and the earlier one is lost.
    fn open(&self, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>>;

    /// Reopens a sandbox that was opened before, possibly by another process. Fails with [`crate::Error::Lost`] if its
    /// directory or its state does not exist any more, or if a newer generation was opened.
    fn reopen(&self, identity: Identity, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>>;
}

impl fmt::Debug for dyn Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name())
    }
}

/// The specification of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxSpec {
    /// The workspace: an existing directory.
    pub directory: PathBuf,
    /// An existing directory in which the backend stores the state of this sandbox.
    pub state: PathBuf,
    /// Environment variables of all commands. Nothing is inherited from this process.
    pub env: Vec<(OsString, OsString)>,
    /// Layers to mount as the workspace instead of the content of `directory`. For backends with copy on write.
    pub overlay: Option<Overlay>,
    /// The path at which commands of an isolated sandbox see the workspace. `None`: the path of `directory`.
    pub mount_path: Option<PathBuf>,
    /// The user's home directory. An isolated sandbox shows an empty directory in its place.
    pub home: Option<PathBuf>,
    /// Paths that an isolated sandbox shows read-only, in addition to system directories.
    pub readable: Vec<PathBuf>,
    /// Paths that an isolated sandbox hides.
    pub hidden: Vec<PathBuf>,
    /// Resource limits of commands.
    pub limits: Limits,
}

/// Directories that overlayfs mounts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The read-only layers, from top to bottom.
    pub lowers: Vec<PathBuf>,
    /// The directory that receives all changes.
    pub upper: PathBuf,
    /// The work directory of overlayfs: an empty directory on the same file system as `upper`.
    pub work: PathBuf,
}

impl SandboxSpec {
    /// A sandbox for `directory` with an empty environment.
    pub fn new(directory: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), state: state.into(), ..Self::default() }
    }

    /// Sets an environment variable for all commands.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// Identifies a sandbox and its generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// A unique id.
    pub id: String,
    /// The generation. The first is 1, and each [`Backend::open`] with the same state directory adds 1.
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
    /// Commands cannot change anything outside the workspace.
    pub isolated: bool,
    /// Network access can be turned off and allowed for individual hosts.
    pub network_control: bool,
    /// A fork of the workspace shares unchanged files with it.
    pub copy_on_write: bool,
    /// Commands can run in the background while others start.
    pub background: bool,
}

impl Capabilities {
    /// Names of the capabilities that are in `needed` and not in `self`.
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
