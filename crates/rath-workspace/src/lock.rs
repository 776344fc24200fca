//! One process at a time.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use super::error::{Error, Result};

/// Held as long as the value lives; the system lets go of it when the process dies.
pub(super) struct Lock {
    file: File,
}

/// A process that was just started may still have the file, and with it the lock: it is given back, not only closed.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// A place that nobody works in, kept so while the value lives.
pub struct Vacant {
    _lock: Lock,
}

impl Vacant {
    /// Takes the place that is remembered in `state`, and writes nothing there. `None` while a process has it, or makes
    /// it.
    pub fn claim(state: &Path) -> Option<Self> {
        let file = File::open(state.join("lock")).ok()?;
        file.try_lock().ok()?;
        Some(Self { _lock: Lock { file } })
    }
}

impl Lock {
    pub(super) fn take(state: &Path, directory: &Path) -> Result<Self> {
        let path = state.join("lock");
        let failed = |error| Error::machine(format!("locking {}", path.display()), error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut process = String::new();
                let _ = file.read_to_string(&mut process);
                return Err(Error::Busy { directory: directory.display().to_string(), process: process.trim().into() });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Who it is, for the one who finds it locked.
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(failed)?;
        Ok(Self { file })
    }
}
