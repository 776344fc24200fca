//! A walk over the files: who is there, who changed. Nothing is read but names, stats and ignore rules.
//!
//! Where directories lie on each other, the walk goes through the top one and takes all else from the version below:
//! see [`Below`].

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use rath_core::Digest;
use rath_core::files::{Forest, Name, NodeKind, Tree, Version};
use rustix::fs::{AtFlags, Dir as Listing, FileType, statat};
use rustix::io::Errno;

use super::Budget;
use super::error::{Error, Result};
use super::index::{Content, Dir, Item, Stat, Weight, What};
use super::layers::{Below, Layer, Listed, Stack, TOP, Under, list};
use super::root::{Root, os};
use super::rules::{self, RuleFile, Rules};
use super::tracked::{Scope, Tracked};

/// Directories in directories, at most: each of them costs a descriptor and some stack.
pub(super) const DEEPEST: usize = 512;

/// A path that could not be versioned, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// The path.
    pub path: Name,
    /// The reason.
    pub why: String,
}

/// The tree of a directory with nothing in it.
static EMPTY_TREE: LazyLock<Digest> = LazyLock::new(|| Digest::of(&Tree::default().encode()));

/// What a walk knows while it goes on.
pub(super) struct Walk<'a> {
    pub(super) stack: &'a Stack,
    pub(super) rules: &'a Rules,
    pub(super) budget: Budget,
    /// The store itself is never part of a workspace: device and inode of its directory.
    pub(super) excluded: Option<(u64, u64)>,
    /// What lies under the top layer.
    pub(super) below: Option<Below<'a>>,
    /// Versions whose paths stay versioned.
    pub(super) tracked: Vec<Version>,
    /// Whether the index has what they have, and nothing else.
    pub(super) index_is_tracked: bool,
    /// Where trees are read.
    pub(super) trees: Forest<'a>,
    /// Whether nobody wrote since the index was made: then no stat in it is racy.
    pub(super) is_quiet: bool,
    pub(super) skipped: Mutex<Vec<Skipped>>,
    pub(super) rule_files: Mutex<Vec<RuleFile>>,
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Directories that were counted, and hold nothing that is versioned.
    pub(super) hollow: AtomicU64,
}

/// A directory as it was found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) dir: Dir,
    /// Whether it holds nothing but what is not versioned. Then it is not versioned either: it cannot be restored as it
    /// is.
    pub(super) is_hollow: bool,
}

/// Directories of layers below that are looked at.
type Lowers = Vec<(Layer, OwnedFd)>;

/// The directory where the walk is.
pub(super) struct Here<'h> {
    pub(super) path: &'h Name,
    /// In the top layer.
    pub(super) top: Option<BorrowedFd<'h>>,
    /// In the layers below, where they are looked at.
    lowers: &'h [(Layer, OwnedFd)],
    pub(super) under: &'h Under,
    base: OnceLock<Arc<Tree>>,
}

impl Here<'_> {
    fn fd(&self, layer: Layer) -> Option<BorrowedFd<'_>> {
        match layer {
            TOP => self.top,
            layer => self.lowers.iter().find(|(one, _)| *one == layer).map(|(_, fd)| fd.as_fd()),
        }
    }
}

impl Walk<'_> {
    /// Walks everything; entries whose stat is the one in `old` keep what is known of them. `None` when the version
    /// below cannot be relied on, and a walk through all layers is needed.
    pub(super) fn run(&self, old: &Dir) -> Result<Option<Dir>> {
        let fd = self.stack.top().directory(&Name::root()).map_err(|error| self.failed(&Name::root(), error))?;
        let under = self.below.as_ref().map(Below::under_root).unwrap_or_default();
        let (level, tracked) = (self.rules.level(), Tracked::root());
        let scope = Scope { rules: &level, tracked: &tracked, is_ignored: false, ignored: &[] };
        let found = self.directory(Some(fd), &under, &Name::root(), Some(old), &scope)?;
        Ok((!self.is_unsure()).then_some(found.dir))
    }

    fn is_unsure(&self) -> bool {
        self.below.as_ref().is_some_and(Below::is_unsure)
    }

    pub(super) fn failed(&self, path: &Name, error: Errno) -> Error {
        Error::machine(format!("reading {}/{path}", self.stack.top().path.display()), error)
    }

    pub(super) fn skip(&self, path: Name, why: impl Into<String>) {
        let skipped = Skipped { path, why: why.into() };
        self.skipped.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(skipped);
    }

    /// What the version below has in this directory.
    pub(super) fn base<'h>(&self, here: &'h Here<'_>) -> Result<&'h Tree> {
        if let (None, Some(below)) = (here.base.get(), &self.below) {
            let _ = here.base.set(below.tree(here.under.base)?);
        }
        Ok(here.base.get_or_init(Arc::default))
    }

    /// What is in a directory, and the directories of the layers below if they were looked at.
    fn names(&self, listing: Option<&mut Listing>, under: &Under, path: &Name) -> Result<(Vec<Listed>, Lowers)> {
        let failed = |error| self.failed(path, error);
        let mut names = match listing {
            Some(listing) => list(listing, TOP, self.stack.has_marks()).map_err(failed)?,
            None => Vec::new(),
        };
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut lowers = Vec::new();
        for &layer in &under.layers {
            let fd = match self.stack.root(layer).directory(path) {
                Ok(fd) => fd,
                Err(error) if is_our_lack(error) => return Err(failed(error)),
                // What the version below has of it was read when it could be.
                Err(_) => continue,
            };
            let mut listing = Listing::new(fd).map_err(failed)?;
            let found = list(&mut listing, layer, true).map_err(failed)?;
            let new = |listed: &Listed| names.binary_search_by(|known| known.name.cmp(&listed.name)).is_err();
            let mut new: Vec<Listed> = found.into_iter().filter(new).collect();
            names.append(&mut new);
            names.sort_by(|a, b| a.name.cmp(&b.name));
            lowers.push((layer, listing.fd().and_then(|fd| Root::directory_in(fd, &".".into())).map_err(failed)?));
        }
        if !under.layers.is_empty() {
            names.retain(|listed| !listed.is_gone);
        }
        Ok((names, lowers))
    }

    pub(super) fn directory(
        &self,
        top: Option<OwnedFd>,
        under: &Under,
        path: &Name,
        old: Option<&Dir>,
        scope: &Scope<'_>,
    ) -> Result<Found> {
        if self.is_unsure() {
            return Ok(Found::default());
        }
        let mut listing = top.map(Listing::new).transpose().map_err(|error| self.failed(path, error))?;
        let (names, lowers) = self.names(listing.as_mut(), under, path)?;
        let top = listing.as_ref().map(Listing::fd).transpose().map_err(|error| self.failed(path, error))?;
        let here = Here { path, top, lowers: &lowers, under, base: OnceLock::new() };
        // What a directory that is ignored says itself does not count, as in git.
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
            merges: under.merges,
            base: under.base,
            items: Vec::with_capacity(names.len()),
            ..Dir::default()
        };
        // Only where the layers below are not looked at, the index has what is above them.
        let takes_from_below = under.merges && under.layers.is_empty();
        let taken: Vec<Name> = match takes_from_below {
            true => names.iter().map(|listed| listed.name.clone()).collect(),
            false => Vec::new(),
        };
        let is_like = |old: &Dir| old.tree.is_some() && old.merges == under.merges && under.layers.is_empty();
        let mut same = old.is_some_and(is_like);
        let mut hides_something = false;
        let mut known = old.map_or(&[][..], |old| &old.items).iter().peekable();
        let rules_are_old = !scope.is_ignored && old.is_some_and(|old| old.rules == rules.hash);
        // Directories that are ignored, and hold what is versioned.
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
            // Whether it stays is asked each time.
            dir.rules = 0;
        }
        let scope = &Scope { ignored: &ignored, ..*scope };
        let merged = self.descend(&here, old, scope, &mut dir, &mut same, &mut hides_something)?;
        if same {
            dir.tree = old.and_then(|old| old.tree);
            dir.lost = old.map(|old| old.lost).unwrap_or_default();
        } else if under.merges {
            let base = self.base(&here)?;
            if takes_from_below && let Some(below) = &self.below {
                dir.lost = below.show_through(base, &taken, &merged, &mut dir.items)?;
            }
            if let Some(node) = under.base.filter(|_| is_what(&dir, base)) {
                dir.tree = Some((node.sha256, node.size));
            }
        }
        let is_bare = dir.is_bare() && dir.tree.is_none_or(|(tree, _)| tree == *EMPTY_TREE);
        if let Some(below) = &self.below {
            below.lose(dir.lost);
            hides_something |= is_bare && takes_from_below && below.hides_in(path, &taken);
        }
        Ok(Found { dir, is_hollow: is_bare && hides_something })
    }

    /// Whether an entry is ignored; `None` when it is left out for that, because no version has it.
    fn ignored(
        &self,
        here: &Here<'_>,
        name: &Name,
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

    /// One entry of a directory, and whether it is ignored; `None` when it is not versioned. Directories are still empty.
    fn entry(
        &self,
        here: &Here<'_>,
        listed: Listed,
        before: Option<&Item>,
        scope: &Scope<'_>,
        rules_are_old: bool,
    ) -> Result<Option<(Item, bool)>> {
        let Listed { name, kind, layer, is_gone } = listed;
        let mut is_ignored = false;
        if is_gone {
            let weight = before.and_then(|item| if let What::Gone(weight) = item.what { weight } else { None });
            return Ok(Some((Item { name, stat: Stat::default(), what: What::Gone(weight), layer }, false)));
        }
        let before = before.filter(|item| !item.is_gone());
        let is_directory = kind == FileType::Directory;
        // What passed these very rules as the same kind of thing passes them again.
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
            self.count(Weight::of(node).bytes)?;
            return Ok(Some((Item::below(name, node), is_ignored)));
        }
        let Some(fd) = here.fd(layer) else { return Ok(None) };
        let stat = match statat(fd, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) if is_our_lack(error) => return Err(self.failed(&here.path.join(&name), error)),
            Err(error) => {
                let known = match before {
                    Some(item) => Some(item.clone()),
                    None => self.base(here)?.get(&name).map(|node| Item::below(name.clone(), node)),
                };
                let stays = if known.is_some() { "; what it last held stays" } else { "" };
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
            Some(before) if before.stat == stat && (!content.racy || self.is_quiet) => *content,
            _ => Content::UNREAD,
        };
        let what = match (kind, before.map(|item| &item.what)) {
            (FileType::RegularFile, Some(What::File(content))) => What::File(unchanged(content)),
            (FileType::RegularFile, _) => What::File(Content::UNREAD),
            (FileType::Symlink, Some(What::Link(content))) => What::Link(unchanged(content)),
            (FileType::Symlink, _) => What::Link(Content::UNREAD),
            (FileType::Directory, _) => What::Dir(Dir::default()),
            (kind, _) => {
                self.skip(here.path.join(&name), describe(kind));
                return Ok(None);
            }
        };
        let is_file = kind == FileType::RegularFile;
        self.count(if is_file { stat.size.min(blocks) } else { 0 })?;
        Ok(Some((Item { name, stat, what, layer }, is_ignored)))
    }

    fn count(&self, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.check(Weight { files, bytes })
    }

    /// Whether so much is within the budget.
    pub(super) fn check(&self, weight: Weight) -> Result<()> {
        let over = |limit, what| Error::OverBudget {
            directory: self.stack.top().path.display().to_string(),
            limit,
            what,
            heaviest: String::new(),
        };
        match (weight.files > self.budget.files, weight.bytes > self.budget.bytes) {
            (true, _) => Err(over(self.budget.files, "files")),
            (_, true) => Err(over(self.budget.bytes, "bytes")),
            _ => Ok(()),
        }
    }

    /// The rule files of a directory, read; in the order in which the later one wins.
    fn rule_texts(&self, here: &Here<'_>, names: &[Listed]) -> Vec<(Name, String)> {
        let mut texts = Vec::new();
        for file in rules::FILES {
            let listed = names.binary_search_by(|listed| listed.name.as_bytes().cmp(file)).ok().map(|at| &names[at]);
            let path = || here.path.join(&Name::from(file));
            let read = |listed: &Listed| match listed.is_gone {
                true => None,
                false => here.fd(listed.layer).and_then(|fd| rules::read(fd, file)),
            };
            let text = match (listed, &self.below) {
                (listed, Some(below)) if here.under.merges && here.under.layers.is_empty() => {
                    below.rule_text(&path(), listed.map(read))
                }
                (listed, _) => listed.and_then(read),
            };
            texts.extend(text.map(|text| (path(), text)));
        }
        texts
    }
}

/// Whether a path has more names than a walk follows.
pub(super) fn is_too_deep(path: &Name) -> bool {
    path.as_bytes().iter().filter(|byte| **byte == b'/').count() >= DEEPEST
}

/// Whether a directory holds exactly what a tree does.
fn is_what(dir: &Dir, tree: &Tree) -> bool {
    let mut items = dir.items.iter().filter(|item| !item.is_gone());
    let is_entry = |entry: &rath_core::files::Entry| {
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

/// Whether the process ran out of something: that says nothing about a file, which must not be missing for it.
pub(super) fn is_our_lack(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Whether an entry is in a tree what it was. Directories are compared when they have been walked.
fn is_same(item: &Item, before: &Item) -> bool {
    let kept = match (&item.what, &before.what) {
        (What::File(now), What::File(then)) | (What::Link(now), What::Link(then)) => {
            now.digest.is_some() && now.digest == then.digest && now.size == then.size
        }
        (What::Dir(_), What::Dir(_)) | (What::Gone(_), What::Gone(_)) => true,
        _ => false,
    };
    kept && item.stat.permissions() == before.stat.permissions()
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "neither file, directory nor link",
    }
}
