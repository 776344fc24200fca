//! The stored identity of a sandbox: the file `sandbox.json` in its state directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::backend::Identity;
use crate::error::{Error, Result};

/// The content of `sandbox.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxState {
    backend: String,
    #[serde(flatten)]
    pub(crate) identity: Identity,
}

fn file(directory: &Path) -> PathBuf {
    directory.join("sandbox.json")
}

impl SandboxState {
    /// Stores the next generation of the sandbox, or the first generation of a new one.
    pub(crate) fn next_generation(directory: &Path, backend: &str) -> Result<Identity> {
        let identity = match Self::read(directory, backend)? {
            Some(known) => Identity { generation: known.identity.generation + 1, ..known.identity },
            None => Identity { id: rath_core::fresh_name(), generation: 1 },
        };
        let state = SandboxState { backend: backend.into(), identity };
        let machine = |error: std::io::Error| Error::machine(format!("writing {}", file(directory).display()), error);
        let text = serde_json::to_vec(&state).map_err(|error| machine(error.into()))?;
        let fresh = directory.join(format!(".rath-{}.tmp", rath_core::fresh_name()));
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, file(directory))).map_err(|error| {
            let _ = fs::remove_file(&fresh);
            machine(error)
        })?;
        Ok(state.identity)
    }

    /// Reads the file. `None` if there is none.
    pub(crate) fn read(directory: &Path, backend: &str) -> Result<Option<SandboxState>> {
        let doing = || format!("reading {}", file(directory).display());
        let text = match fs::read(file(directory)) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(Error::machine(doing(), error)),
        };
        let state: SandboxState = serde_json::from_slice(&text).map_err(|error| Error::machine(doing(), error))?;
        if state.backend != backend {
            let why =
                format!("it belongs to a sandbox of the backend \"{}\"; use another state directory", state.backend);
            return Err(Error::machine(doing(), why));
        }
        Ok(Some(state))
    }

    /// Why the stored sandbox is not the one with `identity`. `None` if it is.
    pub(crate) fn mismatch(directory: &Path, backend: &str, identity: &Identity) -> Result<Option<String>> {
        Ok(match Self::read(directory, backend)? {
            None => Some("its state file does not exist".into()),
            Some(state) if state.identity.id != identity.id => Some("another sandbox uses its state directory".into()),
            Some(state) if state.identity.generation != identity.generation => Some(format!(
                "a newer generation was opened: {} instead of {}",
                state.identity.generation, identity.generation
            )),
            Some(_) => None,
        })
    }

    /// Removes the file.
    pub(crate) fn remove(directory: &Path) -> Result<()> {
        match fs::remove_file(file(directory)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::machine(format!("removing {}", file(directory).display()), error))
            }
            _ => Ok(()),
        }
    }
}

/// The metadata of the file when it last matched the identity. The file is replaced as a whole when it changes, so the
/// same metadata means the same content, and the file need not be read again.
#[derive(Debug, Default)]
pub(crate) struct CachedIdentity(Mutex<Option<(u64, u64, i64, i64)>>);

impl CachedIdentity {
    /// Like [`SandboxState::mismatch`].
    pub(crate) fn mismatch(&self, directory: &Path, backend: &str, identity: &Identity) -> Result<Option<String>> {
        let mut agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fs::metadata(file(directory)).ok();
        let found = found.map(|found| (found.dev(), found.ino(), found.ctime(), found.ctime_nsec()));
        if found.is_some() && found == *agreed {
            return Ok(None);
        }
        let mismatch = SandboxState::mismatch(directory, backend, identity)?;
        *agreed = found.filter(|_| mismatch.is_none());
        Ok(mismatch)
    }
}
