//! Directory trees of any depth. They are walked without recursion and with two open directories, because commands can
//! create trees that exceed the limits for path length, open files and stack size.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::names;

/// A walk through a tree.
struct Walk {
    here: OwnedFd,
    /// Entries of the current directory that were not visited yet.
    names: Vec<Vec<u8>>,
    /// The directories above the current one.
    above: Vec<Above>,
}

/// A parent directory during a walk.
struct Above {
    device: u64,
    number: u64,
    names: Vec<Vec<u8>>,
    /// The name of the subdirectory that the walk is in.
    entered: Vec<u8>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Walk {
    fn begin(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Self, Errno> {
        let here = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
        let names = names(&here)?;
        Ok(Self { here, names, above: Vec::new() })
    }

    fn enter(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let inner = rustix::fs::openat(&self.here, &*name, DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&self.here)?;
        let names = std::mem::replace(&mut self.names, names(&inner)?);
        self.above.push(Above { device: stat.st_dev, number: stat.st_ino, names, entered: name });
        self.here = inner;
        Ok(())
    }

    /// Returns to the parent directory. Returns the name of the directory that was left; `None` at the top.
    fn leave(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let Some(above) = self.above.pop() else { return Ok(None) };
        let here = rustix::fs::openat(&self.here, "..", DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&here)?;
        // The directory was moved while the walk was in it.
        if (stat.st_dev, stat.st_ino) != (above.device, above.number) {
            return Err(Errno::STALE);
        }
        (self.here, self.names) = (here, above.names);
        Ok(Some(above.entered))
    }
}

/// Removes an entry of a directory with everything in it. Links are removed, not followed. With `force`, sets the
/// permissions of directories that cannot be entered.
pub(super) fn remove_at(parent: BorrowedFd<'_>, name: &OsStr, force: bool) -> Result<(), Errno> {
    let open_up = |directory: BorrowedFd<'_>, name: &OsStr| {
        if force {
            let _ = rustix::fs::chmodat(directory, name, Mode::RWXU, AtFlags::empty());
        }
    };
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        done => return done,
    }
    open_up(parent, name);
    let mut walk = Walk::begin(parent, name)?;
    loop {
        let Some(name) = walk.names.pop() else {
            let Some(left) = walk.leave()? else { break };
            missing_is_fine(rustix::fs::unlinkat(&walk.here, &*left, AtFlags::REMOVEDIR))?;
            continue;
        };
        match rustix::fs::unlinkat(&walk.here, &*name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                open_up(walk.here.as_fd(), OsStr::from_bytes(&name));
                missing_is_fine(walk.enter(name))?;
            }
            done => missing_is_fine(done)?,
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn missing_is_fine(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes a file or a directory, including directories without permissions.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    Ok(remove_at(CWD, path.as_os_str(), true)?)
}

/// The minimum number of bytes that a file counts for: an empty file takes an inode.
pub(crate) const LEAST: u64 = 4096;

/// Disk usage in bytes of everything below a directory. Skips what cannot be read.
pub(crate) fn disk_use(path: &Path) -> u64 {
    let mut total = 0;
    let Ok(mut walk) = Walk::begin(CWD, path.as_os_str()) else { return 0 };
    loop {
        let Some(name) = walk.names.pop() else {
            match walk.leave() {
                Ok(Some(_)) => continue,
                _ => return total,
            }
        };
        let Ok(stat) = rustix::fs::statat(&walk.here, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        total += (stat.st_blocks as u64 * 512).max(LEAST);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let _ = walk.enter(name);
        }
    }
}
