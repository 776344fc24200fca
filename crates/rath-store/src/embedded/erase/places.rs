//! Places of sessions that go: copies that they worked in, and what is remembered of directories for them. Nobody comes
//! back there, and what they name would keep contents that nothing else does.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::SessionId;
use rath_core::store::{Error, Result};

use rath_workspace::{Vacant, collect_layers, disk_use, remove_tree};

/// What goes with the sessions. While it lives, nobody begins to work there.
#[derive(Default)]
pub(super) struct Places {
    home: PathBuf,
    /// Copies.
    copies: Vec<PathBuf>,
    /// What is remembered for them beside directories that others may work in, too.
    notes: Vec<PathBuf>,
    claims: Vec<Vacant>,
}

impl Places {
    /// Takes the places of these sessions. One that a process has open stays, and is for `prune`.
    pub(super) fn claim(root: &Path, sessions: &HashSet<SessionId>) -> Self {
        let home = root.join("workspaces");
        let mut places = Self { home: home.clone(), ..Self::default() };
        if sessions.is_empty() {
            return places;
        }
        for entry in fs::read_dir(&home).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name.starts_with("dir-") {
                places.notes.extend(notes(&path).filter(|(session, _)| sessions.contains(session)).map(|(_, at)| at));
            } else if name.parse().is_ok_and(|session: SessionId| sessions.contains(&session))
                && let Some(claim) = Vacant::claim(&path)
            {
                places.copies.push(path);
                places.claims.push(claim);
            }
        }
        places.copies.sort();
        places
    }

    /// Says which they are, and lets go of them.
    pub(super) fn look(root: &Path, sessions: &HashSet<SessionId>) -> Self {
        Self { claims: Vec::new(), ..Self::claim(root, sessions) }
    }

    /// Whether what lies there goes too.
    pub(super) fn cover(&self, path: &Path) -> bool {
        self.copies.iter().any(|copy| path.starts_with(copy)) || self.notes.iter().any(|note| note == path)
    }

    /// The copies, and the bytes they take.
    pub(super) fn copies(&self) -> (Vec<PathBuf>, u64) {
        (self.copies.clone(), self.copies.iter().map(|copy| disk_use(copy)).sum())
    }

    /// Removes them, and layers that nobody else stands on. Returns the bytes they took.
    pub(super) fn remove(self) -> Result<u64> {
        let (_, mut bytes) = self.copies();
        for path in self.copies.iter().chain(&self.notes) {
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
            // Where some stack of layers cannot be read, none goes: pruning says so.
            bytes += collect_layers(&self.home, false).map(|collected| collected.bytes).unwrap_or(0);
        }
        Ok(bytes)
    }
}

/// What is remembered for sessions beside a directory.
fn notes(state: &Path) -> impl Iterator<Item = (SessionId, PathBuf)> {
    fs::read_dir(state).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (what, session) = name.split_once('-')?;
        let session = session.strip_suffix(".new").unwrap_or(session).parse().ok()?;
        matches!(what, "at" | "going" | "sandbox").then(|| (session, entry.path()))
    })
}

/// Bytes that copies of sessions take.
pub(super) fn size(root: &Path) -> u64 {
    let entries = fs::read_dir(root.join("workspaces")).into_iter().flatten().flatten();
    let copies = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<SessionId>().is_ok());
    copies.map(|copy| disk_use(&copy.path())).sum()
}
