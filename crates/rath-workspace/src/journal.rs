//! The restore journal: written before a restore changes files, and used to complete or undo the restore after a crash
//! or an error.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use rath_core::files::{Change, FilePath, Node, Version};
use rustix::fs::{AtFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::Workspace;
use super::durable::{atomic_write, sync_dir};
use super::error::{Error, Result};
use super::restore::is_temporary;
use super::root::os;

/// A restore that an earlier process started and this process completed.
#[derive(Clone, Debug)]
pub struct RecoveredRestore {
    /// The version before the restore.
    pub from: Version,
    /// The version that the files were set to: the target of the restore, or `from` if the restore was undone.
    pub to: Version,
    /// The version of the files now.
    pub version: Version,
    /// Paths that were changed by something else after the restore had started. They were left as they are.
    pub kept: Vec<FilePath>,
}

/// The content of the journal file, which exists while a restore runs.
#[derive(Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) from: Version,
    pub(super) to: Version,
    /// Directories that are made writable during the restore, with their original permissions.
    #[serde(default)]
    pub(super) opened: Vec<(FilePath, u32)>,
}

impl Workspace {
    fn journal_path(&self) -> PathBuf {
        self.state.join("restoring")
    }

    pub(super) fn write_journal(&self, journal: &Journal) -> Result<()> {
        let path = self.journal_path();
        let written = serde_json::to_vec(journal).map_err(io::Error::from);
        written
            .and_then(|bytes| atomic_write(&path, &bytes))
            .map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }

    pub(super) fn remove_journal(&self) -> Result<()> {
        let path = self.journal_path();
        let removed = fs::remove_file(&path).and_then(|()| sync_dir(&self.state));
        removed.map_err(|error| Error::machine(format!("removing {}", path.display()), error))
    }

    /// The journal of an unfinished restore; `None` if there is none.
    pub(super) fn under_way(&self) -> Result<Option<Journal>> {
        let path = self.journal_path();
        let journal = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::machine(format!("reading {}", path.display()), error)),
        };
        let broken = |error: serde_json::Error| Error::BrokenJournal {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        serde_json::from_slice(&journal).map(Some).map_err(broken)
    }

    /// Completes an interrupted restore, or undoes it if it cannot be completed.
    pub(super) fn recover(&mut self) -> Result<Option<RecoveredRestore>> {
        if let Some(journal) = self.under_way()? {
            self.tracked = Some(vec![journal.from, journal.to]);
        }
        if self.layered.is_some() {
            return self.recover_layered();
        }
        let Some(Journal { from, to, opened }) = self.under_way()? else { return Ok(None) };
        if !self.was_started(&from, &to, &opened)? {
            // No file was changed yet, or everything is as it was before: no restore took place.
            self.remove_journal()?;
            return Ok(None);
        }
        let (to, kept) = match self.resume_restore(&from, &to, opened.clone()) {
            Ok(kept) => (to, kept),
            Err(error) => match self.resume_restore(&to, &from, opened) {
                Ok(kept) => (from.clone(), kept),
                Err(_) => return Err(error),
            },
        };
        self.remove_journal()?;
        let version = self.save_between()?.version;
        Ok(Some(RecoveredRestore { from, to, version, kept }))
    }

    /// Whether any path that the restore was to change differs from the version before it.
    fn was_started(&mut self, from: &Version, to: &Version, opened: &[(FilePath, u32)]) -> Result<bool> {
        self.save_between()?;
        let planned = self.changes(from, to)?;
        self.sweep_temporaries(&planned);
        // A path that matches neither version may be half restored, so it counts as changed.
        let is_as_before =
            |change: &Change| self.index.root.at(&change.path).and_then(|item| item.node()) == change.before;
        let is_closed = |(path, mode): &(FilePath, u32)| {
            self.index.root.at(path).is_none_or(|directory| directory.stat.permissions() == *mode)
        };
        Ok(!planned.iter().all(is_as_before) || !opened.iter().all(is_closed))
    }

    /// Continues a restore: sets files that are partly at `from` and partly at `to` to `to`. Leaves paths alone that
    /// match neither version, because something else changed them, and returns them.
    pub(super) fn resume_restore(
        &mut self,
        from: &Version,
        to: &Version,
        opened: Vec<(FilePath, u32)>,
    ) -> Result<Vec<FilePath>> {
        self.save_between()?;
        let planned = self.changes(from, to)?;
        self.sweep_temporaries(&planned);
        let mut open = Vec::new();
        let mut kept = Vec::new();
        for change in planned {
            let there = self.index.root.at(&change.path).and_then(|item| item.node());
            let same = |node: &Option<Node>| match (node, &there) {
                (Some(node), Some(there)) if node.is_directory() => there.is_directory(),
                (node, there) => node == there,
            };
            let is_half_made = [change.after, there].iter().all(|node| node.is_some_and(|node| node.is_directory()));
            // A file that matches neither version was changed by something else and stays. A missing file is written,
            // which loses nothing.
            if same(&change.after) && change.after.map(|node| node.mode) == there.map(|node| node.mode) {
                continue;
            }
            if same(&change.before) || is_half_made || there.is_none() {
                open.push(Change { before: there, ..change });
            } else {
                kept.push(change.path);
            }
        }
        self.check_obstacles(&open)?;
        let opened = self.still_opened(opened);
        kept.extend(self.apply(&open, &opened)?);
        Ok(kept)
    }

    /// Removes temporary files of an interrupted restore from the directories of these paths.
    fn sweep_temporaries(&self, changes: &[Change]) {
        let directories: HashSet<FilePath> = changes.iter().map(|change| change.path.split().0).collect();
        for directory in directories {
            let Ok(fd) = self.stack.top().directory(&directory) else { continue };
            let Ok(entries) = rustix::fs::Dir::read_from(&fd) else { continue };
            for entry in entries.flatten() {
                let name = FilePath::from(entry.file_name().to_bytes());
                if is_temporary(&name) {
                    let _ = unlinkat(&fd, os(&name), AtFlags::empty());
                }
            }
        }
    }
}
