//! What takes room on disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

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
