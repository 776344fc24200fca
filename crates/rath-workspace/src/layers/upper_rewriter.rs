//! Rewrites an upper directory entry by entry.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rath_core::files::{FilePath, Node, Tree, TreeStore};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, fchmod, mkdirat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::layers_dir::remove_tree;
use super::marks::{self, DirMarker};
use super::stack::{Layer, Lookup, Stack, TOP};
use crate::error::{Error, Result};
use crate::index::Stat;
use crate::root::{Root, os};
use crate::rules::Rules;
use crate::tree_writer::TreeWriter;

/// A directory of the merged view.
pub(super) struct MergedDir {
    pub(super) path: FilePath,
    /// The directory in the upper layer.
    pub(super) top: OwnedFd,
    /// The lower layers that are visible through it.
    pub(super) lowers: Vec<Layer>,
    /// The directory in the lower version, if it is visible.
    pub(super) base: Option<Node>,
}

/// Rewrites an upper directory.
pub(super) struct UpperRewriter<'a> {
    pub(super) stack: &'a Stack,
    pub(super) forest: TreeStore<'a>,
    pub(super) rules: &'a Rules,
    pub(super) tree_writer: TreeWriter<'a>,
    /// The staging directory: new entries are written here, and old ones are moved here to be removed.
    pub(super) staging_fd: OwnedFd,
    pub(super) staging: &'a Path,
    /// Directories that are writable during the restore, sorted by path, with their original permissions.
    pub(super) opened: &'a [(FilePath, u32)],
    pub(super) sync: bool,
    pub(super) written: Vec<(FilePath, Stat, Node)>,
}

fn is_dir(node: &Option<Node>) -> bool {
    node.is_some_and(|node| node.is_directory())
}

impl UpperRewriter<'_> {
    fn failed(&self, doing: &str, path: &FilePath) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.stack.top().path.display());
        move |error| Error::machine(doing, error)
    }

    fn tree(&self, node: Option<Node>) -> Result<Arc<Tree>> {
        match node.filter(Node::is_directory) {
            Some(node) => Ok(pollster::block_on(self.forest.tree(node.sha256))?),
            None => Ok(Arc::default()),
        }
    }

    /// Rewrites the entries of a directory.
    pub(super) fn rewrite_dir(&mut self, dir: &MergedDir, before: Option<Node>, after: Option<Node>) -> Result<()> {
        let (before, after, base) = (self.tree(before)?, self.tree(after)?, self.tree(dir.base)?);
        let names: BTreeSet<&FilePath> =
            before.entries.iter().chain(&after.entries).map(|rewrite_entry| &rewrite_entry.name).collect();
        for name in names {
            let [before, after, base] = [&before, &after, &base].map(|tree| tree.get(name).copied());
            if before != after && !self.rules.hides(&dir.path.join(name)) {
                self.rewrite_entry(dir, name, before, after, base)?;
            }
        }
        Ok(())
    }

    /// Rewrites one entry. `base` is the entry in the lower version.
    fn rewrite_entry(
        &mut self,
        dir: &MergedDir,
        name: &FilePath,
        before: Option<Node>,
        after: Option<Node>,
        base: Option<Node>,
    ) -> Result<()> {
        let path = dir.path.join(name);
        let base = base.filter(|_| !dir.lowers.is_empty());
        match (is_dir(&before), after.filter(Node::is_directory)) {
            (true, Some(directory)) => self.rewrite_subdir(dir, name, before, Some(directory), base),
            (true, None) => match self.has_unversioned(dir, name, before) {
                true => self.rewrite_subdir(dir, name, before, None, base),
                false => {
                    self.remove(dir, name, base)?;
                    after.map_or(Ok(()), |after| self.write_node(dir, name, None, after, base))
                }
            },
            // A directory that contains only ignored files exists although no version has it.
            (false, Some(directory)) => match self.look_up(dir, name) {
                Lookup::Directory(..) => self.rewrite_subdir(dir, name, None, Some(directory), base),
                _ if base == Some(directory) && !self.has_unversioned_below(dir, name, directory) => {
                    self.remove_from_upper(dir.top.as_fd(), name).map_err(self.failed("removing", &path))
                }
                _ => self.write_directory(dir, name, directory),
            },
            (false, None) => match after {
                Some(after) => self.write_node(dir, name, before, after, base),
                None => self.remove(dir, name, base),
            },
        }
    }

    /// Looks up a name in the merged view.
    fn look_up(&self, dir: &MergedDir, name: &FilePath) -> Lookup {
        let layers: Vec<Layer> = std::iter::once(TOP).chain(dir.lowers.iter().copied()).collect();
        self.stack.look_up_in(&dir.path, &layers, name).unwrap_or(Lookup::Missing)
    }

    /// Whether a directory of the merged view contains anything that is not in the tree `node`.
    fn has_unversioned(&self, dir: &MergedDir, name: &FilePath, node: Option<Node>) -> bool {
        let Lookup::Directory(layers, _) = self.look_up(dir, name) else { return false };
        let mut found = Vec::new();
        self.stack.unversioned(&self.forest, &dir.path.join(name), &layers, node, &mut found);
        !found.is_empty()
    }

    /// Whether a directory of the lower layers contains anything that is not in the tree `node`, or is not a directory
    /// there.
    fn has_unversioned_below(&self, dir: &MergedDir, name: &FilePath, node: Node) -> bool {
        match self.stack.look_up_in(&dir.path, &dir.lowers, name) {
            Ok(Lookup::Directory(layers, _)) => {
                let mut found = Vec::new();
                self.stack.unversioned(&self.forest, &dir.path.join(name), &layers, Some(node), &mut found);
                !found.is_empty()
            }
            _ => true,
        }
    }

    /// Rewrites an existing directory. If the target version does not have it (`after` is `None`), it keeps its
    /// permissions.
    fn rewrite_subdir(
        &mut self,
        dir: &MergedDir,
        name: &FilePath,
        before: Option<Node>,
        after: Option<Node>,
        base: Option<Node>,
    ) -> Result<()> {
        let path = dir.path.join(name);
        let failed = |error| self.failed("changing", &path)(error);
        let (lowers, lower_mode) = match self.stack.look_up_in(&dir.path, &dir.lowers, name) {
            Ok(Lookup::Directory(layers, stat)) => (layers, Some(stat.permissions())),
            Ok(_) => (Vec::new(), None),
            // The lower layers cannot be read, so they may be visible.
            Err(_) => (dir.lowers.clone(), None),
        };
        let at = dir.top.as_fd();
        let (top, mode) = match statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let mode = Stat::of(&stat).permissions();
                let top = open_directory(at, name, mode).map_err(failed)?;
                let opened = self.opened.binary_search_by(|(opened, _)| opened.cmp(&path));
                (top, opened.map_or(mode, |at| self.opened[at].1))
            }
            Err(Errno::NOENT) => {
                let mode = lower_mode.or(before.map(|node| node.mode)).unwrap_or(0o755);
                mkdirat(at, os(name), Mode::from_raw_mode(0o700)).map_err(failed)?;
                (Root::directory_in(at, name).map_err(failed)?, mode)
            }
            Err(error) => return Err(failed(error)),
        };
        let is_opaque = marks::dir_marker(top.as_fd()) == DirMarker::Opaque;
        let lowers = if is_opaque { Vec::new() } else { lowers };
        let base = base.filter(|base| base.is_directory() && !lowers.is_empty());
        let below = MergedDir { path, top, lowers, base };
        self.rewrite_dir(&below, before, after)?;
        let mode = after.map_or(mode, |after| after.mode);
        let MergedDir { path, top, lowers, .. } = below;
        fchmod(&top, Mode::from_raw_mode(mode)).map_err(self.failed("setting the permissions of", &path))?;
        if !lowers.is_empty() && lower_mode == Some(mode) {
            // If it is empty, it shows only the lower layers: remove it.
            let _ = unlinkat(dir.top.as_fd(), os(name), AtFlags::REMOVEDIR);
        }
        Ok(())
    }

    /// A fresh name in the staging directory.
    fn fresh_name() -> FilePath {
        FilePath::from(rath_core::fresh_name().as_str())
    }

    /// Removes an entry from the upper directory, so that the lower layers are visible.
    fn remove_from_upper(&self, top: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<()> {
        let stat = match statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return unlinkat(top, os(name), AtFlags::empty());
        }
        // A directory without write permission cannot be moved.
        open_directory(top, name, Stat::of(&stat).permissions())?;
        let removed = Self::fresh_name();
        renameat(top, os(name), &self.staging_fd, os(&removed))?;
        let _ = remove_tree(&self.staging.join(os(&removed)));
        Ok(())
    }

    /// Removes a name from the merged view.
    fn remove(&self, dir: &MergedDir, name: &FilePath, base: Option<Node>) -> Result<()> {
        let path = dir.path.join(name);
        let failed = |error| self.failed("removing", &path)(error);
        // If the lower layers cannot be read, write the whiteout: an unneeded one does no harm.
        let is_below =
            base.is_some() || !matches!(self.stack.look_up_in(&dir.path, &dir.lowers, name), Ok(Lookup::Missing));
        let top = dir.top.as_fd();
        if !is_below {
            return self.remove_from_upper(top, name).map_err(failed);
        }
        let whiteout = Self::fresh_name();
        marks::make_whiteout(self.staging_fd.as_fd(), &whiteout).map_err(failed)?;
        self.install(&whiteout, top, name).map_err(failed)
    }

    /// Moves an entry from the staging directory to a name, replacing what is there.
    fn install(&self, made: &FilePath, top: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<()> {
        let is_directory = |at: BorrowedFd<'_>, name: &FilePath| {
            statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        if !is_directory(self.staging_fd.as_fd(), made) && !is_directory(top, name) {
            return renameat(&self.staging_fd, os(made), top, os(name));
        }
        if is_directory(top, name) {
            let stat = statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW)?;
            open_directory(top, name, Stat::of(&stat).permissions())?;
        }
        match renameat_with(&self.staging_fd, os(made), top, os(name), RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => renameat(&self.staging_fd, os(made), top, os(name)),
            done => {
                done?;
                let old = self.staging.join(os(made));
                if remove_tree(&old).is_err() {
                    let _ = fs::remove_file(&old);
                }
                Ok(())
            }
        }
    }

    /// Writes the file or link at a name.
    fn write_node(
        &mut self,
        dir: &MergedDir,
        name: &FilePath,
        before: Option<Node>,
        node: Node,
        base: Option<Node>,
    ) -> Result<()> {
        let path = dir.path.join(name);
        let top = dir.top.as_fd();
        if base == Some(node) {
            return self.remove_from_upper(top, name).map_err(self.failed("removing", &path));
        }
        let look = || statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW);
        let same_content = before.is_some_and(|before| before.kind == node.kind && before.sha256 == node.sha256);
        let is_alone = |stat: &rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1
        };
        if same_content && node.is_file() && look().is_ok_and(|stat| is_alone(&stat)) {
            let set = rustix::fs::chmodat(top, os(name), Mode::from_raw_mode(node.mode), AtFlags::empty());
            set.map_err(self.failed("setting the permissions of", &path))?;
        } else {
            let made = Self::fresh_name();
            self.tree_writer.make(self.staging_fd.as_fd(), &made, &node, &path, self.sync)?;
            self.install(&made, top, name).map_err(self.failed("putting in place", &path))?;
        }
        let stat = Stat::of(&look().map_err(self.failed("looking at", &path))?);
        self.written.push((path, stat, node));
        Ok(())
    }

    /// Writes a directory with everything in it. It is opaque if a directory is below it.
    fn write_directory(&mut self, dir: &MergedDir, name: &FilePath, node: Node) -> Result<()> {
        let path = dir.path.join(name);
        let failed = |error| self.failed("making", &path)(error);
        let made = Self::fresh_name();
        let staging_fd = self.staging_fd.as_fd();
        mkdirat(staging_fd, os(&made), Mode::from_raw_mode(0o700)).map_err(failed)?;
        let fd = Root::directory_in(staging_fd, &made).map_err(failed)?;
        if !matches!(self.stack.look_up_in(&dir.path, &dir.lowers, name), Ok(Lookup::Missing | Lookup::Other(..))) {
            marks::set_opaque(fd.as_fd()).map_err(failed)?;
        }
        self.tree_writer.tree(fd.as_fd(), &path, node.sha256)?;
        self.install(&made, dir.top.as_fd(), name).map_err(failed)?;
        fchmod(&fd, Mode::from_raw_mode(node.mode)).map_err(failed)
    }
}

/// Opens a directory after making it readable, writable and searchable for its owner.
fn open_directory(at: BorrowedFd<'_>, name: &FilePath, mode: u32) -> rustix::io::Result<OwnedFd> {
    if mode & 0o700 != 0o700 {
        rustix::fs::chmodat(at, os(name), Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?;
    }
    Root::directory_in(at, name)
}
