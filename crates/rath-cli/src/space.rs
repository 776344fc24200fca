//! What takes room on disk.

use std::path::{Path, PathBuf};

pub(crate) use rath::workspace::disk_use;

/// Bytes that the packs and the copies of a store take.
pub(crate) fn held(store: &Path) -> u64 {
    disk_use(&store.join("packs")) + disk_use(&store.join("workspaces"))
}

/// Directories in which a restore was interrupted, by what is remembered about them.
pub(crate) fn unfinished(store: &Path) -> Vec<PathBuf> {
    let states = std::fs::read_dir(store.join("workspaces")).into_iter().flatten().flatten();
    states.map(|state| state.path()).filter(|state| state.join("restoring").exists()).collect()
}
