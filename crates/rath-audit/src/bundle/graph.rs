//! `graph.json`: what a bundle holds, and what was left out of it.

use rath_core::{Digest, Reference, SessionId};
use serde::{Deserialize, Serialize};

/// What a bundle holds. Everything here but the reasons can be read off the records, and is compared with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The version of the format.
    pub bundle: u64,
    /// The sessions that were asked for, with everything they stand on.
    pub of: Vec<SessionId>,
    /// Whether every session of their family was asked for.
    pub graph: bool,
    /// Each session with its last record in the bundle, in the order of their ids.
    pub sessions: Vec<Head>,
    /// Where lines come together, in the order of the records.
    pub merges: Vec<Merge>,
    /// How many records.
    pub records: u64,
    /// SHA-256 over the ids of the records, 32 bytes each, as they stand one after another. Since format 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Digest>,
    /// How many of them have no body, because it was erased or left out: as many as `left_out` lists.
    pub without_body: u64,
    /// How many blobs.
    pub blobs: u64,
    /// The bytes of all blobs.
    pub blob_bytes: u64,
    /// Why something was left out, in the words of who exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Records without a body, in the order of the records.
    pub left_out: Vec<LeftOutRecord>,
    /// Blobs that were left out, in the order of their digests.
    pub left_out_blobs: Vec<LeftOutBlob>,
}

/// A session in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The session.
    pub session: SessionId,
    /// How it begins.
    pub birth: String,
    /// Its fork point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Reference>,
    /// Its last record here.
    pub seq: u64,
    /// That record's id.
    pub head: rath_core::RecordId,
}

/// A `merged` record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The record.
    pub into: Reference,
    /// The heads that it took in.
    pub took: Vec<Reference>,
}

/// The rule for bodies that had been erased before.
pub(super) const ERASED: &str = "erased";

/// A record whose salt and body are not in the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOutRecord {
    /// The record.
    pub record: Reference,
    /// What it said something about.
    pub kind: String,
    /// The rule: `kind`, `record` or `text`; `erased` where the body was gone before.
    pub rule: String,
}

impl LeftOutRecord {
    /// Whether the body had been erased before the bundle was made.
    pub fn is_erased(&self) -> bool {
        self.rule == ERASED
    }
}

/// A blob that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOutBlob {
    /// The blob.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// The rule: `all blobs`, `files`, `text`, `it says what was left out`, or `not in the store`.
    pub rule: String,
}

impl Graph {
    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}
