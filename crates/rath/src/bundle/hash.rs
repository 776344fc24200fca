//! The digest of a long file, made on a thread beside.

use rath_core::Digest;
use sha2::{Digest as _, Sha256};

use super::beside::Beside;

type Part = Box<dyn AsRef<[u8]> + Send>;

/// A digest on its way. Parts may be shared with the thread that hashes them.
pub(super) struct LongHash(Beside<Option<Part>, Option<Digest>>);

impl LongHash {
    pub(super) fn new() -> Self {
        let mut hash = Sha256::new();
        Self(Beside::new("rath-hash", move |part: Option<Part>| match part {
            Some(part) => {
                hash.update(part.as_ref());
                None
            }
            None => Some(Digest(std::mem::take(&mut hash).finalize().into())),
        }))
    }

    /// The next part.
    pub(super) fn update(&mut self, part: impl AsRef<[u8]> + Send + 'static) {
        self.0.give(Some(Box::new(part)));
    }

    /// The digest of all parts.
    pub(super) fn end(mut self) -> Digest {
        let mut last = self.0.give(None);
        while let Some(done) = self.0.take() {
            last = Some(done);
        }
        last.flatten().unwrap_or(Digest([0; 32]))
    }
}
