//! Restores a layered workspace to a version by rewriting its upper directory, which must not be mounted.
//!
//! For each path that differs: if the lower layers have the wanted entry, the entry in the upper directory is removed.
//! Otherwise the upper directory gets the content, a whiteout, or an opaque directory. Each entry is written to a
//! staging directory and renamed. If the process dies, the next open finds the journal, saves the present files and
//! continues from there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::files::{Change, FilePath, Node, NodeKind, TreeStore, Version};
use rustix::fs::{CWD, Mode, openat};

use super::layers_dir::remove_tree;
use super::stack::Lookup;
use super::upper_rewriter::{MergedDir, UpperRewriter};
use crate::content::now;
use crate::error::{Error, Result};
use crate::index::{Content, ItemData, Stat};
use crate::journal::Journal;
use crate::pool::FILES;
use crate::restore::{RestoreOutcome, SYNCED_SINGLY};
use crate::root::DIRECTORY;
use crate::tree_writer::TreeWriter;
use crate::{RecoveredRestore, Workspace};

impl Workspace {
    fn staging(&self) -> PathBuf {
        self.state.join("staging")
    }

    /// Restores the files from version `from` to version `to`.
    pub(crate) fn restore_layered_from(&mut self, from: Version, to: &Version) -> Result<RestoreOutcome> {
        let changed = self.changes(&from, to)?;
        if changed.is_empty() {
            return Ok(RestoreOutcome { version: from.clone(), from, changed, kept: Vec::new() });
        }
        if let Err(error) = self.rewrite_upper(&from, &from, to, &changed, Vec::new()) {
            // Undo what was done. If that works, the files are as before.
            if self.under_way()?.is_some_and(|journal| self.converge(&journal, &from).is_ok()) {
                self.remove_journal()?;
            }
            return Err(error);
        }
        self.remove_journal()?;
        let present = self.save_without_writers()?.version;
        let version = if present.same_files(to) { to.clone() } else { present };
        Ok(RestoreOutcome { from, version, changed, kept: Vec::new() })
    }

    /// Completes an interrupted restore, or undoes it if it cannot be completed.
    pub(crate) fn recover_layered(&mut self) -> Result<Option<RecoveredRestore>> {
        let cleared = remove_tree(&self.staging());
        cleared.map_err(|error| Error::machine(format!("clearing {}", self.staging().display()), error))?;
        let Some(journal) = self.under_way()? else { return Ok(None) };
        self.restore_permissions(&journal.opened);
        if self.save_between()?.version.same_files(&journal.from) {
            self.remove_journal()?;
            return Ok(None);
        }
        let to = match self.converge(&journal, &journal.to) {
            Ok(()) => journal.to,
            Err(error) => match self.converge(&journal, &journal.from) {
                Ok(()) => journal.from.clone(),
                Err(_) => return Err(error),
            },
        };
        self.remove_journal()?;
        let version = self.save_between()?.version;
        Ok(Some(RecoveredRestore { from: journal.from, to, version, kept: Vec::new() }))
    }

    /// Sets the files of an interrupted restore to one of its two versions.
    fn converge(&mut self, journal: &Journal, to: &Version) -> Result<()> {
        self.restore_permissions(&journal.opened);
        let present = self.save_between()?.version;
        let changes = self.changes(&present, to)?;
        self.rewrite_upper(&journal.from, &present, to, &changes, journal.opened.clone())
    }

    /// Sets the original permissions of directories that were made writable, deepest first.
    fn restore_permissions(&self, opened: &[(FilePath, u32)]) {
        for (path, mode) in opened.iter().rev() {
            let _ = self.set_mode(path, *mode, DIRECTORY);
        }
    }

    /// Rewrites the upper directory from version `present` to version `to`. `from` is the version before the whole
    /// restore, for the journal.
    fn rewrite_upper(
        &mut self,
        from: &Version,
        present: &Version,
        to: &Version,
        changes: &[Change],
        mut opened: Vec<(FilePath, u32)>,
    ) -> Result<()> {
        self.check_obstacles(changes)?;
        opened.extend(self.unwritable_on_the_way(changes));
        opened.sort();
        opened.dedup_by(|a, b| a.0 == b.0);
        self.write_journal(&Journal { from: from.clone(), to: to.clone(), opened: opened.clone() })?;
        for (path, mode) in &opened {
            let _ = self.set_mode(path, mode | 0o700, DIRECTORY);
        }
        let singly = changes.len() <= SYNCED_SINGLY;
        let written = match FILES.run(|| self.rewrite(present, to, &opened, singly)) {
            Ok(written) => written,
            Err(error) => {
                self.restore_permissions(&opened);
                return Err(error);
            }
        };
        for (path, stat, node) in written {
            let content = Content { digest: Some(node.sha256), size: node.size, racy: stat.is_racy(now()) };
            let data = if node.kind == NodeKind::Symlink { ItemData::Link(content) } else { ItemData::File(content) };
            self.index.root.set(&path, Some((stat, data)));
        }
        if !singly {
            let synced = rustix::fs::syncfs(self.stack.top().fd());
            synced.map_err(|error| Error::machine("syncing the file system", error))?;
        }
        Ok(())
    }

    fn rewrite(
        &self,
        present: &Version,
        to: &Version,
        opened: &[(FilePath, u32)],
        sync: bool,
    ) -> Result<Vec<(FilePath, Stat, Node)>> {
        let Some(layered) = &self.layered else { return Ok(Vec::new()) };
        let staging = self.staging();
        let failed = |error: std::io::Error| Error::machine(format!("making {}", staging.display()), error);
        remove_tree(&staging).and_then(|()| fs::create_dir(&staging)).map_err(failed)?;
        let open = |path: &Path| openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|error| failed(error.into()));
        let mut rewrite_upper = UpperRewriter {
            stack: &self.stack,
            forest: TreeStore::new(&*self.store),
            rules: &self.rules,
            tree_writer: TreeWriter::new(&*self.store, &self.stack.top().path),
            staging_fd: open(&staging)?,
            staging: &staging,
            opened,
            sync,
            written: Vec::new(),
        };
        let root = |version: &Version| Node {
            kind: NodeKind::Directory,
            mode: 0o755,
            sha256: version.id(),
            size: version.tree.bytes,
        };
        let top = MergedDir {
            path: FilePath::root(),
            top: open(&self.stack.top().path)?,
            lowers: self.stack.lowers(),
            base: Some(root(&layered.base().version)),
        };
        rewrite_upper.rewrite_dir(&top, Some(root(present)), Some(root(to)))?;
        let written = rewrite_upper.written;
        remove_tree(&staging).map_err(failed)?;
        Ok(written)
    }

    /// The directories above the changes whose permissions do not allow them, with these permissions.
    fn unwritable_on_the_way(&self, changes: &[Change]) -> Vec<(FilePath, u32)> {
        let mut directories = BTreeSet::new();
        for change in changes {
            let is_there = change.before.is_some_and(|node| node.is_directory());
            let mut path = if is_there { change.path.clone() } else { change.path.split().0 };
            while !path.as_bytes().is_empty() && directories.insert(path.clone()) {
                path = path.split().0;
            }
        }
        let closed = |path: FilePath| match self.stack.find(&path, self.stack.all()) {
            Ok(Lookup::Directory(_, stat)) if stat.mode & 0o700 != 0o700 => Some((path, stat.permissions())),
            _ => None,
        };
        directories.into_iter().filter_map(closed).collect()
    }
}
