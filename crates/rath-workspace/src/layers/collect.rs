//! Removes layers that no workspace uses.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::layered_dir::LayerManifest;
use super::layers_dir::{CHECKOUTS, LAYERS, LayersDir, remove_tree};
use crate::Workspace;
use crate::disk_use;
use crate::error::{Error, Result};

/// The layers that were removed, or would be removed by a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedLayers {
    /// Their directories.
    pub removed: Vec<PathBuf>,
    /// Their disk usage in bytes.
    pub bytes: u64,
}

/// Removes the checkouts and layers below `layers_dir` that no workspace there uses, and incomplete ones of dead processes.
/// With `dry`, removes nothing. Waits for processes that are creating layers.
pub fn collect_layers(layers_dir: &Path, dry: bool) -> Result<CollectedLayers> {
    if !layers_dir.join(LAYERS).is_dir() {
        return Ok(CollectedLayers::default());
    }
    let layers_dir = LayersDir::open(layers_dir)?;
    let _claim = layers_dir.lock_exclusive()?;
    let failed =
        |error: io::Error| Error::machine(format!("collecting layers in {}", layers_dir.path.display()), error);
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(&layers_dir.path).map_err(failed)? {
        let state = entry.map_err(failed)?.path();
        if Workspace::is_layered(&state) {
            // An unreadable manifest could name any layer, so the collection fails without removing anything.
            named.extend(LayerManifest::read(&state)?.lowers);
        }
    }
    let mut collected = CollectedLayers::default();
    for kind in [CHECKOUTS, LAYERS] {
        for entry in fs::read_dir(layers_dir.path.join(kind)).map_err(failed)? {
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

/// Renames a layer to a temporary name, then removes it, so that no process can find half of it.
fn remove(path: &Path) -> io::Result<()> {
    let aside = path.with_file_name(format!("{}{}", super::layers_dir::UNFINISHED, rath_core::fresh_name()));
    fs::rename(path, &aside)?;
    remove_tree(&aside)
}
