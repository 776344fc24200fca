//! The recursive part of a walk: visits the subdirectories of a directory.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

use rath_core::files::{FilePath, Node};
use rayon::prelude::*;
use rustix::io::Errno;

use super::error::Result;
use super::index::{Dir, Item, ItemData};
use super::layers::{DirMarker, Lookup, LowerDir, TOP, dir_marker};
use super::root::Root;
use super::scan::{CurrentDir, TOO_DEEP, Walk, WalkedDir, is_resource_exhaustion, is_too_deep};
use super::tracked::Scope;
use crate::pool::FILES;

/// Nesting depth up to which a walk runs on the caller's thread. Deeper directories are walked on the file pool, whose
/// threads have larger stacks.
const SHALLOW: usize = 32;

fn is_deep_for_this_thread(path: &FilePath) -> bool {
    rayon::current_thread_index().is_none() && path.as_bytes().iter().filter(|byte| **byte == b'/').count() >= SHALLOW
}

impl Walk<'_> {
    /// Walks the subdirectories of a directory in parallel. Returns the names of those that are merged with lower
    /// layers.
    pub(super) fn descend(
        &self,
        here: &CurrentDir<'_>,
        old: Option<&Dir>,
        scope: &Scope<'_>,
        dir: &mut Dir,
        same: &mut bool,
        hides_something: &mut bool,
    ) -> Result<Vec<FilePath>> {
        let subdirs: Vec<usize> =
            (0..dir.items.len()).filter(|at| matches!(dir.items[*at].data, ItemData::Dir(_))).collect();
        let items = &dir.items;
        let walk = |at: &usize| -> Result<Option<WalkedDir>> {
            let Item { name, layer, .. } = &items[*at];
            let path = here.path.join(name);
            let before = old.and_then(|old| old.get(name)).and_then(|item| match &item.data {
                ItemData::Dir(dir) => Some(dir),
                _ => None,
            });
            if is_too_deep(&path) {
                self.skip(path, TOO_DEEP);
                return Ok(None);
            }
            let top = match here.top.filter(|_| *layer == TOP).map(|fd| Root::directory_in(fd, name)).transpose() {
                Ok(top) => top,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(error) if is_resource_exhaustion(error) => return Err(self.failed(&path, error)),
                // An unreadable directory still exists: the new version keeps its last known content.
                Err(error) => return self.unreadable(here, name, before, error),
            };
            let lower = self.lower_dir(here, top.as_ref().map(|fd| fd.as_fd()), name, before)?;
            if top.is_none() && lower.layers.is_empty() {
                // The directory is only in the lower version, and its permissions do not allow reading it.
                return Ok(lower.base.map(|node| WalkedDir { dir: Dir::from_lower(&node), is_unversioned: false }));
            }
            let tracked = scope.tracked.subdirectory(name);
            let is_ignored = scope.is_ignored || scope.ignored.contains(name);
            let scope = Scope { rules: scope.rules, tracked: &tracked, is_ignored, ignored: &[] };
            let walk = || self.directory(top, &lower, &path, before, &scope).map(Some);
            match is_deep_for_this_thread(&path) {
                true => FILES.run(walk),
                false => walk(),
            }
        };
        let walked: Vec<Option<WalkedDir>> = match subdirs.len() {
            0 => return Ok(Vec::new()),
            1 => vec![walk(&subdirs[0])?],
            _ if rayon::current_thread_index().is_none() => subdirs.iter().map(walk).collect::<Result<_>>()?,
            _ => subdirs.par_iter().map(walk).collect::<Result<_>>()?,
        };
        let mut merged = Vec::new();
        let mut removed = Vec::new();
        for (at, walked) in subdirs.into_iter().zip(walked) {
            if walked.as_ref().is_some_and(|walked| walked.dir.merges) {
                merged.push(dir.items[at].name.clone());
            }
            match walked {
                Some(subdir) if !subdir.is_unversioned => {
                    let unchanged = subdir.dir.tree.is_some();
                    let is_known = old.is_some_and(|old| match old.get(&dir.items[at].name).map(|item| &item.data) {
                        Some(ItemData::Dir(old)) => old.tree == subdir.dir.tree,
                        _ => false,
                    });
                    *same &= unchanged && is_known;
                    dir.items[at].data = ItemData::Dir(subdir.dir);
                }
                missing => {
                    self.unversioned_dirs.fetch_add(u64::from(missing.is_some()), Ordering::Relaxed);
                    removed.push(at);
                }
            }
        }
        for at in removed.into_iter().rev() {
            let name = dir.items.remove(at).name;
            *same &= old.is_none_or(|old| old.get(&name).is_none());
            *hides_something = true;
        }
        Ok(merged)
    }

    /// The last known content of a directory that cannot be read.
    fn unreadable(
        &self,
        here: &CurrentDir<'_>,
        name: &FilePath,
        before: Option<&Dir>,
        error: Errno,
    ) -> Result<Option<WalkedDir>> {
        let path = here.path.join(name);
        let base = self.base(here)?.get(name).filter(|node| node.is_directory());
        let dir = match (before, base) {
            (Some(before), _) => before.clone(),
            (None, Some(node)) => Dir { merges: true, base: Some(*node), ..Dir::from_lower(node) },
            (None, None) => {
                self.skip(path, error.to_string());
                return Ok(None);
            }
        };
        self.skip(path, format!("{error}; its last known content is kept"));
        Ok(Some(WalkedDir { dir, is_unversioned: false }))
    }

    /// What the lower layers have at the subdirectory `name`.
    fn lower_dir(
        &self,
        here: &CurrentDir<'_>,
        top: Option<BorrowedFd<'_>>,
        name: &FilePath,
        before: Option<&Dir>,
    ) -> Result<LowerDir> {
        if !here.lower.merges || top.is_some_and(|fd| dir_marker(fd) == DirMarker::Opaque) {
            return Ok(LowerDir::default());
        }
        let base = match before.filter(|before| before.tree.is_some() && before.merges) {
            Some(before) => before.base,
            None => self.base(here)?.get(name).copied().filter(Node::is_directory),
        };
        if here.lower.layers.is_empty() {
            return Ok(LowerDir { merges: true, base, layers: Vec::new() });
        }
        match self.stack.look_up_in(here.path, &here.lower.layers, name) {
            Ok(Lookup::Directory(layers, _)) => Ok(LowerDir { merges: true, base, layers }),
            Ok(_) => Ok(LowerDir::default()),
            Err(error) if is_resource_exhaustion(error) => Err(self.failed(&here.path.join(name), error)),
            Err(_) => Ok(LowerDir { merges: true, base, layers: Vec::new() }),
        }
    }
}
