//! The state directory of a layered workspace: what it stands on, and its upper.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rath_core::files::{Forest, Name, Version};
use rath_core::{Blobs, Store};
use serde::{Deserialize, Serialize};

use super::below::{Below, RuleTexts};
use super::checkout::check_out;
use super::home::{Home, remove_tree};
use super::marks;
use super::sift::sift;
use super::stack::{Spot, Stack, TOP};
use crate::durable::{atomic_write, sync_dir};
use crate::error::{Error, Result};
use crate::index::{BELOW, Dir, Index, Item, What};
use crate::index_file::{Written, forget_index};
use crate::lock::Lock;
use crate::root::Root;
use crate::rules::{RuleFile, Rules};
use crate::scan::Skipped;
use crate::{Options, Recovered, Workspace};

const FORMAT: u32 = 1;

const STACK: &str = "stack.json";
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";

/// How much laying a workspace wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Whether the version's files were there already.
    pub reused: bool,
    /// Files, directories and links written.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// The directories that a mount puts together: options `lowerdir`, `upperdir` and `workdir`, and `userxattr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The lower directories, the top one first.
    pub lowers: Vec<PathBuf>,
    /// The upper directory.
    pub upper: PathBuf,
    /// The directory that overlayfs works in.
    pub work: PathBuf,
}

/// What a workspace stands on, as `stack.json` has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Standing {
    format: u32,
    pub(super) base: Base,
    /// The layers below the upper, the lowest first; names below the home.
    pub(super) lowers: Vec<String>,
}

/// What a save of the layers below the upper would give.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) version: Version,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<Skipped>,
}

/// A layered workspace's place in the home.
pub(crate) struct Site {
    pub(super) home: Home,
    pub(super) standing: Standing,
    rules: OnceLock<Option<RuleTexts>>,
}

impl Standing {
    pub(super) fn new(base: Base, lowers: Vec<String>) -> Self {
        Self { format: FORMAT, base, lowers }
    }

    pub(super) fn read(state: &Path) -> Result<Self> {
        let path = state.join(STACK);
        let failed = |error| Error::machine(format!("reading {}", path.display()), error);
        let bytes = fs::read(&path).map_err(failed)?;
        let standing: Standing = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        if standing.format != FORMAT {
            let why = format!("it has format {}; this version reads {FORMAT}", standing.format);
            return Err(failed(io::Error::other(why)));
        }
        Ok(standing)
    }

    /// Writes it so that it is there after a power cut.
    pub(super) fn write(&self, state: &Path) -> Result<()> {
        let path = state.join(STACK);
        let write = || {
            atomic_write(&path, &serde_json::to_vec(self)?)?;
            state.parent().map_or(Ok(()), sync_dir)
        };
        write().map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }
}

/// Makes an empty upper, and an empty directory to work in. What stood there goes. Who is killed in between leaves no upper.
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

impl Site {
    pub(super) fn new(home: Home, standing: Standing) -> Self {
        Self { home, standing, rules: OnceLock::new() }
    }

    pub(crate) fn base(&self) -> &Base {
        &self.standing.base
    }

    fn lowers_top_first(&self) -> impl Iterator<Item = PathBuf> {
        self.standing.lowers.iter().rev().map(|name| self.home.path.join(name))
    }

    pub(super) fn stack(&self, state: &Path) -> Result<Stack> {
        let paths = std::iter::once(state.join(UPPER)).chain(self.lowers_top_first());
        Ok(Stack::of(paths.map(|path| Root::open(&path)).collect::<Result<_>>()?))
    }

    /// The rule files below the upper; `None` when the rules besides are not those that the base was made with.
    fn rule_texts(&self, blobs: &dyn Blobs, rules: &Rules) -> Option<&RuleTexts> {
        let read = || {
            let description = pollster::block_on(blobs.blob_get(self.base().version.rules.as_ref()?.digest)).ok()??;
            let files = rules.files_of(&description)?;
            Some(files.into_iter().map(|RuleFile { path, text }| (path, text)).collect::<HashMap<_, _>>())
        };
        self.rules.get_or_init(read).as_ref()
    }

    /// What lies under the upper, for a walk of the upper alone, if that can be enough.
    pub(crate) fn below<'a>(&'a self, stack: &'a Stack, forest: Forest<'a>, rules: &Rules) -> Option<Below<'a>> {
        let texts = self.rule_texts(forest.blobs(), rules)?;
        Some(Below::new(stack, forest, &self.base().version, Some(texts)))
    }

    /// What lies under the upper, for a walk of everything.
    pub(crate) fn below_all<'a>(&'a self, stack: &'a Stack, forest: Forest<'a>) -> Below<'a> {
        Below::new(stack, forest, &self.base().version, None)
    }

    /// The rule files that show through in directories that a walk of the top did not come to; `seen` are the others.
    pub(crate) fn unseen_rules(&self, stack: &Stack, top: &Dir, seen: &[RuleFile]) -> Vec<RuleFile> {
        // A directory that turned out to hold nothing versioned was walked, and is not in the result.
        let mut is_walked = HashMap::new();
        let mut is_in_top = |path: Name| match is_walked.get(&path) {
            Some(known) => *known,
            None => {
                let found = !matches!(stack.find(&path, vec![TOP]), Ok(Spot::Nothing));
                is_walked.insert(path, found);
                found
            }
        };
        let mut shows_through = |path: &Name| {
            let (mut dir, mut at) = (top, Name::root());
            for name in path.split().0.parts() {
                at = at.join(&name);
                match dir.get(&name) {
                    _ if !dir.merges => return false,
                    None => return !is_in_top(at),
                    Some(Item { layer: BELOW, .. }) => return true,
                    Some(Item { what: What::Dir(below), .. }) => dir = below,
                    Some(_) => return false,
                }
            }
            false
        };
        let seen: HashSet<&Name> = seen.iter().map(|file| &file.path).collect();
        let texts = self.rules.get().and_then(Option::as_ref).into_iter().flatten();
        let unseen = texts.filter(|(path, _)| !seen.contains(path) && shows_through(path));
        unseen.map(|(path, text)| RuleFile { path: path.clone(), text: text.clone() }).collect()
    }
}

impl Workspace {
    /// Begins a layered workspace in the directory `state`, with the files of a version. They are written below
    /// `home` if nobody began with that version before.
    pub fn lay(
        store: Arc<dyn Store>,
        home: &Path,
        state: &Path,
        version: &Version,
        options: &Options,
    ) -> Result<(Self, Laid)> {
        let home = Home::open(home)?;
        let rules = Rules::new(&options.ignore, &options.hidden)?;
        let claim = home.claim()?;
        let lock = take_fresh(state)?;
        let base = sift(&*store, version, &rules)?;
        let (checkout, laid) = check_out(&*store, &home, version)?;
        begin(state, &Standing::new(base, vec![checkout]), 0o755)?;
        drop(claim);
        Ok((Self::stand(store, home, state, options, lock)?, laid))
    }

    /// Takes the layered workspace in the directory `state`. What was interrupted is finished first.
    pub fn open_layered(
        store: Arc<dyn Store>,
        home: &Path,
        state: &Path,
        options: &Options,
    ) -> Result<(Self, Option<Recovered>)> {
        let home = Home::open(home)?;
        if !Self::is_layered(state) {
            return Err(Error::Missing(state.join(STACK).display().to_string()));
        }
        let lock = Lock::take(state, state)?;
        let mut workspace = Self::stand(store, home, state, options, lock)?;
        let recovered = workspace.recover()?;
        Ok((workspace, recovered))
    }

    /// Whether there is a layered workspace in this state directory.
    pub fn is_layered(state: &Path) -> bool {
        state.join(STACK).is_file()
    }

    fn stand(store: Arc<dyn Store>, home: Home, state: &Path, options: &Options, lock: Lock) -> Result<Self> {
        let state =
            state.canonicalize().map_err(|error| Error::machine(format!("opening {}", state.display()), error))?;
        let site = Site::new(home, Standing::read(&state)?);
        site.finish_seal(&state)?;
        let tracked = Some(vec![site.base().version.clone()]);
        Ok(Self {
            _gc_guard: store.gc_guard()?,
            tracked,
            stack: site.stack(&state)?,
            site: Some(site),
            index: Index::load(&state.join("index")),
            written: Written::default(),
            state,
            store,
            rules: Rules::new(&options.ignore, &options.hidden)?,
            budget: options.budget,
            excluded: None,
            recent: HashMap::new(),
            _lock: lock,
        })
    }

    /// What a mount needs to show the files; `None` for a plain directory. Absolute paths.
    pub fn overlay(&self) -> Option<Overlay> {
        let site = self.site.as_ref()?;
        let lowers = site.lowers_top_first().collect();
        Some(Overlay { lowers, upper: self.state.join(UPPER), work: self.state.join(WORK) })
    }
}

/// Takes a state directory in which no layered workspace is yet.
pub(super) fn take_fresh(state: &Path) -> Result<Lock> {
    let failed = |error| Error::machine(format!("making {}", state.display()), error);
    fs::create_dir_all(state).map_err(failed)?;
    let lock = Lock::take(state, state)?;
    match Workspace::is_layered(state) {
        true => Err(failed(io::ErrorKind::AlreadyExists.into())),
        false => Ok(lock),
    }
}

/// Makes a site of a state directory that was taken.
pub(super) fn begin(state: &Path, standing: &Standing, mode: u32) -> Result<()> {
    clear_upper(state, mode)?;
    marks::are_possible_in(&state.join(WORK))
        .map_err(|error| Error::machine(format!("marking directories in {}", state.display()), error))?;
    let forgotten = forget_index(state).and_then(|()| match fs::remove_file(state.join("restoring")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    forgotten.map_err(|error| Error::machine(format!("clearing {}", state.display()), error))?;
    standing.write(state)
}
