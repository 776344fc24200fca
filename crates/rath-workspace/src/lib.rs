//! Directories under versions, whose trees and contents are blobs of any store.
//!
//! A [`Workspace`] is a directory that belongs to a session for the moment: a plain one, or a stack of them that a mount
//! shows as one (see `layers`). [`save`](Workspace::save) makes a version of
//! it, [`restore`](Workspace::restore) sets it to one. Both are safe against a process that dies in the middle: a
//! save leaves nothing but blobs that nobody names, a restore leaves a journal that the next
//! [`open`](Workspace::open) finishes.

mod content;
mod descend;
pub mod durable;
mod error;
mod index;
mod index_file;
mod journal;
mod layers;
mod lock;
mod plant;
mod pool;
mod restore;
mod root;
mod rules;
mod save;
mod scan;
mod tracked;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_core::files::{Forest, Name, Node, NodeKind, Tree, Version};
use rath_core::store::GcGuard;
use rath_core::{Digest, Store};

pub use error::{Error, Result};
pub use journal::Recovered;
pub use layers::{CollectedLayers, Laid, Overlay, Sealed, collect_layers, remove_tree};
pub use lock::Vacant;
#[doc(hidden)]
pub use pool::{FILES, Pool};
pub use restore::Restored;
pub use rules::{BadRule, MEDIA_TYPE as RULES};
pub use save::Saved;
pub use scan::Skipped;

use index::Index;
use index_file::Written;
pub use index_file::forget_index;
use layers::{Site, Stack};
use lock::Lock;
use root::Root;
use rules::Rules;

/// What a workspace may take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Files, directories and links.
    pub files: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { files: 500_000, bytes: 20 << 30 }
    }
}

/// How a workspace is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ignore rules besides those in the files, as in `.gitignore`. They win.
    pub ignore: Vec<String>,
    /// Paths that no version has from now on, whatever earlier versions have there: what is hidden from commands.
    pub hidden: Vec<Name>,
    /// How much is too much.
    pub budget: Budget,
    /// The user's home: refused as a workspace, and so is everything above it.
    pub home: Option<PathBuf>,
    /// Whether the home directory and `/` are meant.
    pub anywhere: bool,
}

/// A directory whose files are versioned. While the value lives, no other process has it, and nothing is collected from
/// its store. Name a version in a record before you drop the workspace that saved it.
pub struct Workspace {
    stack: Stack,
    /// Of a layered workspace.
    site: Option<Site>,
    /// Where the index and the journal are.
    state: PathBuf,
    store: Arc<dyn Store>,
    rules: Rules,
    budget: Budget,
    excluded: Option<(u64, u64)>,
    index: Index,
    written: Written,
    /// Versions whose paths stay versioned whatever the ignore rules say; `None` while nobody said which.
    tracked: Option<Vec<Version>>,
    /// Trees that were saved of late: what a call changed is asked right after it.
    recent: HashMap<Digest, Arc<Tree>>,
    /// What is saved has no name yet.
    _gc_guard: GcGuard,
    _lock: Lock,
}

/// About how many entries the trees at hand may have together.
const AT_HAND: usize = 4096;

impl Workspace {
    /// Takes the directory `root`; what must be remembered about it is kept in `state`. A restore that was interrupted
    /// is finished first.
    pub fn open(
        store: Arc<dyn Store>,
        root: &Path,
        state: &Path,
        options: &Options,
    ) -> Result<(Self, Option<Recovered>)> {
        let root = Root::open(root)?;
        guard(&root.path, store.directory(), options)?;
        let gc_guard = store.gc_guard()?;
        std::fs::create_dir_all(state).map_err(|error| Error::machine(format!("making {}", state.display()), error))?;
        let lock = Lock::take(state, &root.path)?;
        let rules = Rules::new(&options.ignore, &options.hidden)?;
        let inode = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let mut workspace = Self {
            excluded: store.directory().and_then(inode),
            index: Index::load(&state.join("index")),
            written: Written::default(),
            stack: Stack::plain(root),
            site: None,
            state: state.into(),
            store,
            rules,
            budget: options.budget,
            tracked: None,
            recent: HashMap::new(),
            _gc_guard: gc_guard,
            _lock: lock,
        };
        let recovered = workspace.recover()?;
        Ok((workspace, recovered))
    }

    /// Says which versions the files stem from. What they have stays versioned when an ignore rule comes to match it, as
    /// in git; what [`Options::hidden`] names does not. From here on the version that was saved or restored last counts.
    pub fn track(&mut self, versions: Vec<Version>) {
        self.tracked = Some(versions);
    }

    /// Whether the store has a version.
    pub fn is_stored(&self, version: &Version) -> Result<bool> {
        Ok(pollster::block_on(self.store.blob_has(version.tree.digest))?)
    }

    /// The directory; of a layered workspace its upper, which holds only what changed.
    pub fn directory(&self) -> &Path {
        &self.stack.top().path
    }

    /// What is there and not in `version`: ignored files, mostly. Of a directory that is not in it, only its own name.
    pub fn unversioned(&self, version: &Version) -> Vec<Name> {
        let node = Node { kind: NodeKind::Directory, mode: 0, sha256: version.tree.digest, size: version.tree.bytes };
        let mut found = Vec::new();
        let forest = Forest::new(&*self.store);
        self.stack.hidden(&forest, &Name::root(), &self.stack.all(), Some(node), &mut found);
        found
    }

    /// The store's trees.
    fn forest(&self) -> Forest<'_> {
        Forest::knowing(&*self.store, self.recent.clone())
    }

    /// Keeps trees at hand that the store has now, and lets go of older ones when they are many.
    fn keep_at_hand(&mut self, trees: Vec<(Digest, Arc<Tree>)>) {
        let entries = |tree: &Arc<Tree>| tree.entries.len() + 1;
        let new: usize = trees.iter().map(|(_, tree)| entries(tree)).sum();
        if new + self.recent.values().map(entries).sum::<usize>() > AT_HAND {
            self.recent.clear();
        }
        if new <= AT_HAND {
            self.recent.extend(trees);
        }
    }
}

/// Refuses directories that are hardly meant.
fn guard(root: &Path, store: Option<&Path>, options: &Options) -> Result<()> {
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

/// Bytes that everything below a directory takes on disk.
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
