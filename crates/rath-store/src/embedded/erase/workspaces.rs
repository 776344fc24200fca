//! The workspaces of sessions of which nothing is left: the copies that they worked in, and their state files for
//! directories that they worked in directly. They are removed, because no session uses them again and they refer to
//! blobs that nothing else refers to.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::SessionId;
use rath_core::store::{Error, Result};

use rath_workspace::{IdleWorkspace, collect_layers, disk_use, remove_tree};

/// The workspaces to remove. While this exists, no process can open them.
#[derive(Default)]
pub(super) struct ErasedWorkspaces {
    home: PathBuf,
    /// The directories of copies.
    copies: Vec<PathBuf>,
    /// State files of the sessions for directories in which other sessions may work too.
    state_files: Vec<PathBuf>,
    claims: Vec<IdleWorkspace>,
}

impl ErasedWorkspaces {
    /// Locks the workspaces of these sessions. A workspace that a process has open is skipped; `prune` removes it
    /// later.
    pub(super) fn claim(root: &Path, sessions: &HashSet<SessionId>) -> Self {
        let home = root.join("workspaces");
        let mut workspaces = Self { home: home.clone(), ..Self::default() };
        if sessions.is_empty() {
            return workspaces;
        }
        for entry in fs::read_dir(&home).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name.starts_with("dir-") {
                workspaces
                    .state_files
                    .extend(state_files(&path).filter(|(session, _)| sessions.contains(session)).map(|(_, at)| at));
            } else if name.parse().is_ok_and(|session: SessionId| sessions.contains(&session))
                && let Some(claim) = IdleWorkspace::claim(&path)
            {
                workspaces.copies.push(path);
                workspaces.claims.push(claim);
            }
        }
        workspaces.copies.sort();
        workspaces
    }

    /// Finds the workspaces of these sessions, without keeping the locks.
    pub(super) fn find(root: &Path, sessions: &HashSet<SessionId>) -> Self {
        Self { claims: Vec::new(), ..Self::claim(root, sessions) }
    }

    /// Whether this path is removed too.
    pub(super) fn contain(&self, path: &Path) -> bool {
        self.copies.iter().any(|copy| path.starts_with(copy)) || self.state_files.iter().any(|file| file == path)
    }

    /// The copies and their bytes on disk.
    pub(super) fn copies(&self) -> (Vec<PathBuf>, u64) {
        (self.copies.clone(), self.copies.iter().map(|copy| disk_use(copy)).sum())
    }

    /// Removes the workspaces, and layers that no remaining workspace uses. Returns the bytes that they had on disk.
    pub(super) fn remove(self) -> Result<u64> {
        let (_, mut bytes) = self.copies();
        for path in self.copies.iter().chain(&self.state_files) {
            let removed = match path.is_dir() {
                true => remove_tree(path),
                false => fs::remove_file(path),
            };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::machine(format!("removing {}", path.display()), error));
                }
                _ => {}
            }
        }
        if !self.copies.is_empty() {
            // If the layers of a workspace cannot be read, no layer is removed. `prune` reports the error.
            bytes += collect_layers(&self.home, false).map(|collected| collected.bytes).unwrap_or(0);
        }
        Ok(bytes)
    }
}

/// The state files of sessions in the state of a directory.
fn state_files(state: &Path) -> impl Iterator<Item = (SessionId, PathBuf)> {
    fs::read_dir(state).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (what, session) = name.split_once('-')?;
        let session = session.strip_suffix(".new").unwrap_or(session).parse().ok()?;
        matches!(what, "at" | "going" | "sandbox").then(|| (session, entry.path()))
    })
}

/// The bytes on disk of all copies that sessions work in.
pub(super) fn size(root: &Path) -> u64 {
    let entries = fs::read_dir(root.join("workspaces")).into_iter().flatten().flatten();
    let copies = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<SessionId>().is_ok());
    copies.map(|copy| disk_use(&copy.path())).sum()
}
