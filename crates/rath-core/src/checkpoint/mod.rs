//! What a store was at one moment, in one line that can be handed to somebody else.
//!
//! A [`Checkpoint`] says how many records a store had and digests the [`Heads`] of all its sessions. It names the
//! checkpoint before it, and is signed: a store that lost or rewrote something behind it no longer fits. This module
//! knows the forms; keys and signatures are made where the randomness and the files are.

mod heads;
mod hex;

use serde::{Deserialize, Serialize};

pub use heads::{HEADS, Heads};
pub use hex::{PublicKey, Signature};

use crate::clock::Time;
use crate::id::{Digest, SessionId};

/// The version that this library writes and reads.
pub const VERSION: u64 = 1;

/// A line has at most so many bytes.
pub const LONGEST_LINE: usize = 32 * 1024;

/// A note has at most so many bytes.
pub const LONGEST_NOTE: usize = 500;

/// Integers that a double holds exactly: what canonical JSON can write.
const LARGEST: u64 = 1 << 53;

/// A signed statement about a store. Its line is canonical JSON (RFC 8785); the signature is over the same without the
/// field `signature`; its digest is the SHA-256 of the whole line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The key before was lost: no earlier key vouches for this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// The version.
    #[serde(rename = "checkpoint")]
    pub version: u64,
    /// The digest of the [`Heads`], written as text.
    pub heads: Digest,
    /// The key that signs.
    pub key: PublicKey,
    /// Counted from 1.
    pub no: u64,
    /// What a person says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The digest of the checkpoint before; the first has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// Records in the store.
    pub records: u64,
    /// Sessions in the store.
    pub sessions: u64,
    /// By `key`.
    pub signature: Signature,
    /// The store: the id of its operator session, which copies share.
    pub store: SessionId,
    /// How the key of the checkpoint before became this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub successions: Vec<Succession>,
    /// When.
    pub time: Time,
}

/// A key says which key comes after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Succession {
    /// The key that gives way, and signs.
    pub from: PublicKey,
    /// The key that takes its place.
    pub key: PublicKey,
    /// By `from`, over the same in canonical JSON without this field.
    pub signature: Signature,
    /// The version.
    pub succession: u64,
    /// When.
    pub time: Time,
}

/// Why a text is no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotACheckpoint {
    /// It is too long.
    #[error("it has more than {LONGEST_LINE} bytes")]
    TooLong,
    /// It is not the JSON of one.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It was written by a later version.
    #[error("it has version {0}; this version of rath reads {VERSION}: use a newer one")]
    Future(u64),
    /// It is written otherwise than checkpoints are.
    #[error("it is not in canonical form: something was added, moved or rewritten")]
    NotCanonical,
    /// A field is beyond what it can be.
    #[error("{0}")]
    Beyond(&'static str),
}

impl Checkpoint {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, NotACheckpoint> {
        if line.len() > LONGEST_LINE {
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

    /// Whether every field is what it can be.
    pub fn check(&self) -> Result<(), NotACheckpoint> {
        let beyond = |why| Err(NotACheckpoint::Beyond(why));
        if self.note.as_ref().is_some_and(|note| note.len() > LONGEST_NOTE) {
            return beyond("its note is longer than 500 bytes");
        }
        if [self.no, self.records, self.sessions, self.time.0].iter().any(|number| *number > LARGEST) {
            return beyond("a number in it is too large");
        }
        match (self.no, self.previous) {
            (1, None) | (2.., Some(_)) => Ok(()),
            _ => beyond("its number and the checkpoint before it do not fit"),
        }
    }

    /// The line: one line of canonical JSON.
    pub fn line(&self) -> String {
        canonical(self, None)
    }

    /// What is signed.
    pub fn statement(&self) -> String {
        canonical(self, Some("signature"))
    }

    /// Its name: the SHA-256 of its line.
    pub fn digest(&self) -> Digest {
        Digest::of(self.line().as_bytes())
    }
}

impl Succession {
    /// What is signed.
    pub fn statement(&self) -> String {
        canonical(self, Some("signature"))
    }
}

/// Canonical JSON, without one field.
fn canonical(value: &impl Serialize, without: Option<&str>) -> String {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    if let (Some(fields), Some(name)) = (value.as_object_mut(), without) {
        fields.remove(name);
    }
    serde_jcs::to_string(&value).unwrap_or_default()
}
