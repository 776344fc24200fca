//! Blobs: content that is too large for a body. Blobs are identified by digest and stored separately from the records.

mod named;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::Digest;

pub(crate) use named::is_object;
pub use named::references;

/// Content longer than this many bytes is moved from the body to a blob.
pub const INLINE_LIMIT: usize = 8 * 1024;

/// A reference to a blob in a body. Every JSON object in a body with exactly these three keys is a blob reference. JSON
/// from outside is stored as a string, so it cannot be mistaken for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// The SHA-256 of the content.
    pub digest: Digest,
    /// The length in bytes.
    pub bytes: u64,
    /// The media type, e.g. `text/plain; charset=utf-8`.
    pub media_type: String,
}

/// A blob with its content in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The reference.
    pub reference: BlobRef,
    /// The content.
    pub bytes: Arc<[u8]>,
}

impl Blob {
    /// Creates a blob with this content.
    pub fn new(bytes: impl Into<Arc<[u8]>>, media_type: impl Into<String>) -> Self {
        let bytes = bytes.into();
        let reference =
            BlobRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64, media_type: media_type.into() };
        Self { reference, bytes }
    }
}

/// Text in a body: inline if it is short, otherwise in a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Inline text.
    Text(String),
    /// A reference to a blob with the text.
    Blob(BlobRef),
}

impl Content {
    /// Moves text longer than [`INLINE_LIMIT`] to a new blob, which is added to `blobs`.
    pub(crate) fn spill(&mut self, blobs: &mut Vec<Blob>) {
        if let Content::Text(text) = self
            && text.len() > INLINE_LIMIT
        {
            let blob = Blob::new(std::mem::take(text).into_bytes(), "text/plain; charset=utf-8");
            *self = Content::Blob(blob.reference.clone());
            blobs.push(blob);
        }
    }
}

impl<T: Into<String>> From<T> for Content {
    fn from(text: T) -> Self {
        Content::Text(text.into())
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Text(text) => f.write_str(text),
            Content::Blob(blob) => write!(f, "[{} bytes, blob {:?}]", blob.bytes, blob.digest),
        }
    }
}
