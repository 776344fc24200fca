//! Identifiers: digests, record ids, session ids, and points in a session.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes the concatenation of `parts`.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The 64 hex digits. Does not allocate.
    pub fn hex(&self) -> const_hex::Buffer<32> {
        let mut buffer = const_hex::Buffer::new();
        buffer.format(&self.0);
        buffer
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex().as_str()[..12])
    }
}

/// A text that is not a valid digest or id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{given:?} is not {expected}")]
pub struct NotAnId {
    given: String,
    expected: &'static str,
}

impl NotAnId {
    pub(crate) fn new(given: &str, expected: &'static str) -> Self {
        Self { given: given.into(), expected }
    }
}

impl FromStr for Digest {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let invalid = || NotAnId { given: text.into(), expected: "64 lower-case hex digits" };
        Self::from_hex(text.as_bytes()).ok_or_else(invalid)
    }
}

impl Digest {
    /// Parses 64 lower-case hex digits.
    pub(crate) fn from_hex(digits: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        // No early exit, so that the loop can be vectorized.
        let lower = digits.iter().fold(true, |lower, digit| lower & matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        (lower && const_hex::decode_to_slice(digits, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

/// The id of a record: the digest of its header bytes. It covers the record and its whole history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub Digest);

impl RecordId {
    /// The first twelve hex digits, for display.
    pub fn short(&self) -> String {
        self.0.hex().as_str()[..12].to_owned()
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for RecordId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        text.parse().map(Self)
    }
}

/// The id of a session: a UUIDv7. Only digits of its random end are displayed, because the start is the creation time,
/// which is the same for sessions created together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub Uuid);

impl SessionId {
    /// The last twelve hex digits, which are random.
    pub fn tail(&self) -> String {
        const_hex::encode(&self.0.as_bytes()[10..])
    }

    /// The first eight of the last twelve hex digits, for display.
    pub fn short(&self) -> String {
        const_hex::encode(&self.0.as_bytes()[10..14])
    }

    /// Whether `prefix` is a prefix of the id or of its last twelve hex digits.
    pub fn matches(&self, prefix: &str) -> bool {
        !prefix.is_empty() && (self.tail().starts_with(prefix) || self.to_string().starts_with(prefix))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl FromStr for SessionId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        match Uuid::try_parse(text) {
            Ok(uuid) if text.len() == 36 && uuid.hyphenated().to_string() == text => Ok(Self(uuid)),
            _ => Err(NotAnId { given: text.into(), expected: "a lower-case hyphenated UUID" }),
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.hex().as_str())
    }
}

impl Serialize for RecordId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl Serialize for SessionId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

macro_rules! deserialize_from_text {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
deserialize_from_text!(Digest, RecordId, SessionId);

/// A record by session and sequence number, displayed as `S@seq`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// The session that contains the record.
    pub session: SessionId,
    /// The sequence number in the session.
    pub seq: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.session.short(), self.seq)
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A record by its point and its id. The id identifies the content; the point makes it possible to find the record
/// without an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reference {
    /// The session that contains the record.
    pub session: SessionId,
    /// The sequence number in the session.
    pub seq: u64,
    /// The id of the record.
    pub id: RecordId,
}

impl Reference {
    /// The point, without the id.
    pub fn point(&self) -> Point {
        Point { session: self.session, seq: self.seq }
    }
}
