//! Content too large for a body: named by digest, stored beside the records.

mod named;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::Digest;

pub(crate) use named::is_object;
pub use named::references;

/// Content above this many bytes leaves the body and becomes a blob.
pub const INLINE_LIMIT: usize = 8 * 1024;

/// How a body names a blob. Any object in a body with exactly these three keys is such a name; free-form JSON from
/// outside is kept as a string, so nothing else can look like one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// What it is, e.g. `text/plain; charset=utf-8`.
    pub media_type: String,
}

/// A blob with its content at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its name.
    pub reference: BlobRef,
    /// Its content.
    pub bytes: Arc<[u8]>,
}

impl Blob {
    /// Names `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>, media_type: impl Into<String>) -> Self {
        let bytes = bytes.into();
        let reference =
            BlobRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64, media_type: media_type.into() };
        Self { reference, bytes }
    }
}

/// Text in a body: in place while it is short, a blob when it is long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// In place.
    Text(String),
    /// Elsewhere.
    Blob(BlobRef),
}

impl Content {
    /// Moves long text out into `blobs`.
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
