//! Atomic, durable file replacement, and file locks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Syncs a directory, so that creations, renames and removals in it survive a power failure.
pub fn sync_dir(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates or replaces a file atomically: readers see either the old bytes or the new ones, even after a power failure.
/// Writes a temporary file in the same directory first; its name has the extension `new`.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// An advisory lock on a file, held until the value is dropped. The operating system releases it when the process dies.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Opens a lock file. Creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    /// Takes a shared lock. Blocks while another process holds the exclusive lock.
    pub fn shared(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Takes the exclusive lock. Blocks while any other process holds the lock.
    pub fn exclusive(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// Takes the exclusive lock on an open file. `None` if another process holds the lock.
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The locked file.
    pub fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

/// Unlocks explicitly instead of only closing the file: between fork and exec, a new child process has a copy of the
/// descriptor, which would keep the lock.
impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stack.json");
        for text in ["one", "three"] {
            atomic_write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_excludes_and_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let shared = (FileLock::shared(&path).unwrap(), FileLock::shared(&path).unwrap());
        let try_exclusive = || FileLock::try_exclusive(FileLock::open(&path).unwrap()).unwrap();
        assert!(try_exclusive().is_none());
        drop(shared);
        let exclusive = try_exclusive();
        assert!(exclusive.is_some() && try_exclusive().is_none());
        drop(exclusive);
        assert!(FileLock::exclusive(&path).is_ok());
    }
}
