//! What takes room on disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes that the packs and the copies of a store take.
pub(crate) fn held(store: &Path) -> u64 {
    disk_use(&store.join("packs")) + disk_use(&store.join("workspaces"))
}

/// Bytes that everything below a directory takes.
pub(crate) fn disk_use(path: &Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        total += meta.blocks() * 512;
        if meta.is_dir() {
            total += disk_use(&entry.path());
        }
    }
    total
}

/// Directories in which a restore was interrupted, by what is remembered about them.
pub(crate) fn unfinished(store: &Path) -> Vec<PathBuf> {
    let states = std::fs::read_dir(store.join("workspaces")).into_iter().flatten().flatten();
    states.map(|state| state.path()).filter(|state| state.join("restoring").exists()).collect()
}
