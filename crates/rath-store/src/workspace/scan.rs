//! A walk over the files: who is there, who changed. Nothing is read but names, stats and ignore rules.

use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rath_core::files::Name;
use rayon::prelude::*;
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, openat, statat};
use rustix::io::Errno;

use super::Budget;
use super::error::{Error, Result};
use super::index::{Content, Dir, Item, Stat, What};
use super::root::{READ, Root, os};
use super::rules::{self, Level, RuleFile, Rules};

/// Directories in directories, at most: each of them costs a descriptor and some stack.
const DEEPEST: usize = 512;

/// A path that could not be versioned, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The path.
    pub path: Name,
    /// The reason.
    pub why: String,
}

/// What a walk knows while it goes on.
pub(super) struct Walk<'a> {
    pub(super) root: &'a Root,
    pub(super) rules: &'a Rules,
    pub(super) budget: Budget,
    /// The store itself is never part of a workspace: device and inode of its directory.
    pub(super) excluded: Option<(u64, u64)>,
    pub(super) skipped: Mutex<Vec<Skipped>>,
    pub(super) rule_files: Mutex<Vec<RuleFile>>,
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A directory as it was found.
struct Found {
    dir: Dir,
    /// Whether anything in it is not versioned.
    hides_something: bool,
}

impl Walk<'_> {
    /// Walks everything; entries whose stat is the one in `old` keep what is known of them.
    pub(super) fn run(&self, old: &Dir) -> Result<Dir> {
        let fd = self.root.directory(&Name::root()).map_err(|error| self.failed(&Name::root(), error))?;
        Ok(self.directory(fd, &Name::root(), Some(old), &self.rules.level())?.dir)
    }

    fn failed(&self, path: &Name, error: Errno) -> Error {
        Error::machine(format!("reading {}/{path}", self.root.path.display()), error)
    }

    pub(super) fn skip(&self, path: Name, why: impl Into<String>) {
        let skipped = Skipped { path, why: why.into() };
        self.skipped.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(skipped);
    }

    fn directory(&self, fd: OwnedFd, path: &Name, old: Option<&Dir>, above: &Level<'_>) -> Result<Found> {
        let mut listing = Listing::new(fd).map_err(|error| self.failed(path, error))?;
        let mut names = Vec::with_capacity(old.map_or(16, |old| old.items.len() + 1));
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(|error| self.failed(path, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push((Name::from(name), entry.file_type()));
            }
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let fd = listing.fd().map_err(|error| self.failed(path, error))?;
        let texts = self.rule_texts(fd, path, &names);
        let level;
        let rules = match texts.is_empty() && !path.as_bytes().is_empty() {
            true => above,
            false => {
                level = above.down(path, &texts, &self.rule_files);
                &level
            }
        };
        let mut found = Found {
            dir: Dir { tree: None, rules: rules.hash, items: Vec::with_capacity(names.len()) },
            hides_something: false,
        };
        let mut same = old.is_some_and(|old| old.tree.is_some());
        let mut known = old.map_or(&[][..], |old| &old.items).iter().peekable();
        let rules_are_old = old.is_some_and(|old| old.rules == rules.hash);
        for (name, kind) in names {
            while known.next_if(|item| item.name < name).is_some() {
                same = false;
            }
            let before = known.next_if(|item| item.name == name);
            let item = self.entry(fd, path, name, kind, before, rules, rules_are_old)?;
            match (item, before) {
                (Some(item), Some(before)) => {
                    same &= is_same(&item, before);
                    found.dir.items.push(item);
                }
                (Some(item), None) => {
                    same = false;
                    found.dir.items.push(item);
                }
                (None, before) => {
                    same &= before.is_none();
                    found.hides_something = true;
                }
            }
        }
        same &= known.next().is_none();
        self.descend(fd, path, old, rules, &mut found, &mut same)?;
        if same {
            found.dir.tree = old.and_then(|old| old.tree);
        }
        Ok(found)
    }

    /// One entry of a directory; `None` when it is not versioned. Directories are still empty.
    #[allow(clippy::too_many_arguments, reason = "the state of one loop")]
    fn entry(
        &self,
        fd: BorrowedFd<'_>,
        directory: &Name,
        name: Name,
        kind: FileType,
        before: Option<&Item>,
        rules: &Level<'_>,
        rules_are_old: bool,
    ) -> Result<Option<Item>> {
        let is_directory = kind == FileType::Directory;
        // What passed these very rules as the same kind of thing passes them again.
        let passed = rules_are_old && before.is_some_and(|item| matches!(item.what, What::Dir(_)) == is_directory);
        if !passed && kind != FileType::Unknown && rules.ignores(&directory.join(&name), is_directory) {
            return Ok(None);
        }
        let stat = match statat(fd, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) if is_our_lack(error) => return Err(self.failed(&directory.join(&name), error)),
            Err(error) => {
                let stays = if before.is_some() { "; what it last held stays" } else { "" };
                self.skip(directory.join(&name), format!("{error}{stays}"));
                return Ok(before.cloned());
            }
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_directory = kind == FileType::Directory;
        if is_directory && self.excluded == Some((stat.st_dev, stat.st_ino)) {
            return Ok(None);
        }
        let passed = rules_are_old && before.is_some_and(|item| matches!(item.what, What::Dir(_)) == is_directory);
        if !passed && rules.ignores(&directory.join(&name), is_directory) {
            return Ok(None);
        }
        let blocks = stat.st_blocks as u64 * 512;
        let stat = Stat::of(&stat);
        let unchanged = |content: &Content| match before {
            Some(before) if before.stat == stat && !content.racy => *content,
            _ => Content::UNREAD,
        };
        let what = match (kind, before.map(|item| &item.what)) {
            (FileType::RegularFile, Some(What::File(content))) => What::File(unchanged(content)),
            (FileType::RegularFile, _) => What::File(Content::UNREAD),
            (FileType::Symlink, Some(What::Link(content))) => What::Link(unchanged(content)),
            (FileType::Symlink, _) => What::Link(Content::UNREAD),
            (FileType::Directory, _) => What::Dir(Dir::default()),
            (kind, _) => {
                self.skip(directory.join(&name), describe(kind));
                return Ok(None);
            }
        };
        self.count(if is_directory { 0 } else { stat.size.min(blocks) })?;
        Ok(Some(Item { name, stat, what }))
    }

    fn count(&self, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let over = |limit, what| Error::OverBudget {
            directory: self.root.path.display().to_string(),
            limit,
            what,
            heaviest: String::new(),
        };
        match (files > self.budget.files, bytes > self.budget.bytes) {
            (true, _) => Err(over(self.budget.files, "files")),
            (_, true) => Err(over(self.budget.bytes, "bytes")),
            _ => Ok(()),
        }
    }

    /// Walks the directories in a directory, side by side.
    fn descend(
        &self,
        fd: BorrowedFd<'_>,
        path: &Name,
        old: Option<&Dir>,
        rules: &Level<'_>,
        found: &mut Found,
        same: &mut bool,
    ) -> Result<()> {
        let below: Vec<usize> =
            (0..found.dir.items.len()).filter(|at| matches!(found.dir.items[*at].what, What::Dir(_))).collect();
        let items = &found.dir.items;
        let walk = |at: &usize| -> Result<Option<Found>> {
            let name = &items[*at].name;
            let path = path.join(name);
            let before = old.and_then(|old| old.get(name)).and_then(|item| match &item.what {
                What::Dir(dir) => Some(dir),
                _ => None,
            });
            if path.as_bytes().iter().filter(|byte| **byte == b'/').count() >= DEEPEST {
                self.skip(path, "too deep");
                return Ok(None);
            }
            match Root::directory_in(fd, name) {
                Ok(fd) => self.directory(fd, &path, before, rules).map(Some),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                Err(error) if is_our_lack(error) => Err(self.failed(&path, error)),
                // What cannot be read is not gone: what it last held stays.
                Err(error) => match before {
                    Some(before) => {
                        self.skip(path, format!("{error}; what it last held stays"));
                        Ok(Some(Found { dir: before.clone(), hides_something: false }))
                    }
                    None => {
                        self.skip(path, error.to_string());
                        Ok(None)
                    }
                },
            }
        };
        let walked: Vec<Option<Found>> = match below.len() {
            0 => return Ok(()),
            1 => vec![walk(&below[0])?],
            _ => below.par_iter().map(walk).collect::<Result<_>>()?,
        };
        let mut gone = Vec::new();
        for (at, walked) in below.into_iter().zip(walked) {
            match walked {
                // A directory that holds nothing but what is ignored is ignored too: it cannot be restored as it is.
                Some(below) if !(below.dir.items.is_empty() && below.hides_something) => {
                    let unchanged = below.dir.tree.is_some();
                    *same &= unchanged;
                    found.dir.items[at].what = What::Dir(below.dir);
                }
                _ => gone.push(at),
            }
        }
        for at in gone.into_iter().rev() {
            let name = found.dir.items.remove(at).name;
            *same &= old.is_none_or(|old| old.get(&name).is_none());
            found.hides_something = true;
        }
        Ok(())
    }

    /// The rule files among `names`, read; in the order in which the later one wins.
    fn rule_texts(&self, fd: BorrowedFd<'_>, path: &Name, names: &[(Name, FileType)]) -> Vec<(Name, String)> {
        let mut texts = Vec::new();
        for file in rules::FILES {
            let there = names.binary_search_by(|(name, _)| name.as_bytes().cmp(file)).is_ok();
            if let Some(text) = there.then(|| read_text(fd, file)).flatten() {
                texts.push((path.join(&Name::from(file)), text));
            }
        }
        texts
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
        (What::Dir(_), What::Dir(_)) => true,
        _ => false,
    };
    kept && item.stat.permissions() == before.stat.permissions()
}

fn read_text(fd: BorrowedFd<'_>, name: &[u8]) -> Option<String> {
    const LIMIT: u64 = 1 << 20;
    let file = openat(fd.as_fd(), os(&Name::from(name)), READ, Mode::empty()).ok()?;
    let file = std::fs::File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "neither file, directory nor link",
    }
}
