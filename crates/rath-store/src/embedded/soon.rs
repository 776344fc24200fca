//! Blobs that are stored with the next commit. Until then they are read from here.

use std::sync::{Arc, Mutex, PoisonError};

use rath_core::{Blob, Digest};

/// As many bytes may wait, and as many blobs. More are stored at once.
const ROOM: u64 = 64 << 10;
const PLACES: usize = 64;

/// Those that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct Soon(Mutex<Vec<Blob>>);

impl Soon {
    /// Has blobs wait. Where there is no room for them they come back.
    pub(super) fn wait(&self, blobs: Vec<Blob>) -> Result<(), Vec<Blob>> {
        let mut waiting = self.lock();
        let bytes: u64 = waiting.iter().chain(&blobs).map(|blob| blob.reference.bytes).sum();
        if bytes > ROOM || waiting.len() + blobs.len() > PLACES {
            return Err(blobs);
        }
        waiting.extend(blobs);
        Ok(())
    }

    /// The content of one that waits.
    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        let waiting = self.lock();
        waiting.iter().find(|blob| blob.reference.digest == *digest).map(|blob| blob.bytes.clone())
    }

    /// Whether one waits.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.lock().iter().any(|blob| blob.reference.digest == *digest)
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// All that wait. They do so until they [arrived](Self::arrived).
    pub(super) fn all(&self) -> Vec<Blob> {
        self.lock().clone()
    }

    /// Lets the first so many go: whoever looks for them finds them in the database. Only who writes calls this.
    pub(super) fn arrived(&self, count: usize) {
        self.lock().drain(..count);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Blob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
