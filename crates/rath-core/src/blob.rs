//! Content too large for a body: named by digest, stored beside the records.

use std::fmt;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};

use crate::id::Digest;

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

/// Every blob named in a body of any kind, known or not.
pub fn references(body: &[u8]) -> Vec<BlobRef> {
    fn walk(value: serde_json::Value, found: &mut Vec<BlobRef>) {
        match value {
            serde_json::Value::Array(items) => items.into_iter().for_each(|item| walk(item, found)),
            serde_json::Value::Object(fields) => {
                match BlobRef::deserialize(serde_json::Value::Object(fields.clone())) {
                    Ok(blob) => found.push(blob),
                    Err(_) => fields.into_iter().for_each(|(_, value)| walk(value, found)),
                }
            }
            _ => {}
        }
    }
    static DIGEST: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"digest\""));
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u"));
    let mut found = Vec::new();
    // Most bodies name no blob: one search is cheaper than parsing them all.
    let has_escape = || memchr::memchr(b'\\', body).is_some() && ESCAPE.find(body).is_some();
    if (DIGEST.find(body).is_some() || has_escape())
        && let Ok(value) = serde_json::from_slice(body)
    {
        walk(value, &mut found);
    }
    found
}
