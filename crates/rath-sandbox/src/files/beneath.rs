//! The workspace's directory, and the way to what is in it: never out of it.

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

use super::kept::Kept;
use super::{Fault, Outcome};
use crate::error::Why;

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// How often a look-up is tried again when directories are moved meanwhile.
const MOST_TRIES: usize = 64;

/// Set when the kernel has no `openat2`.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// The workspace.
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    /// Device and number of the directory.
    inode: (u64, u64),
    kept: Kept,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Self::over(path, directory)
    }

    /// A directory that is open already. With the one at `path` it is gone.
    pub(crate) fn over(path: PathBuf, directory: OwnedFd) -> io::Result<Self> {
        let stat = fs::metadata(&path)?;
        Ok(Self { path, directory, inode: (stat.dev(), stat.ino()), kept: Kept::default() })
    }

    /// The same, where not everything is for those who work in it.
    pub(crate) fn keeping(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the directory is not there any more. `None` when it is.
    pub(crate) fn gone(&self) -> Option<String> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.inode => None,
            Ok(_) => Some(format!("another directory took the place of {}", self.path.display())),
            Err(error) => Some(format!("its directory {} is gone ({error})", self.path.display())),
        }
    }

    /// Opens what is at `path`.
    pub(crate) fn look_up(&self, path: &Path, flags: OFlags) -> Outcome<OwnedFd> {
        let found = self.find(path, flags)?;
        self.kept.may_see(&self.directory, &found).map_err(Fault::Path)?;
        Ok(found)
    }

    /// Whether what has a name in a directory of the workspace may be made, replaced or removed.
    pub(crate) fn may_change(&self, directory: &OwnedFd, name: &OsStr) -> Outcome<()> {
        self.kept.may_change(&self.directory, directory, Path::new(name)).map_err(Fault::Path)
    }

    fn find(&self, path: &Path, flags: OFlags) -> Outcome<OwnedFd> {
        speakable(path)?;
        if !PLAIN.load(Ordering::Relaxed) {
            match within(self.directory.as_fd(), path, flags) {
                Err(Errno::NOSYS) => PLAIN.store(true, Ordering::Relaxed),
                found => return found.map_err(Fault::from),
            }
        }
        step_by_step(self.directory.as_fd(), path, flags)
    }

    /// The directory at `path`.
    pub(crate) fn directory(&self, path: &Path) -> Outcome<OwnedFd> {
        self.look_up(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// The directory at `path`, made if it is missing.
    pub(crate) fn made_directory(&self, path: &Path) -> Outcome<OwnedFd> {
        match self.directory(path) {
            Err(Fault::Path(Why::Missing)) => {}
            found => return found,
        }
        let (parent, name) = split(path).ok_or(Fault::Path(Why::Missing))?;
        let above = self.made_directory(parent)?;
        self.may_change(&above, name)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.directory(path),
            Err(error) => Err(error.into()),
        }
    }
}

/// The directory that `path` is in, and its name there. `None` when it has none.
pub(crate) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// Refuses what is not a path in a workspace, whatever is there.
pub(crate) fn speakable(path: &Path) -> Outcome<()> {
    match path {
        path if path.is_absolute() => Err(Fault::Path(Why::Absolute)),
        path if path.as_os_str().as_bytes().contains(&0) => Err(Fault::Path(Why::Unspeakable)),
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

/// The same for kernels without `openat2`: every step is taken by itself, and no link is followed.
fn step_by_step(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Outcome<OwnedFd> {
    let mut steps = Vec::new();
    for step in path.components() {
        match step {
            Component::Normal(name) => steps.push(name),
            Component::ParentDir => drop(steps.pop().ok_or(Fault::Path(Why::Outside))?),
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
        rustix::fs::FileType::Symlink => Err(Fault::Path(Why::Links)),
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
