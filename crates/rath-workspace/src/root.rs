//! The directory that holds the files, reached through descriptors: a link that somebody plants on the way leads
//! nowhere.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rath_core::files::Name;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::error::{Error, Result};

/// What a directory is opened with.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// What a file is read with: a pipe does not make us wait.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The root directory of a workspace.
pub(super) struct Root {
    pub(super) path: PathBuf,
    fd: OwnedFd,
}

/// A name as the system takes it.
pub(super) fn os(name: &Name) -> &OsStr {
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

    /// Opens a path below the root, without following any link.
    pub(super) fn open_at(&self, path: &Name, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.fd, os(path), flags, Mode::empty(), resolve) {
            // Some containers do not let this call through, and no call takes a path that is very long: then name by name.
            Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => self.open_stepwise(path, flags),
            opened => opened,
        }
    }

    fn open_stepwise(&self, path: &Name, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let (directory, last) = path.split();
        let mut at = self.directory_stepwise(&Name::root())?;
        for name in directory.parts() {
            at = openat(&at, os(&name), DIRECTORY, Mode::empty())?;
        }
        openat(&at, os(&last), flags, Mode::empty())
    }

    fn directory_stepwise(&self, path: &Name) -> rustix::io::Result<OwnedFd> {
        let mut at = openat(&self.fd, ".", DIRECTORY, Mode::empty())?;
        for name in path.parts() {
            at = openat(&at, os(&name), DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    /// Opens a directory below the root, or the root.
    pub(super) fn directory(&self, path: &Name) -> rustix::io::Result<OwnedFd> {
        match path.as_bytes().is_empty() {
            true => openat(&self.fd, ".", DIRECTORY, Mode::empty()),
            false => self.open_at(path, DIRECTORY),
        }
    }

    /// Opens a directory in another one.
    pub(super) fn directory_in(at: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<OwnedFd> {
        openat(at, os(name), DIRECTORY, Mode::empty())
    }
}
