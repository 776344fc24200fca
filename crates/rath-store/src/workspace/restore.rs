//! Setting a directory to a version.
//!
//! The present is saved first, so that nothing is lost whatever happens. Then a journal is written that names both
//! versions, only what differs is rewritten, and the journal goes. Each file is made beside its place and renamed
//! into it: a process that dies leaves every path with one of its two contents, and the next open finishes the rest.
//! A path that changed since the present was saved is left alone and named.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rath_core::Digest;
use rath_core::files::{Change, Forest, Name, Node, NodeKind, Version, diff};
use rayon::prelude::*;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, chmodat, fchmod, mkdirat, openat, renameat, renameat_with, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Workspace;
use super::content::now;
use super::error::{Error, Result};
use super::index::{Content, Dir, Stat, What};
use super::root::os;

/// Up to this many files are synced one by one; more are synced together.
const SYNCED_SINGLY: usize = 32;

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What was there before; it is in the store.
    pub from: Version,
    /// What is there now.
    pub version: Version,
    /// What had changed since the version that the caller knew, and was overwritten or taken away.
    pub outside: Vec<Change>,
    /// What was rewritten.
    pub changed: Vec<Change>,
    /// Paths that changed under our hands and were left alone.
    pub kept: Vec<Name>,
}

/// A restore that an earlier process did not finish, and this one did.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What was there before it began.
    pub from: Version,
    /// What it was to become.
    pub to: Version,
    /// What is there now.
    pub version: Version,
    /// Paths that somebody changed meanwhile and that were left alone.
    pub kept: Vec<Name>,
}

/// What a restore is about to do, on disk while it does it.
#[derive(Serialize, Deserialize)]
struct Journal {
    from: Version,
    to: Version,
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
        let outside = match known {
            Some(known) if !known.same_files(&present) => {
                return Err(Error::OutsideChanges { changes: self.changes(known, &present)? });
            }
            _ => Vec::new(),
        };
        self.restore_from(present, to, outside)
    }

    /// As [`restore`](Self::restore) over everything, and says what was not in `known`.
    pub fn restore_over(&mut self, known: &Version, to: &Version) -> Result<Restored> {
        let present = self.save()?.version;
        let outside = self.changes(known, &present)?;
        self.restore_from(present, to, outside)
    }

    fn restore_from(&mut self, from: Version, to: &Version, outside: Vec<Change>) -> Result<Restored> {
        let changes = self.changes(&from, to)?;
        if changes.is_empty() {
            return Ok(Restored { version: from.clone(), from, outside, changed: changes, kept: Vec::new() });
        }
        self.check_way(&changes)?;
        self.write_journal(&Journal { from: from.clone(), to: to.clone() })?;
        let kept = self.apply(&changes)?;
        self.remove_journal()?;
        let mut trees = 0;
        let (digest, _) = self.index.root.compute(&mut |_| trees += 1);
        let version = match kept.is_empty() && digest == to.id() {
            true => {
                self.index.store(&self.index_path())?;
                to.clone()
            }
            false => self.save()?.version,
        };
        Ok(Restored { from, version, outside, changed: changes, kept })
    }

    /// What differs between two versions.
    pub fn changes(&self, before: &Version, after: &Version) -> Result<Vec<Change>> {
        Ok(pollster::block_on(diff(&Forest::new(&*self.store), before, after))?)
    }

    fn journal_path(&self) -> PathBuf {
        self.state.join("restoring")
    }

    fn write_journal(&self, journal: &Journal) -> Result<()> {
        let path = self.journal_path();
        let write = || {
            let beside = path.with_extension("new");
            let mut file = File::create(&beside)?;
            file.write_all(&serde_json::to_vec(journal)?)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            crate::packs::sync_dir(&self.state)
        };
        write().map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }

    fn remove_journal(&self) -> Result<()> {
        let path = self.journal_path();
        let removed = fs::remove_file(&path).and_then(|()| crate::packs::sync_dir(&self.state));
        removed.map_err(|error| Error::machine(format!("removing {}", path.display()), error))
    }

    /// Finishes what an earlier process began.
    pub(super) fn recover(&mut self) -> Result<Option<Recovered>> {
        let path = self.journal_path();
        let journal = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::machine(format!("reading {}", path.display()), error)),
        };
        let journal: Journal = serde_json::from_slice(&journal)
            .map_err(|error| Error::machine(format!("reading {}", path.display()), io::Error::from(error)))?;
        self.save()?;
        let planned = self.changes(&journal.from, &journal.to)?;
        self.sweep_temporaries(&planned);
        let mut open = Vec::new();
        let mut kept = Vec::new();
        for change in planned {
            let there = self.index.root.at(&change.path).and_then(|item| item.node());
            let same = |node: &Option<Node>| match (node, &there) {
                (Some(node), Some(there)) if node.is_directory() => there.is_directory(),
                (node, there) => node == there,
            };
            // What is neither the one nor the other is somebody's; where nothing is, nothing is lost.
            match () {
                () if same(&change.after) && change.after.map(|node| node.mode) == there.map(|node| node.mode) => {}
                () if same(&change.before) || there.is_none() => open.push(Change { before: there, ..change }),
                () => kept.push(change.path),
            }
        }
        self.check_way(&open)?;
        kept.extend(self.apply(&open)?);
        self.remove_journal()?;
        let version = self.save()?.version;
        Ok(Some(Recovered { from: journal.from, to: journal.to, version, kept }))
    }

    /// Takes away what a dead process was writing beside these paths.
    fn sweep_temporaries(&self, changes: &[Change]) {
        let directories: HashSet<Name> = changes.iter().map(|change| change.path.split().0).collect();
        for directory in directories {
            let Ok(fd) = self.root.directory(&directory) else { continue };
            let Ok(entries) = rustix::fs::Dir::read_from(&fd) else { continue };
            for entry in entries.flatten() {
                let name = Name::from(entry.file_name().to_bytes());
                if is_temporary(&name) {
                    let _ = unlinkat(&fd, os(&name), AtFlags::empty());
                }
            }
        }
    }

    /// Whether something that is not versioned stands where a change must go.
    fn check_way(&self, changes: &[Change]) -> Result<()> {
        let mut paths = Vec::new();
        for change in changes {
            match (change.before, change.after) {
                (None, Some(after)) if !self.is_free_for(&change.path, &after) => paths.push(change.path.clone()),
                (Some(before), Some(after)) if before.is_directory() && !after.is_directory() => {
                    let known = self.index.root.at(&change.path).map(|item| &item.what);
                    let known = if let Some(What::Dir(dir)) = known { Some(dir) } else { None };
                    self.hidden(&change.path, known, &mut paths);
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
        let (directory, name) = path.split();
        let Ok(directory) = self.root.directory(&directory) else { return true };
        let Ok(stat) = statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW) else { return true };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => after.is_directory(),
            // A file that was ignored and has what it shall have is no obstacle.
            FileType::RegularFile if after.is_file() && stat.st_size as u64 == after.size => {
                let opened = openat(&directory, os(&name), super::root::READ, Mode::empty());
                opened.is_ok_and(|file| hash_of(File::from(file)).is_ok_and(|digest| digest == after.sha256))
            }
            _ => false,
        }
    }

    /// Paths below a directory that are on disk and not in the index.
    fn hidden(&self, path: &Name, known: Option<&Dir>, found: &mut Vec<Name>) {
        let Ok(fd) = self.root.directory(path) else { return };
        let Ok(entries) = rustix::fs::Dir::read_from(&fd) else { return };
        for entry in entries.flatten() {
            let name = Name::from(entry.file_name().to_bytes());
            if matches!(name.as_bytes(), b"." | b"..") || is_temporary(&name) {
                continue;
            }
            match known.and_then(|dir| dir.get(&name)).map(|item| &item.what) {
                Some(What::Dir(dir)) => self.hidden(&path.join(&name), Some(dir), found),
                Some(_) => {}
                None => found.push(path.join(&name)),
            }
        }
    }

    /// Does what the changes say and brings the index up to date. Returns the paths that were left alone.
    fn apply(&mut self, changes: &[Change]) -> Result<Vec<Name>> {
        let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
        let mut fates: Vec<(&Change, Fate)> = Vec::with_capacity(changes.len());
        // What goes makes room first: files, then directories from below.
        let goes = |change: &&Change| change.before.is_some() && !is_dir(&change.before);
        for change in changes.iter().filter(goes).filter(|change| change.after.is_none() || is_dir(&change.after)) {
            fates.push((change, self.remove_file(&change.path)?));
        }
        for change in changes.iter().rev().filter(|change| is_dir(&change.before) && !is_dir(&change.after)) {
            self.remove_directory(&change.path)?;
            fates.push((change, Fate::Done(None)));
        }
        for change in changes.iter().filter(|change| is_dir(&change.after)) {
            if let Some(after) = change.after {
                let fate = self.make_directory(&change.path, &after, is_dir(&change.before))?;
                fates.push((change, fate));
            }
        }
        let writes: Vec<&Change> =
            changes.iter().filter(|change| change.after.is_some() && !is_dir(&change.after)).collect();
        let singly = writes.len() <= SYNCED_SINGLY;
        let written: Vec<Fate> =
            writes.par_iter().map(|change| self.write_file(change, singly)).collect::<Result<_>>()?;
        fates.extend(writes.into_iter().zip(written));
        if !singly {
            let synced = rustix::fs::syncfs(self.root.fd());
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

    /// Whether the path is still what the index says.
    fn is_untouched(&self, path: &Name) -> bool {
        let (directory, name) = path.split();
        let Ok(directory) = self.root.directory(&directory) else { return false };
        match (statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW), self.index.root.at(path)) {
            (Ok(stat), Some(item)) => Stat::of(&stat) == item.stat,
            (Err(Errno::NOENT), None) => true,
            _ => false,
        }
    }

    fn failed(&self, doing: &str, path: &Name) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.root.path.display());
        move |error| Error::machine(doing, error)
    }

    fn remove_file(&self, path: &Name) -> Result<Fate> {
        if !self.is_untouched(path) {
            return Ok(Fate::Kept);
        }
        let (directory, name) = path.split();
        let directory = self.root.directory(&directory).map_err(self.failed("opening the directory of", path))?;
        match unlinkat(&directory, os(&name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(Fate::Done(None)),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    /// A directory that still holds something ignored stays.
    fn remove_directory(&self, path: &Name) -> Result<()> {
        let (directory, name) = path.split();
        let Ok(directory) = self.root.directory(&directory) else { return Ok(()) };
        match unlinkat(&directory, os(&name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed("removing", path)(error)),
        }
    }

    fn make_directory(&self, path: &Name, node: &Node, there: bool) -> Result<Fate> {
        let (directory, name) = path.split();
        let directory = self.root.directory(&directory).map_err(self.failed("opening the directory of", path))?;
        if !there {
            match mkdirat(&directory, os(&name), Mode::from_raw_mode(0o700)) {
                Ok(()) => {}
                Err(Errno::EXIST) => match statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {}
                    _ => return Ok(Fate::Kept),
                },
                Err(error) => return Err(self.failed("making", path)(error)),
            }
        }
        chmodat(&directory, os(&name), Mode::from_raw_mode(node.mode), AtFlags::empty())
            .map_err(self.failed("setting the permissions of", path))?;
        let stat = statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW).map_err(self.failed("looking at", path))?;
        Ok(Fate::Done(Some((Stat::of(&stat), What::Dir(Dir::default())))))
    }

    /// Makes a file or link beside its place and moves it there.
    fn write_file(&self, change: &Change, sync: bool) -> Result<Fate> {
        let (path, Some(node)) = (&change.path, change.after) else { return Ok(Fate::Done(None)) };
        // What the change replaces by something of another kind is gone already.
        let replaces = change.before.is_some_and(|before| !before.is_directory());
        if replaces && !self.is_untouched(path) {
            return Ok(Fate::Kept);
        }
        let (directory, name) = path.split();
        let directory = match self.root.directory(&directory) {
            Ok(directory) => directory,
            // Something else stands where its directory should be.
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => return Ok(Fate::Kept),
            Err(error) => return Err(self.failed("opening the directory of", path)(error)),
        };
        let same_content = change.before.is_some_and(|before| before.kind == node.kind && before.sha256 == node.sha256);
        if same_content && node.kind == NodeKind::File {
            chmodat(&directory, os(&name), Mode::from_raw_mode(node.mode), AtFlags::empty())
                .map_err(self.failed("setting the permissions of", path))?;
        } else {
            let temporary = Name::from(format!(".rath-{}.tmp", rath_core::fresh_name()).as_str());
            let made = match node.kind {
                NodeKind::Symlink => self.make_link(directory.as_fd(), &temporary, &node, path),
                _ => self.make_file(directory.as_fd(), &temporary, &node, path, sync),
            };
            let placed = made.and_then(|()| {
                let (from, to) = (os(&temporary), os(&name));
                match replaces {
                    true => renameat(&directory, from, &directory, to),
                    false => renameat_with(&directory, from, &directory, to, RenameFlags::NOREPLACE),
                }
                .map(|()| true)
                .or_else(|error| match error {
                    Errno::EXIST => Ok(false),
                    error => Err(self.failed("putting in place", path)(error)),
                })
            });
            match placed {
                Ok(true) => {}
                refused => {
                    let _ = unlinkat(&directory, os(&temporary), AtFlags::empty());
                    // Somebody was faster, or it was there with this very content.
                    let adopted = refused? || self.is_free_for(path, &node);
                    if !adopted {
                        return Ok(Fate::Kept);
                    }
                }
            }
        }
        let stat = statat(&directory, os(&name), AtFlags::SYMLINK_NOFOLLOW).map_err(self.failed("looking at", path))?;
        let stat = Stat::of(&stat);
        let content = Content { digest: Some(node.sha256), size: node.size, racy: stat.is_racy(now()) };
        let what = if node.kind == NodeKind::Symlink { What::Link(content) } else { What::File(content) };
        Ok(Fate::Done(Some((stat, what))))
    }

    fn make_link(&self, at: std::os::fd::BorrowedFd<'_>, temporary: &Name, node: &Node, path: &Name) -> Result<()> {
        let target = pollster::block_on(Forest::new(&*self.store).content(node.sha256))?;
        symlinkat(os(&Name::from(&*target)), at, os(temporary)).map_err(self.failed("making the link", path))
    }

    fn make_file(
        &self,
        at: std::os::fd::BorrowedFd<'_>,
        temporary: &Name,
        node: &Node,
        path: &Name,
        sync: bool,
    ) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(at, os(temporary), flags, Mode::from_raw_mode(0o600)).map_err(self.failed("making", path))?;
        let mut file = File::from(file);
        let pieces = match node.size > super::content::LARGE {
            true => pollster::block_on(self.store.blob_pieces(node.sha256))?,
            false => None,
        };
        let write = |error: io::Error| Error::machine(format!("writing {}/{path}", self.root.path.display()), error);
        let forest = Forest::new(&*self.store);
        match pieces {
            None => file.write_all(&pollster::block_on(forest.content(node.sha256))?).map_err(write)?,
            Some(pieces) => {
                for piece in pieces {
                    let bytes = pollster::block_on(forest.content(piece.digest))?;
                    // Zeros are left as a hole.
                    let done = match bytes.iter().all(|byte| *byte == 0) {
                        true => file.seek(SeekFrom::Current(bytes.len() as i64)).map(drop),
                        false => file.write_all(&bytes),
                    };
                    done.map_err(write)?;
                }
                file.set_len(node.size).map_err(write)?;
            }
        }
        fchmod(&file, Mode::from_raw_mode(node.mode)).map_err(self.failed("setting the permissions of", path))?;
        if sync {
            file.sync_data().map_err(write)?;
        }
        Ok(())
    }
}

/// Whether a name is one that a restore gives to what it has not finished.
fn is_temporary(name: &Name) -> bool {
    name.as_bytes().starts_with(b".rath-") && name.as_bytes().ends_with(b".tmp")
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
