//! What a backend remembers of a sandbox: `sandbox.json` in its state directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::backend::Identity;
use crate::error::{Error, Result};

/// The file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    backend: String,
    #[serde(flatten)]
    pub(crate) identity: Identity,
}

fn file(directory: &Path) -> PathBuf {
    directory.join("sandbox.json")
}

impl State {
    /// Writes down the next generation of the sandbox that is known here, or the first of a new one.
    pub(crate) fn renew(directory: &Path, backend: &str) -> Result<Identity> {
        let identity = match Self::read(directory, backend)? {
            Some(known) => Identity { generation: known.identity.generation + 1, ..known.identity },
            None => Identity { id: rath_core::fresh_name(), generation: 1 },
        };
        let state = State { backend: backend.into(), identity };
        let machine = |error: std::io::Error| Error::machine(format!("writing {}", file(directory).display()), error);
        let text = serde_json::to_vec(&state).map_err(|error| machine(error.into()))?;
        let fresh = directory.join(format!(".rath-{}.tmp", rath_core::fresh_name()));
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, file(directory))).map_err(|error| {
            let _ = fs::remove_file(&fresh);
            machine(error)
        })?;
        Ok(state.identity)
    }

    /// What is known. `None` when nothing is.
    pub(crate) fn read(directory: &Path, backend: &str) -> Result<Option<State>> {
        let doing = || format!("reading {}", file(directory).display());
        let text = match fs::read(file(directory)) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(Error::machine(doing(), error)),
        };
        let state: State = serde_json::from_slice(&text).map_err(|error| Error::machine(doing(), error))?;
        if state.backend != backend {
            let why = format!("it is of a sandbox of the backend \"{}\"; use another state directory", state.backend);
            return Err(Error::machine(doing(), why));
        }
        Ok(Some(state))
    }

    /// Why a sandbox cannot be what is known here. `None` if it is.
    pub(crate) fn contradicts(directory: &Path, backend: &str, identity: &Identity) -> Result<Option<String>> {
        Ok(match Self::read(directory, backend)? {
            None => Some("its state is gone".into()),
            Some(state) if state.identity.id != identity.id => Some("another sandbox took its place".into()),
            Some(state) if state.identity.generation != identity.generation => Some(format!(
                "it was opened anew: generation {}, not {}",
                state.identity.generation, identity.generation
            )),
            Some(_) => None,
        })
    }

    /// Forgets the sandbox.
    pub(crate) fn forget(directory: &Path) -> Result<()> {
        match fs::remove_file(file(directory)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::machine(format!("removing {}", file(directory).display()), error))
            }
            _ => Ok(()),
        }
    }
}

/// The file as it was last found to agree. Whoever writes another one puts it in its place, so the same file says the
/// same, and need not be read again.
#[derive(Debug, Default)]
pub(crate) struct Agreed(Mutex<Option<(u64, u64, i64, i64)>>);

impl Agreed {
    /// As [`State::contradicts`].
    pub(crate) fn contradicts(&self, directory: &Path, backend: &str, identity: &Identity) -> Result<Option<String>> {
        let mut agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fs::metadata(file(directory)).ok();
        let found = found.map(|found| (found.dev(), found.ino(), found.ctime(), found.ctime_nsec()));
        if found.is_some() && found == *agreed {
            return Ok(None);
        }
        let contradicts = State::contradicts(directory, backend, identity)?;
        *agreed = found.filter(|_| contradicts.is_none());
        Ok(contradicts)
    }
}
