//! Layers that nobody stands on any more.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::home::{CHECKOUTS, Home, LAYERS, remove_tree};
use super::site::Standing;
use crate::Workspace;
use crate::disk_use;
use crate::error::{Error, Result};

/// What a collection removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedLayers {
    /// The directories.
    pub removed: Vec<PathBuf>,
    /// What they took on disk.
    pub bytes: u64,
}

/// Removes checkouts and layers below `home` that no site there names, and what a dead process left unfinished. With
/// `dry`, only says what it would do. Waits for processes that are making layers.
pub fn collect_layers(home: &Path, dry: bool) -> Result<CollectedLayers> {
    if !home.join(LAYERS).is_dir() {
        return Ok(CollectedLayers::default());
    }
    let home = Home::open(home)?;
    let _claim = home.claim_alone()?;
    let failed = |error: io::Error| Error::machine(format!("collecting layers in {}", home.path.display()), error);
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(&home.path).map_err(failed)? {
        let state = entry.map_err(failed)?.path();
        if Workspace::is_layered(&state) {
            // What cannot be read may name anything: then nothing is removed.
            named.extend(Standing::read(&state)?.lowers);
        }
    }
    let mut collected = CollectedLayers::default();
    for kind in [CHECKOUTS, LAYERS] {
        for entry in fs::read_dir(home.path.join(kind)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_named = entry.file_name().to_str().is_some_and(|name| named.contains(&format!("{kind}/{name}")));
            if is_named {
                continue;
            }
            collected.bytes += disk_use(&entry.path());
            if !dry {
                remove(&entry.path()).map_err(failed)?;
            }
            collected.removed.push(entry.path());
        }
    }
    collected.removed.sort();
    Ok(collected)
}

/// Removes a layer under a name that says that it is not whole: nobody may find half of it.
fn remove(path: &Path) -> io::Result<()> {
    let aside = path.with_file_name(format!("{}{}", super::home::UNFINISHED, rath_core::fresh_name()));
    fs::rename(path, &aside)?;
    remove_tree(&aside)
}
