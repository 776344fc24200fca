//! Restores a plain directory to a version.
//!
//! The present files are saved first, so that nothing is lost. Then a journal is written that names both versions, the
//! differing paths are rewritten, and the journal is removed. Each file is written under a temporary name in its
//! directory and renamed. So if the process dies, each path has either its old or its new content, and the next open
//! completes the restore. A path that changed after the save is left alone and reported.
//!
//! Directories get their permissions last, because a read-only directory could not be filled.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rath_core::Digest;
use rath_core::files::{Change, FilePath, Node, NodeKind, Tree, TreeStore, Version, diff};
use rayon::prelude::*;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, chmodat, fchmod, mkdirat, openat, readlinkat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::Workspace;
use super::content::now;
use super::error::{Error, Result};
use super::index::{Content, Dir, Item, ItemData, Stat};
use super::journal::Journal;
use super::layers::Lookup;
use super::root::{DIRECTORY, READ, os};
use super::tree_writer::TreeWriter;

/// Up to this number of files, each is synced by itself. More are synced together with the whole file system.
pub(super) const SYNCED_SINGLY: usize = 32;

/// The result of a restore.
#[derive(Clone, Debug)]
pub struct RestoreOutcome {
    /// The version before the restore. It is in the store.
    pub from: Version,
    /// The version of the files now. It differs from the requested one if paths were left alone.
    pub version: Version,
    /// The changes that were made.
    pub changed: Vec<Change>,
    /// Paths that changed during the restore. They were left as they are.
    pub kept: Vec<FilePath>,
}

/// The result for one path.
enum PathOutcome {
    Done(Option<(Stat, ItemData)>),
    Kept,
}

impl Workspace {
    /// Restores the files to version `to`. The present files are saved first. With `known`, fails with
    /// [`Error::OutsideChanges`] if they differ from that version; without, replaces whatever is there.
    pub fn restore(&mut self, known: Option<&Version>, to: &Version) -> Result<RestoreOutcome> {
        let present = self.save()?.version;
        if let Some(known) = known.filter(|known| !known.same_files(&present)) {
            let changes = self.changes(known, &present)?;
            // The versions may differ only in paths that have been hidden since.
            if !changes.is_empty() {
                return Err(Error::OutsideChanges { changes });
            }
        }
        self.track_also(&[to]);
        let restored = match self.layered.is_some() {
            true => self.restore_layered_from(present.clone(), to),
            false => self.restore_from(present.clone(), to),
        };
        self.track_only(restored.as_ref().map_or(&present, |restored| &restored.version));
        restored
    }

    fn restore_from(&mut self, from: Version, to: &Version) -> Result<RestoreOutcome> {
        let changes = self.changes(&from, to)?;
        if changes.is_empty() {
            return Ok(RestoreOutcome { version: from.clone(), from, changed: changes, kept: Vec::new() });
        }
        self.check_obstacles(&changes)?;
        let opened = self.unwritable_directories(&changes);
        self.write_journal(&Journal { from: from.clone(), to: to.clone(), opened: opened.clone() })?;
        let kept = match self.apply(&changes, &opened) {
            Ok(kept) => kept,
            Err(error) => {
                // Undo what was done. If that works, the files are as before.
                if self.resume_restore(to, &from, opened).is_ok() {
                    self.remove_journal()?;
                }
                return Err(error);
            }
        };
        self.remove_journal()?;
        let mut trees = Vec::new();
        let (digest, _) = self.index.root.compute(&mut |_, tree| trees.push(tree));
        let version = match kept.is_empty() && digest == to.id() {
            true => {
                self.write_index()?;
                to.clone()
            }
            false => {
                // The next save assumes that the store has the trees of the index.
                pollster::block_on(self.store.blob_put(trees.iter().map(Tree::to_blob).collect()))?;
                self.save_between()?.version
            }
        };
        Ok(RestoreOutcome { from, version, changed: changes, kept })
    }

    /// The differences between two versions, without hidden paths.
    pub fn changes(&self, before: &Version, after: &Version) -> Result<Vec<Change>> {
        let mut changes = pollster::block_on(diff(&self.forest(), before, after))?;
        changes.retain(|change| !self.rules.hides(&change.path));
        Ok(changes)
    }

    /// Directories in which something changes and whose permissions do not allow it, with these permissions.
    fn unwritable_directories(&self, changes: &[Change]) -> Vec<(FilePath, u32)> {
        let directories: BTreeSet<FilePath> = changes.iter().map(|change| change.path.split().0).collect();
        let closed = |path: FilePath| {
            let mode =
                self.index.root.at(&path).filter(|item| matches!(item.data, ItemData::Dir(_)))?.stat.permissions();
            (mode & 0o300 != 0o300).then_some((path, mode))
        };
        directories.into_iter().filter_map(closed).collect()
    }

    /// Those of the directories that an interrupted restore made writable that still exist.
    pub(super) fn still_opened(&self, opened: Vec<(FilePath, u32)>) -> Vec<(FilePath, u32)> {
        let is_there = |path: &FilePath| matches!(self.index.root.at(path), Some(Item { data: ItemData::Dir(_), .. }));
        opened.into_iter().filter(|(path, _)| is_there(path)).collect()
    }

    /// Fails if an unversioned file is at a path that a change must write or remove.
    pub(super) fn check_obstacles(&self, changes: &[Change]) -> Result<()> {
        let mut paths = Vec::new();
        let forest = TreeStore::new(&*self.store);
        // Below a directory that does not exist yet, nothing can be in the way.
        let mut free: Option<&FilePath> = None;
        for change in changes {
            match (change.before, change.after) {
                (_, Some(_)) if self.rules.forbids(&change.path) => paths.push(change.path.clone()),
                (None, Some(_)) if free.is_some_and(|free| is_below(&change.path, free)) => {}
                (None, Some(after)) => match self.stack.look_up(&change.path) {
                    Ok(Lookup::Missing) => free = Some(&change.path),
                    Ok(spot) if !self.is_compatible(&change.path, &spot, &after) => paths.push(change.path.clone()),
                    _ => {}
                },
                (Some(before), Some(after)) if before.is_directory() && !after.is_directory() => {
                    if let Ok(Lookup::Directory(layers, _)) = self.stack.look_up(&change.path) {
                        self.stack.unversioned(&forest, &change.path, &layers, Some(before), &mut paths);
                    }
                }
                _ => {}
            }
        }
        match paths.is_empty() {
            true => Ok(()),
            false => Err(Error::InTheWay { paths }),
        }
    }

    fn is_free_or_equal(&self, path: &FilePath, after: &Node) -> bool {
        match self.stack.look_up(path) {
            Ok(Lookup::Missing) | Err(_) => true,
            Ok(spot) => self.is_compatible(path, &spot, after),
        }
    }

    /// Whether the entry at a path is compatible with the node to be written: a directory where a directory is needed,
    /// or an unversioned file that has the wanted content already.
    fn is_compatible(&self, path: &FilePath, spot: &Lookup, after: &Node) -> bool {
        let (directory, name) = path.split();
        match spot {
            Lookup::Missing => true,
            Lookup::Directory(..) => after.is_directory(),
            Lookup::Other(layer) => match self.stack.root(*layer).directory(&directory) {
                Ok(directory) => has_content(directory.as_fd(), &name, after),
                Err(_) => true,
            },
        }
    }

    /// Makes the changes on disk and updates the index. The directories in `opened` are writable during that and get
    /// their permissions back. Returns the paths that were left alone.
    pub(super) fn apply(&mut self, changes: &[Change], opened: &[(FilePath, u32)]) -> Result<Vec<FilePath>> {
        let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
        let mut fates: Vec<(&Change, PathOutcome)> = Vec::with_capacity(changes.len());
        for (path, mode) in opened {
            // If this fails, the changes in the directory report the error.
            let _ = self.set_mode(path, mode | 0o700, DIRECTORY);
        }
        // Removals come first, to make room: files, then directories, deepest first.
        let goes = |change: &&Change| change.before.is_some() && !is_dir(&change.before);
        for change in changes.iter().filter(goes).filter(|change| change.after.is_none() || is_dir(&change.after)) {
            fates.push((change, self.remove_file(&change.path)?));
        }
        for change in changes.iter().rev().filter(|change| is_dir(&change.before) && !is_dir(&change.after)) {
            self.remove_directory(&change.path)?;
            fates.push((change, PathOutcome::Done(None)));
        }
        let mut made = Vec::new();
        for change in changes.iter().filter(|change| is_dir(&change.after)) {
            match is_dir(&change.before) || self.make_directory(&change.path)? {
                true => made.push(change),
                false => fates.push((change, PathOutcome::Kept)),
            }
        }
        let writes: Vec<&Change> =
            changes.iter().filter(|change| change.after.is_some() && !is_dir(&change.after)).collect();
        let singly = writes.len() <= SYNCED_SINGLY;
        let written: Vec<PathOutcome> =
            writes.par_iter().map(|change| self.write_file(change, singly)).collect::<Result<_>>()?;
        for (path, mode) in opened.iter().rev() {
            let _ = self.set_mode(path, *mode, DIRECTORY);
        }
        let finished: Vec<_> = made.iter().rev().map(|change| self.finish_directory(change)).collect::<Result<_>>()?;
        // In the index, a directory must be set before its entries.
        fates.extend(made.into_iter().zip(finished.into_iter().rev()));
        fates.extend(writes.into_iter().zip(written));
        if !singly {
            let synced = rustix::fs::syncfs(self.stack.top().fd());
            synced.map_err(|error| Error::machine("syncing the file system", error))?;
        }
        let mut kept = Vec::new();
        for (change, fate) in fates {
            match fate {
                PathOutcome::Done(Some((stat, ItemData::Dir(_)))) if is_dir(&change.before) => {
                    self.index.root.set_stat(&change.path, stat);
                }
                PathOutcome::Done(entry) => self.index.root.set(&change.path, entry),
                PathOutcome::Kept => kept.push(change.path.clone()),
            }
        }
        Ok(kept)
    }

    /// Whether the path still has the content that the index has. A different stat alone is not a change: removing one
    /// hard link of a file changes the stat of the others.
    fn is_untouched(&self, path: &FilePath) -> bool {
        let (directory, name) = path.split();
        let Ok(directory) = self.stack.top().directory(&directory) else { return false };
        match (statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW), self.index.root.at(path)) {
            (Ok(stat), Some(item)) => {
                let stat = Stat::of(&stat);
                let is_sure = matches!(&item.data, ItemData::File(content) | ItemData::Link(content) if !content.racy);
                (stat == item.stat && is_sure)
                    || (stat.mode == item.stat.mode
                        && item.node().is_some_and(|node| has_content(directory.as_fd(), &name, &node)))
            }
            (Err(Errno::NOENT), None) => true,
            _ => false,
        }
    }

    fn failed(&self, doing: &str, path: &FilePath) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.stack.top().path.display());
        move |error| Error::machine(doing, error)
    }

    fn remove_file(&self, path: &FilePath) -> Result<PathOutcome> {
        if !self.is_untouched(path) {
            return Ok(PathOutcome::Kept);
        }
        let (directory, name) = path.split();
        let directory =
            self.stack.top().directory(&directory).map_err(self.failed("opening the directory of", path))?;
        match unlinkat(&directory, os(&name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(PathOutcome::Done(None)),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    /// Removes a directory. One that still contains ignored files stays.
    fn remove_directory(&self, path: &FilePath) -> Result<()> {
        let (directory, name) = path.split();
        let Ok(directory) = self.stack.top().directory(&directory) else { return Ok(()) };
        match unlinkat(&directory, os(&name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    /// Creates a directory with mode 0700. Returns whether there is a directory at the path now.
    fn make_directory(&self, path: &FilePath) -> Result<bool> {
        let (directory, name) = path.split();
        let directory = match self.stack.top().directory(&directory) {
            Ok(directory) => directory,
            Err(error) if has_no_parent(error) => return Ok(false),
            Err(error) => return Err(self.failed("opening the directory of", path)(error)),
        };
        match mkdirat(&directory, os(&name), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                let stat = statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW);
                Ok(stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory))
            }
            Err(error) => Err(self.failed("making", path)(error)),
        }
    }

    /// Sets the permissions of a directory.
    fn finish_directory(&self, change: &Change) -> Result<PathOutcome> {
        let (path, Some(node)) = (&change.path, change.after) else { return Ok(PathOutcome::Done(None)) };
        match self.set_mode(path, node.mode, DIRECTORY) {
            Ok(stat) => Ok(PathOutcome::Done(Some((stat, ItemData::Dir(Dir::default()))))),
            Err(error) if has_no_parent(error) => Ok(PathOutcome::Kept),
            Err(error) => Err(self.failed("setting the permissions of", path)(error)),
        }
    }

    /// Sets the permissions of a file or directory and returns its new stat. Does not follow links.
    pub(super) fn set_mode(&self, path: &FilePath, mode: u32, open: OFlags) -> rustix::io::Result<Stat> {
        let (directory, name) = path.split();
        let directory = self.stack.top().directory(&directory)?;
        match openat(&directory, os(&name), open, Mode::empty()) {
            Ok(file) => fchmod(file, Mode::from_raw_mode(mode))?,
            // It is not a link, and its permissions do not allow reading it.
            Err(Errno::ACCESS) => chmodat(&directory, os(&name), Mode::from_raw_mode(mode), AtFlags::empty())?,
            Err(error) => return Err(error),
        }
        Ok(Stat::of(&statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Writes the file or link of a change.
    fn write_file(&self, change: &Change, sync: bool) -> Result<PathOutcome> {
        let (path, Some(node)) = (&change.path, change.after) else { return Ok(PathOutcome::Done(None)) };
        let (directory, name) = path.split();
        let directory = match self.stack.top().directory(&directory) {
            Ok(directory) => directory,
            // Its parent is missing or not a directory.
            Err(error) if has_no_parent(error) => return Ok(PathOutcome::Kept),
            Err(error) => return Err(self.failed("opening the directory of", path)(error)),
        };
        let look = || statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW).map_err(self.failed("looking at", path));
        let set_mode = || self.set_mode(path, node.mode, READ).map_err(self.failed("setting the permissions of", path));
        let same_content = change.before.is_some_and(|before| before.kind == node.kind && before.sha256 == node.sha256);
        // A file with several hard links is written again instead, so that the other links keep their permissions.
        let stat = if same_content && node.is_file() && look().is_ok_and(|stat| stat.st_nlink == 1) {
            // The content may have changed since the save, but it must be the same file.
            let is_same = |item: &Item| look().is_ok_and(|stat| Stat::of(&stat).inode == item.stat.inode);
            if !self.index.root.at(path).is_some_and(is_same) {
                return Ok(PathOutcome::Kept);
            }
            set_mode()?
        } else {
            // If the change replaces a directory, that has been removed already.
            let replaces = change.before.is_some_and(|before| !before.is_directory());
            let is_replaced = self.replace_file(directory.as_fd(), &name, path, &node, replaces, sync)?;
            // Another file appeared at the path. That is fine only if it has the wanted content.
            if !is_replaced && (replaces || !self.is_free_or_equal(path, &node)) {
                return Ok(PathOutcome::Kept);
            }
            let stat = Stat::of(&look()?);
            match node.is_file() && stat.permissions() != node.mode {
                true => set_mode()?,
                false => stat,
            }
        };
        let content = Content { digest: Some(node.sha256), size: node.size, racy: stat.is_racy(now()) };
        let data = if node.kind == NodeKind::Symlink { ItemData::Link(content) } else { ItemData::File(content) };
        Ok(PathOutcome::Done(Some((stat, data))))
    }

    /// Writes a file or link under a temporary name and renames it. Returns `false` without changing anything if the
    /// path does not have what the change replaces.
    fn replace_file(
        &self,
        at: BorrowedFd<'_>,
        name: &FilePath,
        path: &FilePath,
        node: &Node,
        replaces: bool,
        sync: bool,
    ) -> Result<bool> {
        let temporary = FilePath::from(format!(".rath-{}.tmp", rath_core::fresh_name()).as_str());
        let made = TreeWriter::new(&*self.store, &self.stack.top().path).make(at, &temporary, node, path, sync);
        let (from, to) = (os(&temporary), os(name));
        let placed = made.and_then(|()| match replaces {
            true if !self.is_untouched(path) => Ok(false),
            true => renameat(at, from, at, to).map(|()| true).map_err(self.failed("putting in place", path)),
            false => match renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(self.failed("putting in place", path)(error)),
            },
        });
        if !matches!(placed, Ok(true)) {
            let _ = unlinkat(at, os(&temporary), AtFlags::empty());
        }
        placed
    }
}

/// Whether a name is that of a temporary file of a restore.
pub(super) fn is_temporary(name: &FilePath) -> bool {
    name.as_bytes().starts_with(b".rath-") && name.as_bytes().ends_with(b".tmp")
}

/// Whether a path is below a directory, at any depth.
fn is_below(path: &FilePath, directory: &FilePath) -> bool {
    path.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Whether an error means that a parent directory is missing or not a directory.
fn has_no_parent(error: Errno) -> bool {
    matches!(error, Errno::NOTDIR | Errno::NOENT | Errno::LOOP)
}

/// Whether `name` is a file or link with the content of `node`.
fn has_content(at: BorrowedFd<'_>, name: &FilePath, node: &Node) -> bool {
    let digest = match node.kind {
        NodeKind::File => {
            let Ok(file) = openat(at, os(name), READ, Mode::empty()).map(File::from) else { return false };
            match file.metadata() {
                Ok(meta) if meta.is_file() && meta.len() == node.size => hash_of(file).ok(),
                _ => None,
            }
        }
        NodeKind::Symlink => readlinkat(at, os(name), Vec::new()).ok().map(|target| Digest::of(target.as_bytes())),
        NodeKind::Directory => None,
    };
    digest == Some(node.sha256)
}

fn hash_of(mut file: File) -> io::Result<Digest> {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest(hash.finalize().into())),
            read => hash.update(&buffer[..read]),
        }
    }
}
