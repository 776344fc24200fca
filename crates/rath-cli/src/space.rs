//! Disk use of a store, and what was left unfinished in its workspaces.

use std::path::{Path, PathBuf};

pub(crate) use rath::workspace::disk_use;

/// Bytes used by the database, the packs and the workspace copies of a store.
pub(crate) fn store_bytes(store: &Path) -> u64 {
    let database = std::fs::metadata(store.join("rath.db")).map_or(0, |database| database.len());
    database + disk_use(&store.join("packs")) + disk_use(&store.join("workspaces"))
}

/// State directories of workspaces in which a restore was interrupted.
pub(crate) fn unfinished(store: &Path) -> Vec<PathBuf> {
    let states = std::fs::read_dir(store.join("workspaces")).into_iter().flatten().flatten();
    states.map(|state| state.path()).filter(|state| state.join("restoring").exists()).collect()
}

/// A sandbox that a process has open now.
#[derive(serde::Serialize)]
pub(crate) struct OpenSandbox {
    /// Its state directory.
    state: PathBuf,
    /// The process id of its supervisor.
    pub(crate) process: u32,
}

/// The sandboxes of a store that are open, in this process or another.
pub(crate) fn open_sandboxes(store: &Path) -> Vec<OpenSandbox> {
    let list = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let states = list(&store.join("workspaces")).flat_map(|site| list(&site));
    states.filter_map(|state| Some(OpenSandbox { process: rath::sandbox::supervisor_pid(&state)?, state })).collect()
}
