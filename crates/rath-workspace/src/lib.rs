//! Versioned directories. File contents and directory trees are blobs in a [`Store`].
//!
//! A [`Workspace`] is the directory of one session: either a plain directory, or a stack of layers that an overlay
//! mount shows as one directory (see `layers`). [`save`](Workspace::save) makes a version of the files, and
//! [`restore`](Workspace::restore) sets the files to a version. Both survive a process that dies in the middle: an
//! interrupted save leaves only unreferenced blobs, and an interrupted restore leaves a journal, from which the next
//! [`open`](Workspace::open) completes it.

mod content;
mod descend;
pub mod durable;
mod error;
mod index;
mod index_file;
mod journal;
mod layers;
mod lock;
mod pool;
mod restore;
mod root;
mod rules;
mod save;
mod scan;
mod tracked;
mod tree_writer;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeStore, Version};
use rath_core::store::GcGuard;
use rath_core::{Digest, Store};

pub use error::{Error, Result};
pub use journal::RecoveredRestore;
pub use layers::{CheckoutStats, CollectedLayers, LayerFork, OverlayDirs, collect_layers, remove_tree};
pub use lock::IdleWorkspace;
#[doc(hidden)]
pub use pool::{FILES, Pool};
pub use restore::RestoreOutcome;
pub use rules::{BadRule, MEDIA_TYPE as RULES};
pub use save::Saved;
pub use scan::Skipped;

use index::Index;
use index_file::IndexWriteState;
pub use index_file::forget_index;
use layers::{LayeredDir, Stack};
use lock::Lock;
use root::Root;
use rules::Rules;

/// The largest workspace that is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceBudget {
    /// Maximum number of files, directories and links.
    pub files: u64,
    /// Maximum number of bytes on disk.
    pub bytes: u64,
}

impl Default for WorkspaceBudget {
    fn default() -> Self {
        Self { files: 500_000, bytes: 20 << 30 }
    }
}

/// How a workspace is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ignore rules in `.gitignore` syntax. They win over the rules in the workspace's own ignore files.
    pub ignore: Vec<String>,
    /// Paths that are hidden from commands. They are left out of new versions even if earlier versions contain them.
    pub hidden: Vec<FilePath>,
    /// A workspace that is larger than this is not saved.
    pub budget: WorkspaceBudget,
    /// The user's home directory. It is refused as a workspace, and so is each of its ancestors.
    pub home: Option<PathBuf>,
    /// Allows the home directory, its ancestors and `/` as workspaces.
    pub anywhere: bool,
}

/// A directory whose files are versioned.
///
/// While this value exists, it holds the lock on the directory, and it keeps the store from collecting garbage. So name
/// a saved version in a record before you drop the workspace that saved it: an unreferenced version may be collected.
pub struct Workspace {
    stack: Stack,
    /// The layers; `None` for a plain directory.
    layered: Option<LayeredDir>,
    /// The directory of the index and of the restore journal.
    state: PathBuf,
    store: Arc<dyn Store>,
    rules: Rules,
    budget: WorkspaceBudget,
    excluded: Option<(u64, u64)>,
    index: Index,
    written: IndexWriteState,
    /// Paths in these versions stay versioned even if an ignore rule matches them. `None` until [`track`](Self::track)
    /// is called.
    tracked: Option<Vec<Version>>,
    /// Recently saved trees: the changes of a tool call are computed right after the call.
    tree_cache: HashMap<Digest, Arc<Tree>>,
    /// Protects saved blobs that no record names yet.
    _gc_guard: GcGuard,
    _lock: Lock,
}

/// Approximate maximum of the number of tree entries in `tree_cache`.
const MAX_CACHED_ENTRIES: usize = 4096;

impl Workspace {
    /// Opens the plain directory `root`. Its index and journal are files in the directory `state`. First completes an
    /// interrupted restore.
    pub fn open(
        store: Arc<dyn Store>,
        root: &Path,
        state: &Path,
        options: &Options,
    ) -> Result<(Self, Option<RecoveredRestore>)> {
        let root = Root::open(root)?;
        check_protected(&root.path, store.directory(), options)?;
        let gc_guard = store.gc_guard()?;
        std::fs::create_dir_all(state).map_err(|error| Error::machine(format!("making {}", state.display()), error))?;
        let lock = Lock::take(state, &root.path)?;
        let rules = Rules::new(&options.ignore, &options.hidden)?;
        let inode = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let mut workspace = Self {
            excluded: store.directory().and_then(inode),
            index: Index::load(&state.join("index")),
            written: IndexWriteState::default(),
            stack: Stack::plain(root),
            layered: None,
            state: state.into(),
            store,
            rules,
            budget: options.budget,
            tracked: None,
            tree_cache: HashMap::new(),
            _gc_guard: gc_guard,
            _lock: lock,
        };
        let recovered = workspace.recover()?;
        Ok((workspace, recovered))
    }

    /// Sets the versions that the files are based on. As in git, paths in these versions stay versioned even if an
    /// ignore rule starts to match them, except for the paths in [`Options::hidden`]. Each later save or restore
    /// replaces these versions by the one that it made.
    pub fn track(&mut self, versions: Vec<Version>) {
        self.tracked = Some(versions);
    }

    /// Whether the store contains a version.
    pub fn is_stored(&self, version: &Version) -> Result<bool> {
        Ok(pollster::block_on(self.store.blob_has(version.tree.digest))?)
    }

    /// The directory itself. For a layered workspace: the upper directory, which contains only the changes.
    pub fn directory(&self) -> &Path {
        &self.stack.top().path
    }

    /// Paths that exist and are not in `version`: mostly ignored files. A directory that is not in `version` is listed
    /// without its content.
    pub fn unversioned(&self, version: &Version) -> Vec<FilePath> {
        let node = Node { kind: NodeKind::Directory, mode: 0, sha256: version.tree.digest, size: version.tree.bytes };
        let mut found = Vec::new();
        let forest = TreeStore::new(&*self.store);
        self.stack.unversioned(&forest, &FilePath::root(), &self.stack.all(), Some(node), &mut found);
        found
    }

    /// The trees of the store, with the recently saved ones in memory.
    fn forest(&self) -> TreeStore<'_> {
        TreeStore::with_cache(&*self.store, self.tree_cache.clone())
    }

    /// Adds trees that are in the store to the cache. Clears the cache first when it would become too large.
    fn cache_trees(&mut self, trees: Vec<(Digest, Arc<Tree>)>) {
        let entries = |tree: &Arc<Tree>| tree.entries.len() + 1;
        let new: usize = trees.iter().map(|(_, tree)| entries(tree)).sum();
        if new + self.tree_cache.values().map(entries).sum::<usize>() > MAX_CACHED_ENTRIES {
            self.tree_cache.clear();
        }
        if new <= MAX_CACHED_ENTRIES {
            self.tree_cache.extend(trees);
        }
    }
}

/// Refuses directories that are almost certainly a mistake: `/`, the home directory and its ancestors, the store.
fn check_protected(root: &Path, store: Option<&Path>, options: &Options) -> Result<()> {
    if options.anywhere {
        return Ok(());
    }
    let refuse = |what| Err(Error::Protected { directory: root.display().to_string(), what });
    let home = options.home.as_ref().and_then(|home| home.canonicalize().ok());
    if root.parent().is_none() {
        return refuse("the root of the file system");
    }
    let store = store.and_then(|store| store.canonicalize().ok());
    if store.is_some_and(|store| root.starts_with(store)) {
        return refuse("inside the store");
    }
    match home {
        Some(home) if home == root => refuse("your home directory"),
        Some(home) if home.starts_with(root) => refuse("above your home directory"),
        _ => Ok(()),
    }
}

/// Disk usage in bytes of everything below a directory.
pub fn disk_use(path: &Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        total += meta.blocks() * 512;
        if meta.is_dir() {
            total += disk_use(&entry.path());
        }
    }
    total
}
