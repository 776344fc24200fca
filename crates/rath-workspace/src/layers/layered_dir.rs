//! The state directory of a layered workspace: the manifest of its layers and its upper directory.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rath_core::files::{FilePath, TreeStore, Version};
use rath_core::{Blobs, Store};
use serde::{Deserialize, Serialize};

use super::apply_ignores::apply_ignores;
use super::checkout::check_out;
use super::layers_dir::{LayersDir, remove_tree};
use super::lower_version::{LowerVersion, RuleTexts};
use super::marks;
use super::stack::{Lookup, Stack, TOP};
use crate::durable::{atomic_write, sync_dir};
use crate::error::{Error, Result};
use crate::index::{Dir, FROM_LOWER, Index, Item, ItemData};
use crate::index_file::{IndexWriteState, forget_index};
use crate::lock::Lock;
use crate::root::Root;
use crate::rules::{RuleFile, Rules};
use crate::scan::Skipped;
use crate::{Options, RecoveredRestore, Workspace};

const FORMAT: u32 = 1;

const STACK: &str = "stack.json";
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";

/// What was written for the checkout of a new workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckoutStats {
    /// Whether an existing checkout was used. Then nothing was written.
    pub reused: bool,
    /// Number of files, directories and links that were written.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
}

/// The directories of an overlay mount: its options `lowerdir`, `upperdir` and `workdir`. The mount also needs the
/// option `userxattr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayDirs {
    /// The lower directories, from top to bottom.
    pub lowers: Vec<PathBuf>,
    /// The upper directory.
    pub upper: PathBuf,
    /// The work directory of overlayfs.
    pub work: PathBuf,
}

/// The layers of a workspace: the content of `stack.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LayerManifest {
    format: u32,
    pub(super) base: Base,
    /// The lower layers, from bottom to top, relative to the layers directory.
    pub(super) lowers: Vec<String>,
}

/// The lower version: the result that a save of the lower layers would give.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) version: Version,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<Skipped>,
}

/// The layers of an open workspace.
pub(crate) struct LayeredDir {
    pub(super) layers_dir: LayersDir,
    pub(super) manifest: LayerManifest,
    rules: OnceLock<Option<RuleTexts>>,
}

impl LayerManifest {
    pub(super) fn new(base: Base, lowers: Vec<String>) -> Self {
        Self { format: FORMAT, base, lowers }
    }

    pub(super) fn read(state: &Path) -> Result<Self> {
        let path = state.join(STACK);
        let failed = |error| Error::machine(format!("reading {}", path.display()), error);
        let bytes = fs::read(&path).map_err(failed)?;
        let manifest: LayerManifest = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        if manifest.format != FORMAT {
            let why = format!("it has format {}; this version reads {FORMAT}", manifest.format);
            return Err(failed(io::Error::other(why)));
        }
        Ok(manifest)
    }

    /// Writes the manifest durably.
    pub(super) fn write(&self, state: &Path) -> Result<()> {
        let path = state.join(STACK);
        let write = || {
            atomic_write(&path, &serde_json::to_vec(self)?)?;
            state.parent().map_or(Ok(()), sync_dir)
        };
        write().map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }
}

/// Creates an empty upper directory and an empty work directory, and removes the old ones. The upper directory is
/// created last, so it exists only if both are complete.
pub(super) fn clear_upper(state: &Path, mode: u32) -> Result<()> {
    let clear = || {
        let (upper, work, made) = (state.join(UPPER), state.join(WORK), state.join("upper.new"));
        for old in [&upper, &work, &made] {
            remove_tree(old)?;
        }
        fs::create_dir(&work)?;
        fs::create_dir(&made)?;
        fs::set_permissions(&made, fs::Permissions::from_mode(mode))?;
        fs::rename(&made, &upper)
    };
    clear().map_err(|error| Error::machine(format!("making {}", state.join(UPPER).display()), error))
}

impl LayeredDir {
    pub(super) fn new(layers_dir: LayersDir, manifest: LayerManifest) -> Self {
        Self { layers_dir, manifest, rules: OnceLock::new() }
    }

    pub(crate) fn base(&self) -> &Base {
        &self.manifest.base
    }

    fn lowers_top_first(&self) -> impl Iterator<Item = PathBuf> {
        self.manifest.lowers.iter().rev().map(|name| self.layers_dir.path.join(name))
    }

    pub(super) fn stack(&self, state: &Path) -> Result<Stack> {
        let paths = std::iter::once(state.join(UPPER)).chain(self.lowers_top_first());
        Ok(Stack::of(paths.map(|path| Root::open(&path)).collect::<Result<_>>()?))
    }

    /// The rule files of the lower version. `None` if the lower version was saved with another configuration.
    fn rule_texts(&self, blobs: &dyn Blobs, rules: &Rules) -> Option<&RuleTexts> {
        let read = || {
            let description = pollster::block_on(blobs.blob_get(self.base().version.rules.as_ref()?.digest)).ok()??;
            let files = rules.files_of(&description)?;
            Some(files.into_iter().map(|RuleFile { path, text }| (path, text)).collect::<HashMap<_, _>>())
        };
        self.rules.get_or_init(read).as_ref()
    }

    /// The lower version for a walk of the upper directory only. `None` if all layers must be walked.
    pub(crate) fn lower_version<'a>(
        &'a self,
        stack: &'a Stack,
        forest: TreeStore<'a>,
        rules: &Rules,
    ) -> Option<LowerVersion<'a>> {
        let texts = self.rule_texts(forest.blobs(), rules)?;
        Some(LowerVersion::new(stack, forest, &self.base().version, Some(texts)))
    }

    /// The lower version for a walk of all layers.
    pub(crate) fn full_lower_version<'a>(&'a self, stack: &'a Stack, forest: TreeStore<'a>) -> LowerVersion<'a> {
        LowerVersion::new(stack, forest, &self.base().version, None)
    }

    /// The visible rule files of the lower version that are in directories which the walk of the top layer did not
    /// visit. `seen` are the rule files that the walk found.
    pub(crate) fn other_visible_rules(&self, stack: &Stack, top: &Dir, seen: &[RuleFile]) -> Vec<RuleFile> {
        // A visited directory that contains nothing versioned is not in `top`, so look it up in the top layer.
        let mut is_walked = HashMap::new();
        let mut is_in_top = |path: FilePath| match is_walked.get(&path) {
            Some(known) => *known,
            None => {
                let found = !matches!(stack.find(&path, vec![TOP]), Ok(Lookup::Missing));
                is_walked.insert(path, found);
                found
            }
        };
        let mut shows_through = |path: &FilePath| {
            let (mut dir, mut at) = (top, FilePath::root());
            for name in path.split().0.parts() {
                at = at.join(&name);
                match dir.get(&name) {
                    _ if !dir.merges => return false,
                    None => return !is_in_top(at),
                    Some(Item { layer: FROM_LOWER, .. }) => return true,
                    Some(Item { data: ItemData::Dir(below), .. }) => dir = below,
                    Some(_) => return false,
                }
            }
            false
        };
        let seen: HashSet<&FilePath> = seen.iter().map(|file| &file.path).collect();
        let texts = self.rules.get().and_then(Option::as_ref).into_iter().flatten();
        let unseen = texts.filter(|(path, _)| !seen.contains(path) && shows_through(path));
        unseen.map(|(path, text)| RuleFile { path: path.clone(), text: text.clone() }).collect()
    }
}

impl Workspace {
    /// Creates a layered workspace in the state directory `state`, with the files of a version. Uses the version's
    /// checkout below `layers_dir`, or creates it.
    pub fn create_layered(
        store: Arc<dyn Store>,
        layers_dir: &Path,
        state: &Path,
        version: &Version,
        options: &Options,
    ) -> Result<(Self, CheckoutStats)> {
        let layers_dir = LayersDir::open(layers_dir)?;
        let rules = Rules::new(&options.ignore, &options.hidden)?;
        let lock_shared = layers_dir.lock_shared()?;
        let lock = lock_new(state)?;
        let base = apply_ignores(&*store, version, &rules)?;
        let (checkout, stats) = check_out(&*store, &layers_dir, version)?;
        initialize(state, &LayerManifest::new(base, vec![checkout]), 0o755)?;
        drop(lock_shared);
        Ok((Self::load(store, layers_dir, state, options, lock)?, stats))
    }

    /// Opens the layered workspace in the state directory `state`. First completes an interrupted fork or restore.
    pub fn open_layered(
        store: Arc<dyn Store>,
        layers_dir: &Path,
        state: &Path,
        options: &Options,
    ) -> Result<(Self, Option<RecoveredRestore>)> {
        let layers_dir = LayersDir::open(layers_dir)?;
        if !Self::is_layered(state) {
            return Err(Error::Missing(state.display().to_string()));
        }
        let lock = Lock::take(state, state)?;
        let mut workspace = Self::load(store, layers_dir, state, options, lock)?;
        let recovered = workspace.recover()?;
        Ok((workspace, recovered))
    }

    /// Whether a state directory is that of a layered workspace.
    pub fn is_layered(state: &Path) -> bool {
        state.join(STACK).is_file()
    }

    fn load(store: Arc<dyn Store>, layers_dir: LayersDir, state: &Path, options: &Options, lock: Lock) -> Result<Self> {
        let state =
            state.canonicalize().map_err(|error| Error::machine(format!("opening {}", state.display()), error))?;
        let layered = LayeredDir::new(layers_dir, LayerManifest::read(&state)?);
        layered.finish_seal(&state)?;
        let tracked = Some(vec![layered.base().version.clone()]);
        Ok(Self {
            _gc_guard: store.gc_guard()?,
            tracked,
            stack: layered.stack(&state)?,
            layered: Some(layered),
            index: Index::load(&state.join("index")),
            written: IndexWriteState::default(),
            state,
            store,
            rules: Rules::new(&options.ignore, &options.hidden)?,
            budget: options.budget,
            excluded: None,
            tree_cache: HashMap::new(),
            _lock: lock,
        })
    }

    /// The directories to mount, as absolute paths. `None` for a plain directory.
    pub fn overlay(&self) -> Option<OverlayDirs> {
        let layered = self.layered.as_ref()?;
        let lowers = layered.lowers_top_first().collect();
        Some(OverlayDirs { lowers, upper: self.state.join(UPPER), work: self.state.join(WORK) })
    }
}

/// Creates and locks a state directory. Fails if it contains a layered workspace already.
pub(super) fn lock_new(state: &Path) -> Result<Lock> {
    let failed = |error| Error::machine(format!("making {}", state.display()), error);
    fs::create_dir_all(state).map_err(failed)?;
    let lock = Lock::take(state, state)?;
    match Workspace::is_layered(state) {
        true => Err(failed(io::ErrorKind::AlreadyExists.into())),
        false => Ok(lock),
    }
}

/// Initializes a locked state directory as a layered workspace.
pub(super) fn initialize(state: &Path, manifest: &LayerManifest, mode: u32) -> Result<()> {
    clear_upper(state, mode)?;
    marks::check_supported(&state.join(WORK))
        .map_err(|error| Error::machine(format!("marking directories in {}", state.display()), error))?;
    let forgotten = forget_index(state).and_then(|()| match fs::remove_file(state.join("restoring")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    forgotten.map_err(|error| Error::machine(format!("clearing {}", state.display()), error))?;
    manifest.write(state)
}
