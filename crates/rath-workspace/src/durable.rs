//! Files that are replaced as a whole and last through a power cut, and locks on files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Makes the entries of a directory durable.
pub fn sync_dir(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Replaces a file, or makes it: readers see the old bytes or the new ones, also after a power cut. The new bytes are
/// written beside it first, under its name with the extension `new`.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// A lock on a file, held as long as the value lives. The system releases it when the process dies.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Opens the file to be locked, and makes it where it is missing.
    pub fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    /// Takes the lock together with others who share it. Waits for a process that has it alone.
    pub fn shared(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Takes the lock alone. Waits for all others.
    pub fn alone(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// Takes the lock of an open file alone; `None` while another process has it.
    pub fn try_alone(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The file.
    pub fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

/// A process that was just started may still have the file, and with it the lock: so it is released, not only closed.
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
        let try_alone = || FileLock::try_alone(FileLock::open(&path).unwrap()).unwrap();
        assert!(try_alone().is_none());
        drop(shared);
        let alone = try_alone();
        assert!(alone.is_some() && try_alone().is_none());
        drop(alone);
        assert!(FileLock::alone(&path).is_ok());
    }
}
