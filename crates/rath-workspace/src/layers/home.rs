//! Where the layers of a store's workspaces are: checkouts of versions, and tops that were sealed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rath_core::Digest;

use crate::durable::{FileLock, sync_dir};
use crate::error::{Error, Result};

pub(super) const CHECKOUTS: &str = "checkouts";
pub(super) const LAYERS: &str = "layers";

/// What begins the name of something that is not finished.
pub(super) const UNFINISHED: &str = ".new-";

/// The directory with the layers.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) path: PathBuf,
}

/// Keeps layers that no site names yet from being collected, or, held alone, from being made.
pub(super) struct Claim {
    _held: FileLock,
}

impl Home {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::machine(format!("making {}", path.display()), error);
        fs::create_dir_all(path.join(CHECKOUTS)).map_err(failed)?;
        fs::create_dir_all(path.join(LAYERS)).map_err(failed)?;
        Ok(Self { path: path.canonicalize().map_err(failed)? })
    }

    /// Keeps layers from being collected.
    pub(super) fn claim(&self) -> Result<Claim> {
        self.claimed(FileLock::shared)
    }

    /// Keeps layers from being made.
    pub(super) fn claim_alone(&self) -> Result<Claim> {
        self.claimed(FileLock::alone)
    }

    fn claimed(&self, lock: impl FnOnce(&Path) -> io::Result<FileLock>) -> Result<Claim> {
        let path = self.path.join("layers.lock");
        let held = lock(&path).map_err(|error| Error::machine(format!("locking {}", path.display()), error))?;
        Ok(Claim { _held: held })
    }

    /// The name of a version's checkout, below this directory.
    pub(super) fn checkout(tree: Digest) -> String {
        format!("{CHECKOUTS}/{}", tree.hex().as_str())
    }

    /// A name for a new layer.
    pub(super) fn fresh_layer() -> String {
        format!("{LAYERS}/{}", rath_core::fresh_name())
    }

    /// A directory for what becomes `name`, beside it.
    pub(super) fn unfinished(&self, name: &str) -> Result<PathBuf> {
        let kind = name.split('/').next().unwrap_or(LAYERS);
        let path = self.path.join(kind).join(format!("{UNFINISHED}{}", rath_core::fresh_name()));
        fs::create_dir(&path).map_err(|error| Error::machine(format!("making {}", path.display()), error))?;
        Ok(path)
    }

    /// Puts a finished directory in its place, with all that is in it on disk. `false` when somebody was faster.
    pub(super) fn put(&self, made: &Path, name: &str) -> Result<bool> {
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

/// Removes a directory and all that is in it, closed directories too: a layer may have them, and the kernel leaves
/// one in the directory it works in. What is not there is gone already.
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
