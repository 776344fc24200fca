//! Walks the files to find which exist and which changed. Reads only names, stats and rule files, no contents.
//!
//! In a layered workspace, it walks the top layer, and takes everything else from the lower version: see
//! [`LowerVersion`].

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use rath_core::Digest;
use rath_core::files::{FilePath, NodeKind, Tree, TreeStore, Version};
use rustix::fs::{AtFlags, Dir as Listing, FileType, statat};
use rustix::io::Errno;

use super::WorkspaceBudget;
use super::error::{Error, Result};
use super::index::{Content, Dir, Item, ItemData, Stat, Usage};
use super::layers::{Layer, ListedEntry, LowerDir, LowerVersion, Stack, TOP, list};
use super::root::{Root, os};
use super::rules::{self, RuleFile, Rules};
use super::tracked::{Scope, Tracked};

/// Maximum nesting depth of directories. Each level takes a file descriptor and some stack.
pub(super) const MAX_DEPTH: usize = 512;

/// Why a deeper directory is skipped.
pub(super) const TOO_DEEP: &str = "more than 512 directories deep";

/// A path that could not be versioned, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// The path that was not versioned.
    pub path: FilePath,
    /// The reason.
    pub why: String,
}

/// The digest of an empty tree.
static EMPTY_TREE: LazyLock<Digest> = LazyLock::new(|| Digest::of(&Tree::default().encode()));

/// The context of a walk.
pub(super) struct Walk<'a> {
    pub(super) stack: &'a Stack,
    pub(super) rules: &'a Rules,
    pub(super) budget: WorkspaceBudget,
    /// Device and inode of the store's directory, which is never part of a workspace.
    pub(super) excluded: Option<(u64, u64)>,
    /// The lower version, in a layered workspace.
    pub(super) lower_version: Option<LowerVersion<'a>>,
    /// Versions whose paths stay versioned even if they are ignored.
    pub(super) tracked: Vec<Version>,
    /// Whether the index has exactly the paths of `tracked`.
    pub(super) index_is_tracked: bool,
    /// Source of trees.
    pub(super) trees: TreeStore<'a>,
    /// Whether nothing wrote to the files since the index was made. Then racy entries need not be read again.
    pub(super) has_no_writers: bool,
    pub(super) skipped: Mutex<Vec<Skipped>>,
    pub(super) rule_files: Mutex<Vec<RuleFile>>,
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Number of directories that were counted although they contain nothing versioned.
    pub(super) unversioned_dirs: AtomicU64,
}

/// The result of walking a directory.
#[derive(Default)]
pub(super) struct WalkedDir {
    pub(super) dir: Dir,
    /// Whether it contains only unversioned entries. Then the directory is not versioned either, because a restore
    /// could not recreate it as it is.
    pub(super) is_unversioned: bool,
}

/// A directory as it is in each of the lower layers that are walked.
type Lowers = Vec<(Layer, OwnedFd)>;

/// The directory that is being walked.
pub(super) struct CurrentDir<'h> {
    pub(super) path: &'h FilePath,
    /// The directory in the top layer, if it exists there.
    pub(super) top: Option<BorrowedFd<'h>>,
    /// The directory in the lower layers, if these are walked.
    lowers: &'h [(Layer, OwnedFd)],
    pub(super) lower: &'h LowerDir,
    base: OnceLock<Arc<Tree>>,
}

impl CurrentDir<'_> {
    fn fd(&self, layer: Layer) -> Option<BorrowedFd<'_>> {
        match layer {
            TOP => self.top,
            layer => self.lowers.iter().find(|(one, _)| *one == layer).map(|(_, fd)| fd.as_fd()),
        }
    }
}

impl Walk<'_> {
    /// Walks the workspace. Entries whose stat equals the one in `old` keep their digest. `None` if the lower version
    /// does not describe the lower layers under the current rules: then all layers must be walked.
    pub(super) fn run(&self, old: &Dir) -> Result<Option<Dir>> {
        let fd =
            self.stack.top().directory(&FilePath::root()).map_err(|error| self.failed(&FilePath::root(), error))?;
        let lower = self.lower_version.as_ref().map(LowerVersion::lower_root).unwrap_or_default();
        let (level, tracked) = (self.rules.level(), Tracked::root());
        let scope = Scope { rules: &level, tracked: &tracked, is_ignored: false, ignored: &[] };
        let found = self.directory(Some(fd), &lower, &FilePath::root(), Some(old), &scope)?;
        Ok((!self.needs_full_walk()).then_some(found.dir))
    }

    fn needs_full_walk(&self) -> bool {
        self.lower_version.as_ref().is_some_and(LowerVersion::needs_full_walk)
    }

    pub(super) fn failed(&self, path: &FilePath, error: Errno) -> Error {
        Error::machine(format!("reading {}/{path}", self.stack.top().path.display()), error)
    }

    pub(super) fn skip(&self, path: FilePath, why: impl Into<String>) {
        let skipped = Skipped { path, why: why.into() };
        self.skipped.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(skipped);
    }

    /// The tree of this directory in the lower version.
    pub(super) fn base<'h>(&self, here: &'h CurrentDir<'_>) -> Result<&'h Tree> {
        if let (None, Some(lower_version)) = (here.base.get(), &self.lower_version) {
            let _ = here.base.set(lower_version.tree(here.lower.base)?);
        }
        Ok(here.base.get_or_init(Arc::default))
    }

    /// The entries of a directory in all layers that are walked, and the opened directories of the lower ones.
    fn names(
        &self,
        listing: Option<&mut Listing>,
        lower: &LowerDir,
        path: &FilePath,
    ) -> Result<(Vec<ListedEntry>, Lowers)> {
        let failed = |error| self.failed(path, error);
        let mut names = match listing {
            Some(listing) => list(listing, TOP, self.stack.has_marks()).map_err(failed)?,
            None => Vec::new(),
        };
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut lowers = Vec::new();
        for &layer in &lower.layers {
            let fd = match self.stack.root(layer).directory(path) {
                Ok(fd) => fd,
                Err(error) if is_resource_exhaustion(error) => return Err(failed(error)),
                // The lower version contains what was readable when it was saved.
                Err(_) => continue,
            };
            let mut listing = Listing::new(fd).map_err(failed)?;
            let found = list(&mut listing, layer, true).map_err(failed)?;
            let new = |listed: &ListedEntry| names.binary_search_by(|known| known.name.cmp(&listed.name)).is_err();
            let mut new: Vec<ListedEntry> = found.into_iter().filter(new).collect();
            names.append(&mut new);
            names.sort_by(|a, b| a.name.cmp(&b.name));
            lowers.push((layer, listing.fd().and_then(|fd| Root::directory_in(fd, &".".into())).map_err(failed)?));
        }
        if !lower.layers.is_empty() {
            names.retain(|listed| !listed.is_whiteout);
        }
        Ok((names, lowers))
    }

    pub(super) fn directory(
        &self,
        top: Option<OwnedFd>,
        lower: &LowerDir,
        path: &FilePath,
        old: Option<&Dir>,
        scope: &Scope<'_>,
    ) -> Result<WalkedDir> {
        if self.needs_full_walk() {
            return Ok(WalkedDir::default());
        }
        let mut listing = top.map(Listing::new).transpose().map_err(|error| self.failed(path, error))?;
        let (names, lowers) = self.names(listing.as_mut(), lower, path)?;
        let top = listing.as_ref().map(Listing::fd).transpose().map_err(|error| self.failed(path, error))?;
        let here = CurrentDir { path, top, lowers: &lowers, lower, base: OnceLock::new() };
        // As in git, rule files in an ignored directory have no effect.
        let texts = if scope.is_ignored { Vec::new() } else { self.rule_texts(&here, &names) };
        let level;
        let rules = match texts.is_empty() && !path.as_bytes().is_empty() {
            true => scope.rules,
            false => {
                level = scope.rules.down(path, &texts, &self.rule_files);
                &level
            }
        };
        let scope = &Scope { rules, ..*scope };
        let mut dir = Dir {
            rules: rules.hash,
            merges: lower.merges,
            base: lower.base,
            items: Vec::with_capacity(names.len()),
            ..Dir::default()
        };
        // If the lower layers are not walked, entries that the top layer does not have come from the lower version.
        let takes_from_lower = lower.merges && lower.layers.is_empty();
        let overridden: Vec<FilePath> = match takes_from_lower {
            true => names.iter().map(|listed| listed.name.clone()).collect(),
            false => Vec::new(),
        };
        let is_like = |old: &Dir| old.tree.is_some() && old.merges == lower.merges && lower.layers.is_empty();
        let mut same = old.is_some_and(is_like);
        let mut hides_something = false;
        let mut known = old.map_or(&[][..], |old| &old.items).iter().peekable();
        let rules_are_old = !scope.is_ignored && old.is_some_and(|old| old.rules == rules.hash);
        // Subdirectories that are ignored and contain tracked entries.
        let mut ignored = Vec::new();
        let mut is_any_ignored = scope.is_ignored;
        for listed in names {
            while known.next_if(|item| item.name < listed.name).is_some() {
                same = false;
            }
            let before = known.next_if(|item| item.name == listed.name);
            let (item, is_ignored) = match self.entry(&here, listed, before, scope, rules_are_old)? {
                Some((item, is_ignored)) => (Some(item), is_ignored),
                None => (None, false),
            };
            is_any_ignored |= is_ignored;
            ignored
                .extend(item.as_ref().filter(|item| is_ignored && item.is_directory()).map(|item| item.name.clone()));
            match (item, before) {
                (Some(item), Some(before)) => {
                    same &= is_same(&item, before);
                    dir.items.push(item);
                }
                (Some(item), None) => {
                    same = false;
                    dir.items.push(item);
                }
                (None, before) => {
                    same &= before.is_none();
                    hides_something = true;
                }
            }
        }
        same &= known.next().is_none();
        if is_any_ignored {
            // The tracked versions may change, so these entries are checked again at each walk.
            dir.rules = 0;
        }
        let scope = &Scope { ignored: &ignored, ..*scope };
        let merged = self.descend(&here, old, scope, &mut dir, &mut same, &mut hides_something)?;
        if same {
            dir.tree = old.and_then(|old| old.tree);
            dir.hidden = old.map(|old| old.hidden).unwrap_or_default();
        } else if lower.merges {
            let base = self.base(&here)?;
            if takes_from_lower && let Some(lower_version) = &self.lower_version {
                dir.hidden = lower_version.show_through(base, &overridden, &merged, &mut dir.items)?;
            }
            if let Some(node) = lower.base.filter(|_| equals_tree(&dir, base)) {
                dir.tree = Some((node.sha256, node.size));
            }
        }
        let is_bare = dir.is_bare() && dir.tree.is_none_or(|(tree, _)| tree == *EMPTY_TREE);
        if let Some(lower_version) = &self.lower_version {
            lower_version.add_hidden(dir.hidden);
            hides_something |= is_bare && takes_from_lower && lower_version.has_more_than(path, &overridden);
        }
        Ok(WalkedDir { dir, is_unversioned: is_bare && hides_something })
    }

    /// Whether a versioned entry matches an ignore rule. `None` if the entry is left out: it is ignored and not
    /// tracked.
    fn ignored(
        &self,
        here: &CurrentDir<'_>,
        name: &FilePath,
        is_directory: bool,
        before: Option<&Item>,
        scope: &Scope<'_>,
    ) -> Result<Option<bool>> {
        let path = here.path.join(name);
        if !scope.is_ignored && !scope.rules.ignores(&path, is_directory) {
            return Ok(Some(false));
        }
        let stays = !self.rules.is_absolute(&path) && scope.tracked.has(self, name, is_directory, before)?;
        Ok(stays.then_some(true))
    }

    /// The index entry for a listed name, and whether it matches an ignore rule. `None` if it is not versioned. A
    /// directory is returned without its content.
    fn entry(
        &self,
        here: &CurrentDir<'_>,
        listed: ListedEntry,
        before: Option<&Item>,
        scope: &Scope<'_>,
        rules_are_old: bool,
    ) -> Result<Option<(Item, bool)>> {
        let ListedEntry { name, kind, layer, is_whiteout } = listed;
        let mut is_ignored = false;
        if is_whiteout {
            let usage = before.and_then(|item| if let ItemData::Whiteout(usage) = item.data { usage } else { None });
            return Ok(Some((Item { name, stat: Stat::default(), data: ItemData::Whiteout(usage), layer }, false)));
        }
        let before = before.filter(|item| !item.is_whiteout());
        let is_directory = kind == FileType::Directory;
        // An entry that passed the same rules as the same kind of file passes them again.
        let passed = rules_are_old && before.is_some_and(|item| item.is_directory() == is_directory);
        if !passed && kind != FileType::Unknown {
            match self.ignored(here, &name, is_directory, before, scope)? {
                Some(ignored) => is_ignored = ignored,
                None => return Ok(None),
            }
        }
        if layer != TOP
            && let Some(node) = self.base(here)?.get(&name)
            && node_kind(kind) == Some(node.kind)
        {
            self.count(Usage::of(node).bytes)?;
            return Ok(Some((Item::from_lower(name, node), is_ignored)));
        }
        let Some(fd) = here.fd(layer) else { return Ok(None) };
        let stat = match statat(fd, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) if is_resource_exhaustion(error) => return Err(self.failed(&here.path.join(&name), error)),
            Err(error) => {
                let known = match before {
                    Some(item) => Some(item.clone()),
                    None => self.base(here)?.get(&name).map(|node| Item::from_lower(name.clone(), node)),
                };
                let stays = if known.is_some() { "; its last known content is kept" } else { "" };
                self.skip(here.path.join(&name), format!("{error}{stays}"));
                return Ok(known.map(|known| (known, is_ignored)));
            }
        };
        let listed_kind = kind;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_directory = kind == FileType::Directory;
        if is_directory && self.excluded == Some((stat.st_dev, stat.st_ino)) {
            return Ok(None);
        }
        let passed = rules_are_old && before.is_some_and(|item| item.is_directory() == is_directory);
        if !passed && (listed_kind != kind) {
            match self.ignored(here, &name, is_directory, before, scope)? {
                Some(ignored) => is_ignored = ignored,
                None => return Ok(None),
            }
        }
        let blocks = stat.st_blocks as u64 * 512;
        let stat = Stat::of(&stat);
        let unchanged = |content: &Content| match before {
            Some(before) if before.stat == stat && (!content.racy || self.has_no_writers) => *content,
            _ => Content::UNREAD,
        };
        let data = match (kind, before.map(|item| &item.data)) {
            (FileType::RegularFile, Some(ItemData::File(content))) => ItemData::File(unchanged(content)),
            (FileType::RegularFile, _) => ItemData::File(Content::UNREAD),
            (FileType::Symlink, Some(ItemData::Link(content))) => ItemData::Link(unchanged(content)),
            (FileType::Symlink, _) => ItemData::Link(Content::UNREAD),
            (FileType::Directory, _) => ItemData::Dir(Dir::default()),
            (kind, _) => {
                self.skip(here.path.join(&name), describe(kind));
                return Ok(None);
            }
        };
        let is_file = kind == FileType::RegularFile;
        self.count(if is_file { stat.size.min(blocks) } else { 0 })?;
        Ok(Some((Item { name, stat, data, layer }, is_ignored)))
    }

    fn count(&self, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.check(Usage { files, bytes })
    }

    /// Fails if the usage is more than the budget.
    pub(super) fn check(&self, usage: Usage) -> Result<()> {
        let over = |limit, what| Error::OverBudget {
            directory: self.stack.top().path.display().to_string(),
            limit,
            what,
            heaviest: String::new(),
        };
        match (usage.files > self.budget.files, usage.bytes > self.budget.bytes) {
            (true, _) => Err(over(self.budget.files, "files")),
            (_, true) => Err(over(self.budget.bytes, "bytes")),
            _ => Ok(()),
        }
    }

    /// Reads the rule files of a directory. A later one wins over an earlier one.
    fn rule_texts(&self, here: &CurrentDir<'_>, names: &[ListedEntry]) -> Vec<(FilePath, String)> {
        let mut texts = Vec::new();
        for file in rules::FILES {
            let listed = names.binary_search_by(|listed| listed.name.as_bytes().cmp(file)).ok().map(|at| &names[at]);
            let path = || here.path.join(&FilePath::from(file));
            let read = |listed: &ListedEntry| match listed.is_whiteout {
                true => None,
                false => here.fd(listed.layer).and_then(|fd| rules::read(fd, file)),
            };
            let text = match (listed, &self.lower_version) {
                (listed, Some(lower_version)) if here.lower.merges && here.lower.layers.is_empty() => {
                    lower_version.rule_text(&path(), listed.map(read))
                }
                (listed, _) => listed.and_then(read),
            };
            texts.extend(text.map(|text| (path(), text)));
        }
        texts
    }
}

/// Whether a path is nested deeper than a walk goes.
pub(super) fn is_too_deep(path: &FilePath) -> bool {
    path.as_bytes().iter().filter(|byte| **byte == b'/').count() >= MAX_DEPTH
}

/// Whether the visible entries of a directory are exactly those of a tree.
fn equals_tree(dir: &Dir, tree: &Tree) -> bool {
    let mut items = dir.items.iter().filter(|item| !item.is_whiteout());
    let is_entry = |entry: &rath_core::files::TreeEntry| {
        items.next().is_some_and(|item| item.name == entry.name && item.node() == Some(entry.node))
    };
    tree.entries.iter().all(is_entry) && items.next().is_none()
}

fn node_kind(kind: FileType) -> Option<NodeKind> {
    match kind {
        FileType::RegularFile => Some(NodeKind::File),
        FileType::Directory => Some(NodeKind::Directory),
        FileType::Symlink => Some(NodeKind::Symlink),
        _ => None,
    }
}

/// Whether an error means that this process ran out of file descriptors or memory. Such an error says nothing about the
/// file, so the whole operation must fail instead of leaving out the file.
pub(super) fn is_resource_exhaustion(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Whether an entry would be the same tree node as before. Directories count as equal here: they are compared after
/// they have been walked.
fn is_same(item: &Item, before: &Item) -> bool {
    let kept = match (&item.data, &before.data) {
        (ItemData::File(now), ItemData::File(then)) | (ItemData::Link(now), ItemData::Link(then)) => {
            now.digest.is_some() && now.digest == then.digest && now.size == then.size
        }
        (ItemData::Dir(_), ItemData::Dir(_)) | (ItemData::Whiteout(_), ItemData::Whiteout(_)) => true,
        _ => false,
    };
    kept && item.stat.permissions() == before.stat.permissions()
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "not a file, directory or link",
    }
}
