//! The lock on a workspace: one process at a time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::durable::FileLock;
use crate::error::{Error, Result};

/// The lock file in a state directory. It contains the id of the process that holds the lock.
const FILE: &str = "lock";

/// The exclusive lock on a state directory.
pub(crate) struct Lock {
    _held: FileLock,
}

/// A workspace that no process uses, locked so that none can open it while this value exists.
pub struct IdleWorkspace {
    _held: FileLock,
}

impl IdleWorkspace {
    /// Locks the workspace with the state directory `state`, without writing to it. `None` if a process uses or is
    /// creating the workspace.
    pub fn claim(state: &Path) -> Option<Self> {
        let file = File::open(state.join(FILE)).ok()?;
        FileLock::try_exclusive(file).ok().flatten().map(|held| Self { _held: held })
    }
}

impl Lock {
    pub(crate) fn take(state: &Path, directory: &Path) -> Result<Self> {
        let path = state.join(FILE);
        let failed = |error: io::Error| Error::machine(format!("locking {}", path.display()), error);
        let taken = FileLock::open(&path).and_then(FileLock::try_exclusive).map_err(failed)?;
        let Some(mut held) = taken else {
            let mut process = String::new();
            let _ = File::open(&path).and_then(|mut file| file.read_to_string(&mut process));
            return Err(Error::Busy { directory: directory.display().to_string(), process: process.trim().into() });
        };
        // Another process reads the id from the file for its error message.
        let file = held.file();
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(failed)?;
        Ok(Self { _held: held })
    }
}
