//! Blobs that are stored with the next commit. Until then they are in memory only, and reads find them here. They are
//! lost if the process dies before that commit.

use std::sync::{Arc, Mutex, PoisonError};

use rath_core::{Blob, Digest};

/// The most bytes that the queue holds. Blobs beyond this are stored at once.
const MAX_BYTES: u64 = 64 << 10;

/// The most blobs that the queue holds.
const MAX_BLOBS: usize = 64;

/// The queue, oldest first.
#[derive(Default)]
pub(super) struct DeferredBlobs(Mutex<Vec<Blob>>);

impl DeferredBlobs {
    /// Queues blobs. Returns them if the queue has no space for all of them.
    pub(super) fn push(&self, blobs: Vec<Blob>) -> Result<(), Vec<Blob>> {
        let mut waiting = self.lock();
        let bytes: u64 = waiting.iter().chain(&blobs).map(|blob| blob.reference.bytes).sum();
        if bytes > MAX_BYTES || waiting.len() + blobs.len() > MAX_BLOBS {
            return Err(blobs);
        }
        waiting.extend(blobs);
        Ok(())
    }

    /// The content of a queued blob.
    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        let waiting = self.lock();
        waiting.iter().find(|blob| blob.reference.digest == *digest).map(|blob| blob.bytes.clone())
    }

    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.lock().iter().any(|blob| blob.reference.digest == *digest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// A copy of the queue. The blobs stay in the queue until they are [committed](Self::committed).
    pub(super) fn all(&self) -> Vec<Blob> {
        self.lock().clone()
    }

    /// Removes the first `count` blobs, which are in the database now. Only the owner of the write slot calls this.
    pub(super) fn committed(&self, count: usize) {
        self.lock().drain(..count);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Blob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
