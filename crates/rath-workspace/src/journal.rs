//! What a restore writes down before it begins, and how it is gone on with after a crash or a failure.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use rath_core::files::{Change, Name, Node, Version};
use rustix::fs::{AtFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::Workspace;
use super::durable::{atomic_write, sync_dir};
use super::error::{Error, Result};
use super::restore::is_temporary;
use super::root::os;

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
pub(super) struct Journal {
    pub(super) from: Version,
    pub(super) to: Version,
    /// Directories that are made writable on the way, with the permissions that they have otherwise.
    #[serde(default)]
    pub(super) opened: Vec<(Name, u32)>,
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

    /// The journal of a restore that is not finished.
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

    /// Finishes what an earlier process began; where that cannot be, takes it back.
    pub(super) fn recover(&mut self) -> Result<Option<Recovered>> {
        if let Some(journal) = self.under_way()? {
            self.tracked = Some(vec![journal.from, journal.to]);
        }
        if self.site.is_some() {
            return self.recover_layered();
        }
        let Some(Journal { from, to, opened }) = self.under_way()? else { return Ok(None) };
        if !self.has_begun(&from, &to, &opened)? {
            // Nothing was touched yet, or somebody set it all back: then it did not happen.
            self.remove_journal()?;
            return Ok(None);
        }
        let (to, kept) = match self.go_on(&from, &to, opened.clone()) {
            Ok(kept) => (to, kept),
            Err(error) => match self.go_on(&to, &from, opened) {
                Ok(kept) => (from.clone(), kept),
                Err(_) => return Err(error),
            },
        };
        self.remove_journal()?;
        let version = self.save_between()?.version;
        Ok(Some(Recovered { from, to, version, kept }))
    }

    /// Whether anything that a restore was to change is no longer as it was.
    fn has_begun(&mut self, from: &Version, to: &Version, opened: &[(Name, u32)]) -> Result<bool> {
        self.save_between()?;
        let planned = self.changes(from, to)?;
        self.sweep_temporaries(&planned);
        // What is neither the one nor the other may be half of it.
        let is_as_before =
            |change: &Change| self.index.root.at(&change.path).and_then(|item| item.node()) == change.before;
        let is_closed = |(path, mode): &(Name, u32)| {
            self.index.root.at(path).is_none_or(|directory| directory.stat.permissions() == *mode)
        };
        Ok(!planned.iter().all(is_as_before) || !opened.iter().all(is_closed))
    }

    /// Brings a directory that is somewhere between two versions to the second one. Returns the paths that are somebody's:
    /// neither what the one nor what the other version has.
    pub(super) fn go_on(&mut self, from: &Version, to: &Version, opened: Vec<(Name, u32)>) -> Result<Vec<Name>> {
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
            // What is neither the one nor the other is somebody's; where nothing is, nothing is lost.
            if same(&change.after) && change.after.map(|node| node.mode) == there.map(|node| node.mode) {
                continue;
            }
            if same(&change.before) || is_half_made || there.is_none() {
                open.push(Change { before: there, ..change });
            } else {
                kept.push(change.path);
            }
        }
        self.check_way(&open)?;
        let opened = self.left_open(opened);
        kept.extend(self.apply(&open, &opened)?);
        Ok(kept)
    }

    /// Takes away what a dead process was writing beside these paths.
    fn sweep_temporaries(&self, changes: &[Change]) {
        let directories: HashSet<Name> = changes.iter().map(|change| change.path.split().0).collect();
        for directory in directories {
            let Ok(fd) = self.stack.top().directory(&directory) else { continue };
            let Ok(entries) = rustix::fs::Dir::read_from(&fd) else { continue };
            for entry in entries.flatten() {
                let name = Name::from(entry.file_name().to_bytes());
                if is_temporary(&name) {
                    let _ = unlinkat(&fd, os(&name), AtFlags::empty());
                }
            }
        }
    }
}
