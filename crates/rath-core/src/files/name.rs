//! Names as a file system has them: bytes, mostly UTF-8.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// A file's name, or a path of names with `/` between them. Any bytes; written as text where they are UTF-8, else as
/// `{"base64": …}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text, with replacement characters where it is none.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether it can be one entry of a directory.
    pub fn is_legal_entry(&self) -> bool {
        let bytes = self.as_bytes();
        !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.iter().any(|b| matches!(b, b'/' | 0))
    }

    /// The path of `name` in the directory that this path names; an empty path is the root.
    #[must_use]
    pub fn join(&self, name: &Name) -> Name {
        if self.0.is_empty() {
            return name.clone();
        }
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        path.extend_from_slice(&self.0);
        path.push(b'/');
        path.extend_from_slice(&name.0);
        Name(path.into())
    }

    /// The root: a path without names.
    pub fn root() -> Name {
        Name(Box::default())
    }

    /// The names of a path, in order.
    pub fn parts(&self) -> impl Iterator<Item = Name> {
        self.0.split(|b| *b == b'/').filter(|part| !part.is_empty()).map(Name::from)
    }

    /// Directory and last name of a path.
    pub fn split(&self) -> (Name, Name) {
        match memchr::memrchr(b'/', &self.0) {
            Some(at) => (Name::from(&self.0[..at]), Name::from(&self.0[at + 1..])),
            None => (Name::root(), self.clone()),
        }
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Name(bytes.into())
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Self {
        Name(bytes.into())
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.as_bytes().into())
    }
}

/// As a person reads it: text with control characters and foreign bytes written out.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    // Those that turn the direction of a text too.
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

impl fmt::Debug for Name {
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

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Written::Bytes { base64: BASE64_STANDARD.encode(&self.0).into() }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Text(text) => Ok(Name::from(&*text)),
            Written::Bytes { base64 } => {
                let bytes = BASE64_STANDARD.decode(base64.as_bytes()).map_err(serde::de::Error::custom)?;
                // One name has one form, so that equal trees have equal digests.
                match std::str::from_utf8(&bytes) {
                    Ok(_) => Err(serde::de::Error::custom("a name in base64 that is text")),
                    Err(_) => Ok(Name::from(bytes)),
                }
            }
        }
    }
}
