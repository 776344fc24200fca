//! Trees of any depth: walked without recursion and with two open directories. Commands make trees that are deeper
//! than a path is long, than files can be open, than a stack is high.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::names;

/// On the way through a tree.
struct Walk {
    here: OwnedFd,
    /// What is still to be seen here.
    names: Vec<Vec<u8>>,
    /// The way back.
    above: Vec<Above>,
}

/// A directory that was left for one of its own.
struct Above {
    device: u64,
    number: u64,
    names: Vec<Vec<u8>>,
    /// The one that was entered.
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

    /// Goes back. The name of the directory that was left; `None` at the top.
    fn leave(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let Some(above) = self.above.pop() else { return Ok(None) };
        let here = rustix::fs::openat(&self.here, "..", DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&here)?;
        // Somebody moved a directory while we were in it.
        if (stat.st_dev, stat.st_ino) != (above.device, above.number) {
            return Err(Errno::STALE);
        }
        (self.here, self.names) = (here, above.names);
        Ok(Some(above.entered))
    }
}

/// Removes what has this name in a directory, with all that is in it. Links are removed, not followed. With `force`,
/// directories that their owner may not enter are opened first.
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

/// Removes a file or a directory by all means.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    Ok(remove_at(CWD, path.as_os_str(), true)?)
}

/// What a file counts for at least: empty ones take room too, only elsewhere.
pub(crate) const LEAST: u64 = 4096;

/// Bytes on disk of all that is below a directory, as far as it can be seen.
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
