//! Forks of layered workspaces: the upper directory becomes a sealed layer that both workspaces are based on.
//!
//! The manifest `stack.json` names the new layer before the upper directory is renamed to it. If the process dies in
//! between, the next open finds that the layer is missing and does the rename.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::layered_dir::{Base, LayerManifest, LayeredDir, UPPER, WORK, clear_upper, initialize, lock_new};
use super::layers_dir::LayersDir;
use super::squash::squash;
use crate::Workspace;
use crate::durable::sync_dir;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::index_file::{IndexWriteState, forget_index};
use crate::save::Saved;

/// Number of lower layers above which they are squashed. Each layer adds a lookup to each name that a command resolves.
const SQUASH_ABOVE: usize = 8;

/// Number of lower layers at which a fork fails if squashing fails.
const MAX_LAYERS: usize = 100;

/// The result of a fork.
#[derive(Clone, Debug)]
pub struct LayerFork {
    /// The version that was saved before the fork. Both workspaces have it.
    pub saved: Saved,
    /// Whether the upper directory was sealed. `false` if it was empty.
    pub sealed: bool,
    /// Whether the sealed layers were squashed into one.
    pub squashed: bool,
}

impl Workspace {
    /// Forks a layered workspace: saves it, and creates another workspace in the state directory `child` with the same
    /// files, including ignored ones. The workspace must not be mounted. After an error, open it again. The cost is a
    /// sync of the changes since the last fork; it does not depend on the lower layers.
    pub fn fork_into(&mut self, child: &Path) -> Result<LayerFork> {
        let (saved, unversioned_dirs) = self.save_counted()?;
        let state = self.state.clone();
        let layered = self.layered.as_mut().ok_or_else(|| not_layered(&state))?;
        let _claim = layered.layers_dir.lock_shared()?;
        let _lock = lock_new(child)?;
        let upper = state.join(UPPER);
        let failed = |error| Error::machine(format!("sealing {}", upper.display()), error);
        let mode = fs::metadata(&upper).map_err(failed)?.mode() & 0o7777;
        let is_empty = fs::read_dir(&upper).map_err(failed)?.next().is_none();
        let mut squashed = false;
        if !is_empty {
            let Saved { version, files, bytes, skipped, .. } = saved.clone();
            let mut lowers = layered.manifest.lowers.clone();
            lowers.push(LayersDir::fresh_layer());
            // The files of the layer are not read again, so they must be on disk.
            let synced = File::open(&upper).and_then(|upper| Ok(rustix::fs::syncfs(&upper)?));
            synced.map_err(failed)?;
            let files = files.saturating_sub(unversioned_dirs);
            let manifest = LayerManifest::new(Base { version, files, bytes, skipped }, lowers);
            manifest.write(&state)?;
            *layered = LayeredDir::new(layered.layers_dir.clone(), manifest);
            layered.finish_seal(&state)?;
            if layered.manifest.lowers.len() > SQUASH_ABOVE {
                squashed = layered.squash_layers(&state)?;
            }
            self.stack = layered.stack(&state)?;
            self.index = Index::default();
            self.index.store(&state.join("index"))?;
            self.written = IndexWriteState::now();
        }
        initialize(child, &layered.manifest, mode)?;
        Ok(LayerFork { saved, sealed: !is_empty, squashed })
    }
}

fn not_layered(state: &Path) -> Error {
    Error::machine(format!("forking {}", state.display()), io::Error::other("it is a plain directory"))
}

impl LayeredDir {
    /// Squashes all layers above the checkout into one. If that fails, they stay as they are, unless there are
    /// [`MAX_LAYERS`].
    fn squash_layers(&mut self, state: &Path) -> Result<bool> {
        let lowers = &self.manifest.lowers;
        let squashed = match squash(&self.layers_dir, lowers) {
            Ok(squashed) => squashed,
            Err(_) if lowers.len() < MAX_LAYERS => return Ok(false),
            Err(error) => return Err(error),
        };
        self.manifest = LayerManifest::new(self.manifest.base.clone(), vec![lowers[0].clone(), squashed]);
        self.manifest.write(state)?;
        Ok(true)
    }

    /// Renames the upper directory to the top layer of the manifest if that layer is missing, and creates a new upper
    /// directory if there is none.
    pub(super) fn finish_seal(&self, state: &Path) -> Result<()> {
        let Some(layer) = self.manifest.lowers.last().map(|name| self.layers_dir.path.join(name)) else {
            return Ok(());
        };
        let upper = state.join(UPPER);
        let finish = || {
            let mode = match fs::metadata(&layer) {
                Ok(layer) => layer.mode() & 0o7777,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let mode = fs::metadata(&upper)?.mode() & 0o7777;
                    // A directory without write permission cannot be moved.
                    fs::set_permissions(&upper, fs::Permissions::from_mode(mode | 0o700))?;
                    fs::rename(&upper, &layer)?;
                    fs::set_permissions(&layer, fs::Permissions::from_mode(mode))?;
                    sync_dir(layer.parent().unwrap_or(&self.layers_dir.path))?;
                    sync_dir(state)?;
                    mode
                }
                Err(error) => return Err(error),
            };
            if !upper.is_dir() {
                return Ok(Some(mode));
            }
            // The work directory may be missing if a process was killed while it created the directories.
            let work = state.join(WORK);
            if !work.is_dir() {
                fs::create_dir(work)?;
            }
            Ok(None)
        };
        match finish() {
            Ok(None) => Ok(()),
            Ok(Some(mode)) => {
                // The index describes files that are in the sealed layer now.
                let _ = forget_index(state);
                clear_upper(state, mode)
            }
            Err(error) => Err(Error::machine(format!("sealing {}", upper.display()), error)),
        }
    }
}
