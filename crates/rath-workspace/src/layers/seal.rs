//! Forks: what is in the upper becomes a layer that two workspaces stand on.
//!
//! `stack.json` names the new layer before it is there. Who finds it so finishes: the upper is renamed to it. So a
//! process that dies leaves either the old stack, or one that the next open completes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::home::Home;
use super::site::{Base, Site, Standing, UPPER, WORK, begin, clear_upper, take_fresh};
use super::squash::squash;
use crate::Workspace;
use crate::durable::sync_dir;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::index_file::{Written, forget_index};
use crate::save::Saved;

/// Layers below an upper, at most. Each costs a lookup for every name that a command asks for.
const DEEPEST: usize = 8;

/// Layers at which a stack cannot go on.
const MOST: usize = 100;

/// What a fork did.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// What was saved before: both workspaces hold it.
    pub saved: Saved,
    /// Whether there was anything to seal.
    pub sealed: bool,
    /// Whether the layers were made one.
    pub squashed: bool,
}

impl Workspace {
    /// Forks a layered workspace: saves it, and makes another one in the directory `child`, that holds the same
    /// files, the ignored ones too. Nothing may be mounted on it; after an error it has to be opened anew. Costs a
    /// sync of what changed since the last fork, whatever is below.
    pub fn seal_for(&mut self, child: &Path) -> Result<Sealed> {
        let (saved, hollow) = self.save_counted()?;
        let state = self.state.clone();
        let site = self.site.as_mut().ok_or_else(|| not_layered(&state))?;
        let _claim = site.home.claim()?;
        let _lock = take_fresh(child)?;
        let upper = state.join(UPPER);
        let failed = |error| Error::machine(format!("sealing {}", upper.display()), error);
        let mode = fs::metadata(&upper).map_err(failed)?.mode() & 0o7777;
        let is_empty = fs::read_dir(&upper).map_err(failed)?.next().is_none();
        let mut squashed = false;
        if !is_empty {
            let Saved { version, files, bytes, skipped, .. } = saved.clone();
            let mut lowers = site.standing.lowers.clone();
            lowers.push(Home::fresh_layer());
            // What the layer holds will not be read again.
            let synced = File::open(&upper).and_then(|upper| Ok(rustix::fs::syncfs(&upper)?));
            synced.map_err(failed)?;
            let files = files.saturating_sub(hollow);
            let standing = Standing::new(Base { version, files, bytes, skipped }, lowers);
            standing.write(&state)?;
            *site = Site::new(site.home.clone(), standing);
            site.finish_seal(&state)?;
            if site.standing.lowers.len() > DEEPEST {
                squashed = site.make_shallow(&state)?;
            }
            self.stack = site.stack(&state)?;
            self.index = Index::default();
            self.index.store(&state.join("index"))?;
            self.written = Written::now();
        }
        begin(child, &site.standing, mode)?;
        Ok(Sealed { saved, sealed: !is_empty, squashed })
    }
}

fn not_layered(state: &Path) -> Error {
    Error::machine(format!("forking {}", state.display()), io::Error::other("it is a plain directory"))
}

impl Site {
    /// Makes one of all layers above the checkout. Where a directory cannot be read they stay as they are, unless
    /// they are too many.
    fn make_shallow(&mut self, state: &Path) -> Result<bool> {
        let lowers = &self.standing.lowers;
        let squashed = match squash(&self.home, lowers) {
            Ok(squashed) => squashed,
            Err(_) if lowers.len() < MOST => return Ok(false),
            Err(error) => return Err(error),
        };
        self.standing = Standing::new(self.standing.base.clone(), vec![lowers[0].clone(), squashed]);
        self.standing.write(state)?;
        Ok(true)
    }

    /// Puts an upper in the place of the layer that it was to become, if that is not there.
    pub(super) fn finish_seal(&self, state: &Path) -> Result<()> {
        let Some(layer) = self.standing.lowers.last().map(|name| self.home.path.join(name)) else { return Ok(()) };
        let upper = state.join(UPPER);
        let finish = || {
            let mode = match fs::metadata(&layer) {
                Ok(layer) => layer.mode() & 0o7777,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let mode = fs::metadata(&upper)?.mode() & 0o7777;
                    // A directory that may not be written to cannot be moved.
                    fs::set_permissions(&upper, fs::Permissions::from_mode(mode | 0o700))?;
                    fs::rename(&upper, &layer)?;
                    fs::set_permissions(&layer, fs::Permissions::from_mode(mode))?;
                    sync_dir(layer.parent().unwrap_or(&self.home.path))?;
                    sync_dir(state)?;
                    mode
                }
                Err(error) => return Err(error),
            };
            if !upper.is_dir() {
                return Ok(Some(mode));
            }
            // Somebody may have been killed who made the upper first.
            let work = state.join(WORK);
            if !work.is_dir() {
                fs::create_dir(work)?;
            }
            Ok(None)
        };
        match finish() {
            Ok(None) => Ok(()),
            Ok(Some(mode)) => {
                // What is known of the upper's files was of those that are in the layer now.
                let _ = forget_index(state);
                clear_upper(state, mode)
            }
            Err(error) => Err(Error::machine(format!("sealing {}", upper.display()), error)),
        }
    }
}
