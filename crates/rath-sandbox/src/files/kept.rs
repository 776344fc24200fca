//! What a workspace has that those who work in it may not change, or not even see.
//!
//! Commands are kept from it by mounts and by Landlock. Neither holds for this process, which reads and writes files
//! for them: the kernel lets it replace what is covered in another mount namespace than its own.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use crate::error::Why;

/// Paths in a workspace, relative to it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Names that stay. What is below them may change.
    pub(crate) names: Vec<PathBuf>,
    /// Nothing here or below changes.
    pub(crate) read_only: Vec<PathBuf>,
    /// Nothing here or below is seen.
    pub(crate) hidden: Vec<PathBuf>,
}

impl Kept {
    /// Whether what is opened may be seen.
    pub(super) fn may_see(&self, root: impl AsFd, opened: impl AsFd) -> Result<(), Why> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let path = within(root, opened)?;
        match self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            true => Err(Why::Hidden),
            false => Ok(()),
        }
    }

    /// Whether what has a name in a directory may be made, replaced or removed, with all that is below it.
    pub(super) fn may_change(&self, root: impl AsFd, directory: impl AsFd, name: &Path) -> Result<(), Why> {
        if self.names.is_empty() && self.read_only.is_empty() && self.hidden.is_empty() {
            return Ok(());
        }
        let path = within(root, directory)?.join(name);
        let touches = |kept: &PathBuf| path.starts_with(kept) || kept.starts_with(&path);
        if self.hidden.iter().any(touches) {
            return Err(Why::Hidden);
        }
        match self.names.iter().any(|kept| kept.starts_with(&path)) || self.read_only.iter().any(touches) {
            true => Err(Why::Protected),
            false => Ok(()),
        }
    }
}

/// Where something that is open really is, whatever links led there, relative to the workspace.
fn within(root: impl AsFd, opened: impl AsFd) -> Result<PathBuf, Why> {
    // Whoever cannot say where it is does not touch it.
    let place = |file: &dyn AsFd| {
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).map_err(|_| Why::Denied)
    };
    let (root, place) = (place(&root)?, place(&opened)?);
    place.strip_prefix(&root).map(Path::to_owned).map_err(|_| Why::Denied)
}
