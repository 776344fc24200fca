//! Checkpoints: signed statements about a store, each one line of text that can be kept outside the store.
//!
//! A [`Checkpoint`] contains the number of records in a store, the digest of the [`Heads`] of all sessions, and the
//! digest of the previous checkpoint. A store that lost or rewrote records no longer matches its checkpoints. This
//! module only defines the formats; other crates create keys and signatures.

mod heads;
mod hex;

use serde::{Deserialize, Serialize};

pub use heads::{HEADS, Heads};
pub use hex::{PublicKey, Signature};

use crate::clock::Time;
use crate::id::{Digest, SessionId};

/// The checkpoint version that this library reads and writes.
pub const VERSION: u64 = 1;

/// The maximum length of a checkpoint line, in bytes.
pub const MAX_LINE: usize = 32 * 1024;

/// The maximum length of a note, in bytes.
pub const MAX_NOTE: usize = 500;

/// The largest integer in canonical JSON: a double represents all smaller ones exactly.
const LARGEST: u64 = 1 << 53;

/// A signed statement about a store. The line is canonical JSON (RFC 8785). The signature is over the line without the
/// field `signature`; the digest is the SHA-256 of the whole line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Whether the previous key was lost, so that no succession links it to this key.
    #[serde(rename = "anew", default, skip_serializing_if = "std::ops::Not::not")]
    pub previous_key_lost: bool,
    /// The checkpoint version.
    #[serde(rename = "checkpoint")]
    pub version: u64,
    /// The digest of the text of the [`Heads`].
    pub heads: Digest,
    /// The public key of the signature.
    pub key: PublicKey,
    /// The number of the checkpoint, from 1.
    pub no: u64,
    /// A note written by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The digest of the previous checkpoint; `None` for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// The number of records in the store.
    pub records: u64,
    /// The number of sessions in the store.
    pub sessions: u64,
    /// The signature by `key`.
    pub signature: Signature,
    /// The id of the store's operator session. Copies of the store have the same id.
    pub store: SessionId,
    /// The chain of successions from the previous checkpoint's key to `key`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub successions: Vec<Succession>,
    /// The time of the checkpoint.
    pub time: Time,
}

/// A statement signed by one key that another key succeeds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Succession {
    /// The replaced key, which signs.
    pub from: PublicKey,
    /// The new key.
    pub key: PublicKey,
    /// The signature by `from`, over the canonical JSON without this field.
    pub signature: Signature,
    /// The version of the format.
    pub succession: u64,
    /// The time of the succession.
    pub time: Time,
}

/// Why a text is not a valid checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotACheckpoint {
    /// The line is too long.
    #[error("it has more than {MAX_LINE} bytes")]
    TooLong,
    /// The line is not the JSON of a checkpoint.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The checkpoint was written by a later version of Rath.
    #[error("it has version {0}, but this version of rath reads {VERSION}: use a newer version")]
    Future(u64),
    /// The line is not canonical JSON.
    #[error("it is not in canonical form: something was added, moved or rewritten")]
    NotCanonical,
    /// A field has an invalid value.
    #[error("{0}")]
    InvalidField(&'static str),
}

impl Checkpoint {
    /// Parses a checkpoint: one line of canonical JSON.
    pub fn parse(line: &str) -> Result<Self, NotACheckpoint> {
        if line.len() > MAX_LINE {
            return Err(NotACheckpoint::TooLong);
        }
        let line = line.trim();
        let unreadable = |error: serde_json::Error| NotACheckpoint::Unreadable(error.to_string());
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).map_err(unreadable)?;
        match fields.get("checkpoint").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(version) => return Err(NotACheckpoint::Future(version)),
            None => return Err(NotACheckpoint::Unreadable("it has no version".into())),
        }
        let read: Self = serde_json::from_value(fields.into()).map_err(unreadable)?;
        read.check()?;
        match read.line() == line {
            true => Ok(read),
            false => Err(NotACheckpoint::NotCanonical),
        }
    }

    /// Checks the values of all fields.
    pub fn check(&self) -> Result<(), NotACheckpoint> {
        let invalid = |why| Err(NotACheckpoint::InvalidField(why));
        if self.note.as_ref().is_some_and(|note| note.len() > MAX_NOTE) {
            return invalid("its note is longer than 500 bytes");
        }
        if [self.no, self.records, self.sessions, self.time.0].iter().any(|number| *number > LARGEST) {
            return invalid("a number in it is too large");
        }
        match (self.no, self.previous) {
            (1, None) | (2.., Some(_)) => Ok(()),
            _ => invalid("only the first checkpoint, number 1, has no previous one"),
        }
    }

    /// The checkpoint as one line of canonical JSON.
    pub fn line(&self) -> String {
        canonical(self, None)
    }

    /// The text that is signed.
    pub fn statement(&self) -> String {
        canonical(self, Some("signature"))
    }

    /// The SHA-256 of the line.
    pub fn digest(&self) -> Digest {
        Digest::of(self.line().as_bytes())
    }
}

impl Succession {
    /// The text that is signed.
    pub fn statement(&self) -> String {
        canonical(self, Some("signature"))
    }
}

/// The canonical JSON of `value`, without the field `without`.
fn canonical(value: &impl Serialize, without: Option<&str>) -> String {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    if let (Some(fields), Some(name)) = (value.as_object_mut(), without) {
        fields.remove(name);
    }
    serde_jcs::to_string(&value).unwrap_or_default()
}
