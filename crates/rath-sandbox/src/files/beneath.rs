//! Opens paths below the workspace directory, and never outside of it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::protected_paths::ProtectedPaths;
use super::{FileError, FileResult};
use crate::error::PathError;

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Maximum number of attempts of a lookup that the kernel aborts because a directory was moved at the same time.
const MOST_TRIES: usize = 64;

/// Whether the kernel lacks `openat2`.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// The workspace directory.
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    /// Device and inode of the directory.
    inode: (u64, u64),
    protected: ProtectedPaths,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Self::over(path, directory)
    }

    /// A directory that is open already. It counts as missing once the directory at `path` is replaced or removed.
    pub(crate) fn over(path: PathBuf, directory: OwnedFd) -> io::Result<Self> {
        let stat = fs::metadata(&path)?;
        Ok(Self { path, directory, inode: (stat.dev(), stat.ino()), protected: ProtectedPaths::default() })
    }

    /// Adds protected paths.
    pub(crate) fn with_protected(self, protected: ProtectedPaths) -> Self {
        Self { protected, ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the directory does not exist at its path any more. `None` if it does.
    pub(crate) fn missing_reason(&self) -> Option<String> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.inode => None,
            Ok(_) => Some(format!("{} is another directory now", self.path.display())),
            Err(error) => Some(format!("its directory {} cannot be opened ({error})", self.path.display())),
        }
    }

    /// Opens a path. Fails if it is hidden.
    pub(crate) fn look_up(&self, path: &Path, flags: OFlags) -> FileResult<OwnedFd> {
        let found = self.find(path, flags)?;
        self.protected.check_visible(&self.directory, &found).map_err(FileError::Path)?;
        Ok(found)
    }

    /// Fails if `name` in a directory of the workspace must not be created, replaced or removed.
    pub(crate) fn check_writable(&self, directory: &OwnedFd, name: &OsStr) -> FileResult<()> {
        self.protected.check_writable(&self.directory, directory, Path::new(name)).map_err(FileError::Path)
    }

    fn find(&self, path: &Path, flags: OFlags) -> FileResult<OwnedFd> {
        check_path(path)?;
        if !PLAIN.load(Ordering::Relaxed) {
            match within(self.directory.as_fd(), path, flags) {
                Err(Errno::NOSYS) => PLAIN.store(true, Ordering::Relaxed),
                found => return found.map_err(FileError::from),
            }
        }
        step_by_step(self.directory.as_fd(), path, flags)
    }

    /// Opens a directory.
    pub(crate) fn directory(&self, path: &Path) -> FileResult<OwnedFd> {
        self.look_up(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a directory. Creates it and its parents if they do not exist.
    pub(crate) fn create_directory(&self, path: &Path) -> FileResult<OwnedFd> {
        match self.directory(path) {
            Err(FileError::Path(PathError::Missing)) => {}
            found => return found,
        }
        let (parent, name) = split(path).ok_or(FileError::Path(PathError::Missing))?;
        let above = self.create_directory(parent)?;
        self.check_writable(&above, name)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.directory(path),
            Err(error) => Err(error.into()),
        }
    }
}

/// Splits a path into its parent and its name. `None` if it has no name.
pub(crate) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// Refuses paths that can never be in a workspace: absolute ones, and those with a NUL byte.
pub(crate) fn check_path(path: &Path) -> FileResult<()> {
    match path {
        path if path.is_absolute() => Err(FileError::Path(PathError::Absolute)),
        path if path.as_os_str().as_bytes().contains(&0) => Err(FileError::Path(PathError::Invalid)),
        _ => Ok(()),
    }
}

fn within(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    for _ in 0..MOST_TRIES {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), WITHIN) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            found => return found,
        }
    }
    Err(Errno::AGAIN)
}

/// Like [`within`], for kernels without `openat2`: opens one component after another, and follows no links.
fn step_by_step(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> FileResult<OwnedFd> {
    let mut steps = Vec::new();
    for step in path.components() {
        match step {
            Component::Normal(name) => steps.push(name),
            Component::ParentDir => drop(steps.pop().ok_or(FileError::Path(PathError::Outside))?),
            _ => {}
        }
    }
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let last = steps.pop().unwrap_or(OsStr::new("."));
    let mut at = rustix::fs::openat(root, ".", way, Mode::empty())?;
    for step in steps {
        at = rustix::fs::openat(&at, step, way, Mode::empty())?;
    }
    let found = rustix::fs::openat(&at, last, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Symlink => Err(FileError::Path(PathError::LinkLoop)),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), "x").unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink("a", dir.path().join("in")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let open = |path: &str, flags| step_by_step(root.directory.as_fd(), Path::new(path), flags);
        for good in ["a/b/file", "a/../a/b/./file", "a/b", "", "."] {
            assert!(open(good, OFlags::RDONLY).is_ok(), "{good}");
        }
        for bad in ["..", "a/../..", "out/passwd", "out", "in/b/file", "in", "a/b/file/x", "none"] {
            assert!(open(bad, OFlags::RDONLY).is_err(), "{bad}");
            assert!(open(bad, OFlags::PATH).is_err(), "{bad}");
        }
    }
}
