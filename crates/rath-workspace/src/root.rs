//! The root directory of a workspace. Everything below it is opened relative to a descriptor and without following
//! symbolic links, so that a planted link cannot lead out of the workspace.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rath_core::files::FilePath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::error::{Error, Result};

/// Flags for opening a directory.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Flags for opening a file to read. `NONBLOCK` prevents blocking on a FIFO.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The root directory of a workspace.
pub(super) struct Root {
    pub(super) path: PathBuf,
    fd: OwnedFd,
}

/// Converts a name for a system call.
pub(super) fn os(name: &FilePath) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let missing = || Error::Missing(path.display().to_string());
        let path = path.canonicalize().map_err(|_| missing())?;
        let fd = openat(CWD, &path, DIRECTORY, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR | Errno::NOENT => missing(),
            error => Error::machine(format!("opening {}", path.display()), error),
        })?;
        Ok(Self { path, fd })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a path below the root without following symbolic links.
    pub(super) fn open_at(&self, path: &FilePath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.fd, os(path), flags, Mode::empty(), resolve) {
            // Some containers block openat2, and the kernel refuses very long paths. Then each component is opened in
            // turn.
            Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => self.open_stepwise(path, flags),
            opened => opened,
        }
    }

    fn open_stepwise(&self, path: &FilePath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let (directory, last) = path.split();
        let mut at = self.directory_stepwise(&FilePath::root())?;
        for name in directory.parts() {
            at = openat(&at, os(&name), DIRECTORY, Mode::empty())?;
        }
        openat(&at, os(&last), flags, Mode::empty())
    }

    fn directory_stepwise(&self, path: &FilePath) -> rustix::io::Result<OwnedFd> {
        let mut at = openat(&self.fd, ".", DIRECTORY, Mode::empty())?;
        for name in path.parts() {
            at = openat(&at, os(&name), DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    /// Opens a directory below the root, or the root itself if the path is empty.
    pub(super) fn directory(&self, path: &FilePath) -> rustix::io::Result<OwnedFd> {
        match path.as_bytes().is_empty() {
            true => openat(&self.fd, ".", DIRECTORY, Mode::empty()),
            false => self.open_at(path, DIRECTORY),
        }
    }

    /// Opens a subdirectory of an open directory.
    pub(super) fn directory_in(at: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<OwnedFd> {
        openat(at, os(name), DIRECTORY, Mode::empty())
    }
}
