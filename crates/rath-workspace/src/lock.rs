//! One process at a time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::durable::FileLock;
use crate::error::{Error, Result};

/// The file in a state directory that is locked as long as a process works there. It has the number of the process.
const FILE: &str = "lock";

/// The right to work in a state directory.
pub(crate) struct Lock {
    _held: FileLock,
}

/// A place that no process works in, kept so while the value lives.
pub struct Vacant {
    _held: FileLock,
}

impl Vacant {
    /// Takes the place that is remembered in `state`, and writes nothing there. `None` while a process has it, or makes
    /// it.
    pub fn claim(state: &Path) -> Option<Self> {
        let file = File::open(state.join(FILE)).ok()?;
        FileLock::try_alone(file).ok().flatten().map(|held| Self { _held: held })
    }
}

impl Lock {
    pub(crate) fn take(state: &Path, directory: &Path) -> Result<Self> {
        let path = state.join(FILE);
        let failed = |error: io::Error| Error::machine(format!("locking {}", path.display()), error);
        let taken = FileLock::open(&path).and_then(FileLock::try_alone).map_err(failed)?;
        let Some(mut held) = taken else {
            let mut process = String::new();
            let _ = File::open(&path).and_then(|mut file| file.read_to_string(&mut process));
            return Err(Error::Busy { directory: directory.display().to_string(), process: process.trim().into() });
        };
        // For the process that finds it locked.
        let file = held.file();
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(failed)?;
        Ok(Self { _held: held })
    }
}
