//! Setting a directory to a version.
//!
//! The present is saved first, so that nothing is lost whatever happens. Then a journal is written that names both
//! versions, only what differs is rewritten, and the journal goes. Each file is made beside its place and renamed
//! into it: a process that dies leaves every path with one of its two contents, and the next open finishes the rest.
//! A path that changed since the present was saved is left alone and named.
//!
//! Directories get their permissions last: one that nobody may write to must be filled first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rath_core::Digest;
use rath_core::files::{Change, Forest, Name, Node, NodeKind, Tree, Version, diff};
use rayon::prelude::*;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, chmodat, fchmod, mkdirat, openat, readlinkat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::Workspace;
use super::content::now;
use super::error::{Error, Result};
use super::index::{Content, Dir, Item, Stat, What};
use super::journal::Journal;
use super::layers::Spot;
use super::plant::Planter;
use super::root::{DIRECTORY, READ, os};

/// Up to this many files are synced one by one; more are synced together.
pub(super) const SYNCED_SINGLY: usize = 32;

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What was there before; it is in the store.
    pub from: Version,
    /// What is there now.
    pub version: Version,
    /// What was rewritten.
    pub changed: Vec<Change>,
    /// Paths that changed under our hands and were left alone.
    pub kept: Vec<Name>,
}

/// What became of one path.
enum Fate {
    Done(Option<(Stat, What)>),
    Kept,
}

impl Workspace {
    /// Sets the directory to version `to`. With `known`, stops when anything differs from that version; without, goes
    /// over what is there, which was saved first.
    pub fn restore(&mut self, known: Option<&Version>, to: &Version) -> Result<Restored> {
        let present = self.save()?.version;
        if let Some(known) = known.filter(|known| !known.same_files(&present)) {
            let changes = self.changes(known, &present)?;
            // What was hidden since is no change.
            if !changes.is_empty() {
                return Err(Error::OutsideChanges { changes });
            }
        }
        self.follow_too(&[to]);
        let restored = match self.site.is_some() {
            true => self.relay_from(present.clone(), to),
            false => self.restore_from(present.clone(), to),
        };
        self.follow(restored.as_ref().map_or(&present, |restored| &restored.version));
        restored
    }

    fn restore_from(&mut self, from: Version, to: &Version) -> Result<Restored> {
        let changes = self.changes(&from, to)?;
        if changes.is_empty() {
            return Ok(Restored { version: from.clone(), from, changed: changes, kept: Vec::new() });
        }
        self.check_way(&changes)?;
        let opened = self.closed_directories(&changes);
        self.write_journal(&Journal { from: from.clone(), to: to.clone(), opened: opened.clone() })?;
        let kept = match self.apply(&changes, &opened) {
            Ok(kept) => kept,
            Err(error) => {
                // What can be taken back is: then it is as if nothing had been tried.
                if self.go_on(to, &from, opened).is_ok() {
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
                // The index takes them for known: the store has to have them.
                pollster::block_on(self.store.blob_put(trees.iter().map(Tree::to_blob).collect()))?;
                self.save_between()?.version
            }
        };
        Ok(Restored { from, version, changed: changes, kept })
    }

    /// What differs between two versions, apart from what is hidden.
    pub fn changes(&self, before: &Version, after: &Version) -> Result<Vec<Change>> {
        let mut changes = pollster::block_on(diff(&self.forest(), before, after))?;
        changes.retain(|change| !self.rules.hides(&change.path));
        Ok(changes)
    }

    /// Directories in which something changes and which do not let their owner do it.
    fn closed_directories(&self, changes: &[Change]) -> Vec<(Name, u32)> {
        let directories: BTreeSet<Name> = changes.iter().map(|change| change.path.split().0).collect();
        let closed = |path: Name| {
            let mode = self.index.root.at(&path).filter(|item| matches!(item.what, What::Dir(_)))?.stat.permissions();
            (mode & 0o300 != 0o300).then_some((path, mode))
        };
        directories.into_iter().filter_map(closed).collect()
    }

    /// Of the directories that a dead process made writable, those that are there.
    pub(super) fn left_open(&self, opened: Vec<(Name, u32)>) -> Vec<(Name, u32)> {
        let is_there = |path: &Name| matches!(self.index.root.at(path), Some(Item { what: What::Dir(_), .. }));
        opened.into_iter().filter(|(path, _)| is_there(path)).collect()
    }

    /// Whether something that is not versioned stands where a change must go.
    pub(super) fn check_way(&self, changes: &[Change]) -> Result<()> {
        let mut paths = Vec::new();
        let forest = Forest::new(&*self.store);
        // Below a directory that is to be made where nothing stands, nothing is in the way.
        let mut free: Option<&Name> = None;
        for change in changes {
            match (change.before, change.after) {
                (_, Some(_)) if self.rules.forbid(&change.path) => paths.push(change.path.clone()),
                (None, Some(_)) if free.is_some_and(|free| is_below(&change.path, free)) => {}
                (None, Some(after)) => match self.stack.look(&change.path) {
                    Ok(Spot::Nothing) => free = Some(&change.path),
                    Ok(spot) if !self.is_what(&change.path, &spot, &after) => paths.push(change.path.clone()),
                    _ => {}
                },
                (Some(before), Some(after)) if before.is_directory() && !after.is_directory() => {
                    if let Ok(Spot::Directory(layers, _)) = self.stack.look(&change.path) {
                        self.stack.hidden(&forest, &change.path, &layers, Some(before), &mut paths);
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

    fn is_free_for(&self, path: &Name, after: &Node) -> bool {
        match self.stack.look(path) {
            Ok(Spot::Nothing) | Err(_) => true,
            Ok(spot) => self.is_what(path, &spot, after),
        }
    }

    /// Whether what stands at a path is no obstacle: a directory where one shall be, or what was ignored and is what it
    /// shall be.
    fn is_what(&self, path: &Name, spot: &Spot, after: &Node) -> bool {
        let (directory, name) = path.split();
        match spot {
            Spot::Nothing => true,
            Spot::Directory(..) => after.is_directory(),
            Spot::Other(layer) => match self.stack.root(*layer).directory(&directory) {
                Ok(directory) => holds(directory.as_fd(), &name, after),
                Err(_) => true,
            },
        }
    }

    /// Does what the changes say and brings the index up to date; `opened` are directories that are made writable for
    /// that time. Returns the paths that were left alone.
    pub(super) fn apply(&mut self, changes: &[Change], opened: &[(Name, u32)]) -> Result<Vec<Name>> {
        let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
        let mut fates: Vec<(&Change, Fate)> = Vec::with_capacity(changes.len());
        for (path, mode) in opened {
            // Where that is refused, what is to be done in the directory says so.
            let _ = self.set_mode(path, mode | 0o700, DIRECTORY);
        }
        // What goes makes room first: files, then directories from below.
        let goes = |change: &&Change| change.before.is_some() && !is_dir(&change.before);
        for change in changes.iter().filter(goes).filter(|change| change.after.is_none() || is_dir(&change.after)) {
            fates.push((change, self.remove_file(&change.path)?));
        }
        for change in changes.iter().rev().filter(|change| is_dir(&change.before) && !is_dir(&change.after)) {
            self.remove_directory(&change.path)?;
            fates.push((change, Fate::Done(None)));
        }
        let mut made = Vec::new();
        for change in changes.iter().filter(|change| is_dir(&change.after)) {
            match is_dir(&change.before) || self.make_directory(&change.path)? {
                true => made.push(change),
                false => fates.push((change, Fate::Kept)),
            }
        }
        let writes: Vec<&Change> =
            changes.iter().filter(|change| change.after.is_some() && !is_dir(&change.after)).collect();
        let singly = writes.len() <= SYNCED_SINGLY;
        let written: Vec<Fate> =
            writes.par_iter().map(|change| self.write_file(change, singly)).collect::<Result<_>>()?;
        for (path, mode) in opened.iter().rev() {
            let _ = self.set_mode(path, *mode, DIRECTORY);
        }
        let finished: Vec<_> = made.iter().rev().map(|change| self.finish_directory(change)).collect::<Result<_>>()?;
        // In the index a directory is put before what is in it.
        fates.extend(made.into_iter().zip(finished.into_iter().rev()));
        fates.extend(writes.into_iter().zip(written));
        if !singly {
            let synced = rustix::fs::syncfs(self.stack.top().fd());
            synced.map_err(|error| Error::machine("syncing the file system", error))?;
        }
        let mut kept = Vec::new();
        for (change, fate) in fates {
            match fate {
                Fate::Done(Some((stat, What::Dir(_)))) if is_dir(&change.before) => {
                    self.index.root.set_stat(&change.path, stat);
                }
                Fate::Done(entry) => self.index.root.set(&change.path, entry),
                Fate::Kept => kept.push(change.path.clone()),
            }
        }
        Ok(kept)
    }

    /// Whether the path still holds what the index says. Another stat alone is no change: a file with two names has one
    /// when the other name goes.
    fn is_untouched(&self, path: &Name) -> bool {
        let (directory, name) = path.split();
        let Ok(directory) = self.stack.top().directory(&directory) else { return false };
        match (statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW), self.index.root.at(path)) {
            (Ok(stat), Some(item)) => {
                let stat = Stat::of(&stat);
                let is_sure = matches!(&item.what, What::File(content) | What::Link(content) if !content.racy);
                (stat == item.stat && is_sure)
                    || (stat.mode == item.stat.mode
                        && item.node().is_some_and(|node| holds(directory.as_fd(), &name, &node)))
            }
            (Err(Errno::NOENT), None) => true,
            _ => false,
        }
    }

    fn failed(&self, doing: &str, path: &Name) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.stack.top().path.display());
        move |error| Error::machine(doing, error)
    }

    fn remove_file(&self, path: &Name) -> Result<Fate> {
        if !self.is_untouched(path) {
            return Ok(Fate::Kept);
        }
        let (directory, name) = path.split();
        let directory =
            self.stack.top().directory(&directory).map_err(self.failed("opening the directory of", path))?;
        match unlinkat(&directory, os(&name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(Fate::Done(None)),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    /// A directory that still holds something ignored stays.
    fn remove_directory(&self, path: &Name) -> Result<()> {
        let (directory, name) = path.split();
        let Ok(directory) = self.stack.top().directory(&directory) else { return Ok(()) };
        match unlinkat(&directory, os(&name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    /// Makes a directory that only its owner may enter for now. Says whether there is one.
    fn make_directory(&self, path: &Name) -> Result<bool> {
        let (directory, name) = path.split();
        let directory = match self.stack.top().directory(&directory) {
            Ok(directory) => directory,
            Err(error) if is_elsewhere(error) => return Ok(false),
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

    /// Gives a directory its permissions.
    fn finish_directory(&self, change: &Change) -> Result<Fate> {
        let (path, Some(node)) = (&change.path, change.after) else { return Ok(Fate::Done(None)) };
        match self.set_mode(path, node.mode, DIRECTORY) {
            Ok(stat) => Ok(Fate::Done(Some((stat, What::Dir(Dir::default()))))),
            Err(error) if is_elsewhere(error) => Ok(Fate::Kept),
            Err(error) => Err(self.failed("setting the permissions of", path)(error)),
        }
    }

    /// Sets the permissions of a file or directory, and says what it is then. A link is not followed.
    pub(super) fn set_mode(&self, path: &Name, mode: u32, open: OFlags) -> rustix::io::Result<Stat> {
        let (directory, name) = path.split();
        let directory = self.stack.top().directory(&directory)?;
        match openat(&directory, os(&name), open, Mode::empty()) {
            Ok(file) => fchmod(file, Mode::from_raw_mode(mode))?,
            // It is no link, and we may not read it.
            Err(Errno::ACCESS) => chmodat(&directory, os(&name), Mode::from_raw_mode(mode), AtFlags::empty())?,
            Err(error) => return Err(error),
        }
        Ok(Stat::of(&statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Gives a path its file or link.
    fn write_file(&self, change: &Change, sync: bool) -> Result<Fate> {
        let (path, Some(node)) = (&change.path, change.after) else { return Ok(Fate::Done(None)) };
        let (directory, name) = path.split();
        let directory = match self.stack.top().directory(&directory) {
            Ok(directory) => directory,
            // Something else stands where its directory should be.
            Err(error) if is_elsewhere(error) => return Ok(Fate::Kept),
            Err(error) => return Err(self.failed("opening the directory of", path)(error)),
        };
        let look = || statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW).map_err(self.failed("looking at", path));
        let set_mode = || self.set_mode(path, node.mode, READ).map_err(self.failed("setting the permissions of", path));
        let same_content = change.before.is_some_and(|before| before.kind == node.kind && before.sha256 == node.sha256);
        // The other names of a file keep their permissions: then it is made anew.
        let stat = if same_content && node.is_file() && look().is_ok_and(|stat| stat.st_nlink == 1) {
            // Permissions are set whatever it holds by now, but not of something else that took its place.
            let is_same = |item: &Item| look().is_ok_and(|stat| Stat::of(&stat).inode == item.stat.inode);
            if !self.index.root.at(path).is_some_and(is_same) {
                return Ok(Fate::Kept);
            }
            set_mode()?
        } else {
            // What the change replaces by something of another kind is gone already.
            let replaces = change.before.is_some_and(|before| !before.is_directory());
            let is_placed = self.place_file(directory.as_fd(), &name, path, &node, replaces, sync)?;
            // Somebody was faster, or it was there with this very content.
            if !is_placed && (replaces || !self.is_free_for(path, &node)) {
                return Ok(Fate::Kept);
            }
            let stat = Stat::of(&look()?);
            match node.is_file() && stat.permissions() != node.mode {
                true => set_mode()?,
                false => stat,
            }
        };
        let content = Content { digest: Some(node.sha256), size: node.size, racy: stat.is_racy(now()) };
        let what = if node.kind == NodeKind::Symlink { What::Link(content) } else { What::File(content) };
        Ok(Fate::Done(Some((stat, what))))
    }

    /// Makes a file or link beside its place and moves it there. `false` when what is there is not what was to be
    /// replaced.
    fn place_file(
        &self,
        at: BorrowedFd<'_>,
        name: &Name,
        path: &Name,
        node: &Node,
        replaces: bool,
        sync: bool,
    ) -> Result<bool> {
        let temporary = Name::from(format!(".rath-{}.tmp", rath_core::fresh_name()).as_str());
        let made = Planter::new(&*self.store, &self.stack.top().path).make(at, &temporary, node, path, sync);
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

/// Whether a name is one that a restore gives to what it has not finished.
pub(super) fn is_temporary(name: &Name) -> bool {
    name.as_bytes().starts_with(b".rath-") && name.as_bytes().ends_with(b".tmp")
}

/// Whether a path is in a directory, however deep.
fn is_below(path: &Name, directory: &Name) -> bool {
    path.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Whether nothing, or something else, stands where a directory should be.
fn is_elsewhere(error: Errno) -> bool {
    matches!(error, Errno::NOTDIR | Errno::NOENT | Errno::LOOP)
}

/// Whether a file or link with this very content stands there.
fn holds(at: BorrowedFd<'_>, name: &Name, node: &Node) -> bool {
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
