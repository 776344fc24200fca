//! Paths of a workspace that are read-only or hidden in the sandbox.
//!
//! For commands, mounts and Landlock enforce this. They do not restrict this process, which reads and writes files on
//! behalf of tools: the kernel lets it replace files that are covered in another mount namespace. So this module checks
//! each path.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use crate::error::PathError;

/// Protected paths, relative to the workspace.
#[derive(Debug, Default)]
pub(crate) struct ProtectedPaths {
    /// Paths that must not be created, replaced or removed. Their content may change.
    pub(crate) names: Vec<PathBuf>,
    /// Paths that must not change, including everything below them.
    pub(crate) read_only: Vec<PathBuf>,
    /// Paths that must not be read or changed, including everything below them.
    pub(crate) hidden: Vec<PathBuf>,
}

impl ProtectedPaths {
    /// Fails if an opened file is hidden.
    pub(super) fn check_visible(&self, root: impl AsFd, opened: impl AsFd) -> Result<(), PathError> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let path = within(root, opened)?;
        match self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            true => Err(PathError::Hidden),
            false => Ok(()),
        }
    }

    /// Fails if `name` in a directory must not be created, replaced or removed, including everything below it.
    pub(super) fn check_writable(&self, root: impl AsFd, directory: impl AsFd, name: &Path) -> Result<(), PathError> {
        if self.names.is_empty() && self.read_only.is_empty() && self.hidden.is_empty() {
            return Ok(());
        }
        let path = within(root, directory)?.join(name);
        let touches = |protected: &PathBuf| path.starts_with(protected) || protected.starts_with(&path);
        if self.hidden.iter().any(touches) {
            return Err(PathError::Hidden);
        }
        match self.names.iter().any(|protected| protected.starts_with(&path)) || self.read_only.iter().any(touches) {
            true => Err(PathError::Protected),
            false => Ok(()),
        }
    }
}

/// The path of an open file relative to the workspace, with all links resolved.
fn within(root: impl AsFd, opened: impl AsFd) -> Result<PathBuf, PathError> {
    // Without the real path, access is denied.
    let place = |file: &dyn AsFd| {
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).map_err(|_| PathError::Denied)
    };
    let (root, place) = (place(&root)?, place(&opened)?);
    place.strip_prefix(&root).map(Path::to_owned).map_err(|_| PathError::Denied)
}
