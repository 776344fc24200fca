//! The directory with the checkouts and sealed layers of a store's workspaces.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rath_core::Digest;

use crate::durable::{FileLock, sync_dir};
use crate::error::{Error, Result};

pub(super) const CHECKOUTS: &str = "checkouts";
pub(super) const LAYERS: &str = "layers";

/// Prefix of the names of incomplete checkouts and layers.
pub(super) const UNFINISHED: &str = ".new-";

/// The directory with checkouts, sealed layers and the state directories of workspaces.
#[derive(Clone)]
pub(super) struct LayersDir {
    pub(super) path: PathBuf,
}

/// The lock file `layers.lock`. A shared lock protects new layers that no manifest names yet from collection. The
/// collector holds the exclusive lock.
pub(super) struct LayersLock {
    _held: FileLock,
}

impl LayersDir {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::machine(format!("making {}", path.display()), error);
        fs::create_dir_all(path.join(CHECKOUTS)).map_err(failed)?;
        fs::create_dir_all(path.join(LAYERS)).map_err(failed)?;
        Ok(Self { path: path.canonicalize().map_err(failed)? })
    }

    /// Locks out the collector.
    pub(super) fn lock_shared(&self) -> Result<LayersLock> {
        self.lock_with(FileLock::shared)
    }

    /// Locks out everything that creates layers.
    pub(super) fn lock_exclusive(&self) -> Result<LayersLock> {
        self.lock_with(FileLock::exclusive)
    }

    fn lock_with(&self, lock: impl FnOnce(&Path) -> io::Result<FileLock>) -> Result<LayersLock> {
        let path = self.path.join("layers.lock");
        let held = lock(&path).map_err(|error| Error::machine(format!("locking {}", path.display()), error))?;
        Ok(LayersLock { _held: held })
    }

    /// The name of a version's checkout, relative to this directory.
    pub(super) fn checkout(tree: Digest) -> String {
        format!("{CHECKOUTS}/{}", tree.hex().as_str())
    }

    /// A fresh name for a layer, relative to this directory.
    pub(super) fn fresh_layer() -> String {
        format!("{LAYERS}/{}", rath_core::fresh_name())
    }

    /// Creates a temporary directory in the same parent directory as `name`.
    pub(super) fn temporary_dir(&self, name: &str) -> Result<PathBuf> {
        let kind = name.split('/').next().unwrap_or(LAYERS);
        let path = self.path.join(kind).join(format!("{UNFINISHED}{}", rath_core::fresh_name()));
        fs::create_dir(&path).map_err(|error| Error::machine(format!("making {}", path.display()), error))?;
        Ok(path)
    }

    /// Syncs a complete directory and renames it to `name`. If `name` exists already, removes the directory and returns
    /// `false`.
    pub(super) fn publish(&self, made: &Path, name: &str) -> Result<bool> {
        use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
        let to = self.path.join(name);
        let failed = |error: io::Error| Error::machine(format!("making {}", to.display()), error);
        let directory = File::open(made).map_err(failed)?;
        syncfs(&directory).map_err(|error| failed(error.into()))?;
        match renameat_with(CWD, made, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => {
                let _ = remove_tree(made);
                return Ok(false);
            }
            Err(error) => return Err(failed(error.into())),
        }
        let parent = to.parent().unwrap_or(&self.path);
        sync_dir(parent).map_err(failed)?;
        Ok(true)
    }
}

/// Removes a directory and everything in it, including directories without write permission: a layer may contain such
/// directories, and overlayfs leaves one in its work directory. Succeeds if the directory does not exist.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        Ok(()) => return Ok(()),
        Err(_) => {}
    }
    open_directories(path);
    fs::remove_dir_all(path)
}

fn open_directories(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_directories(&entry.path());
        }
    }
}
