//! The journal of unfinished erasures, one file each. It lists records and packs, and has none of their contents.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rath_core::store::{Error, Result};
use rath_workspace::durable::{atomic_write, sync_dir};
use serde::{Deserialize, Serialize};

use super::ErasePlan;

/// An unfinished erasure.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "doomed")]
    pub(super) plan: ErasePlan,
    /// The packs with bytes of removed blobs, which must be overwritten.
    pub(super) packs: Vec<String>,
}

fn directory(root: &Path) -> PathBuf {
    root.join("erasing")
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::machine(format!("writing the journal of an erasure, {}", path.display()), error)
}

/// Writes and syncs an entry.
pub(super) fn write(root: &Path, entry: &Entry) -> Result<()> {
    let dir = directory(root);
    let path = dir.join(format!("{}.json", entry.plan.name));
    let write = || {
        if !dir.is_dir() {
            fs::create_dir_all(&dir)?;
            sync_dir(root)?;
        }
        atomic_write(&path, &serde_json::to_vec(entry)?)
    };
    write().map_err(failed(&path))
}

/// All entries.
pub(super) fn read(root: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(directory(root)).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let broken = |error: io::Error| {
            let doing = format!("reading the journal of an erasure, {}", path.display());
            Error::machine(doing, error)
        };
        let bytes = fs::read(&path).map_err(broken)?;
        entries.push(serde_json::from_slice(&bytes).map_err(|error| broken(error.into()))?);
    }
    Ok(entries)
}

/// Removes an entry.
pub(super) fn remove(root: &Path, name: &str) -> Result<()> {
    let path = directory(root).join(format!("{name}.json"));
    let remove = || match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_dir(&directory(root)),
    };
    remove().map_err(failed(&path))
}
