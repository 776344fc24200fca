//! File names and paths as bytes.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// A file name, or a path with `/` between names. It may contain any bytes. Serialized as a string if it is valid
/// UTF-8, otherwise as `{"base64": …}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Box<[u8]>);

impl FilePath {
    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as text, with replacement characters for invalid UTF-8.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether it is a valid name for a directory entry: not empty, not `.` or `..`, without `/` and NUL.
    pub fn is_legal_entry(&self) -> bool {
        let bytes = self.as_bytes();
        !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.iter().any(|b| matches!(b, b'/' | 0))
    }

    /// Appends `name` to the path. The empty path is the root.
    #[must_use]
    pub fn join(&self, name: &FilePath) -> FilePath {
        if self.0.is_empty() {
            return name.clone();
        }
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        path.extend_from_slice(&self.0);
        path.push(b'/');
        path.extend_from_slice(&name.0);
        FilePath(path.into())
    }

    /// The empty path, which is the root.
    pub fn root() -> FilePath {
        FilePath(Box::default())
    }

    /// The names in the path, in order.
    pub fn parts(&self) -> impl Iterator<Item = FilePath> {
        self.0.split(|b| *b == b'/').filter(|part| !part.is_empty()).map(FilePath::from)
    }

    /// Splits the path into the directory and the last name.
    pub fn split(&self) -> (FilePath, FilePath) {
        match memchr::memrchr(b'/', &self.0) {
            Some(at) => (FilePath::from(&self.0[..at]), FilePath::from(&self.0[at + 1..])),
            None => (FilePath::root(), self.clone()),
        }
    }
}

impl From<&[u8]> for FilePath {
    fn from(bytes: &[u8]) -> Self {
        FilePath(bytes.into())
    }
}

impl From<Vec<u8>> for FilePath {
    fn from(bytes: Vec<u8>) -> Self {
        FilePath(bytes.into())
    }
}

impl From<&str> for FilePath {
    fn from(text: &str) -> Self {
        FilePath(text.as_bytes().into())
    }
}

/// Formats the path for people: control characters and invalid bytes are escaped.
impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    // Escapes also the characters that change the text direction.
                    c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                        shown.extend(c.escape_default());
                    }
                    c => shown.push(c),
                }
            }
            for byte in chunk.invalid() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        f.pad(&shown)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written<'a> {
    Text(Cow<'a, str>),
    Bytes { base64: Cow<'a, str> },
}

impl Serialize for FilePath {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Written::Bytes { base64: BASE64_STANDARD.encode(&self.0).into() }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Text(text) => Ok(FilePath::from(&*text)),
            Written::Bytes { base64 } => {
                let bytes = BASE64_STANDARD.decode(base64.as_bytes()).map_err(serde::de::Error::custom)?;
                // Each name has only one valid form, so that equal trees have equal digests.
                match std::str::from_utf8(&bytes) {
                    Ok(_) => Err(serde::de::Error::custom("a name in base64 that is text")),
                    Err(_) => Ok(FilePath::from(bytes)),
                }
            }
        }
    }
}
