//! `graph.json`: what a bundle contains, and what was omitted from it.

use rath_core::{Digest, Reference, SessionId};
use serde::{Deserialize, Serialize};

/// What a bundle contains. Everything here except the reasons also follows from the records, and is compared with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleGraph {
    /// The format version.
    pub bundle: u64,
    /// The sessions that were selected for the export; the bundle contains everything they depend on.
    pub of: Vec<SessionId>,
    /// Whether every session of their family was selected.
    pub graph: bool,
    /// Each session with its last record in the bundle, sorted by session id.
    pub sessions: Vec<SessionHead>,
    /// The merges, in the order of the records.
    pub merges: Vec<MergedHeads>,
    /// The number of records.
    pub records: u64,
    /// SHA-256 over the ids of the records, 32 bytes each, in their order. Since format 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Digest>,
    /// The number of records without a body, because it was erased or omitted. Equals the length of `omitted_records`.
    pub without_body: u64,
    /// The number of blobs.
    pub blobs: u64,
    /// The total length of the blobs, in bytes.
    pub blob_bytes: u64,
    /// Why something was omitted, in the exporter's words.
    #[serde(rename = "because", default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Records without a body, in the order of the records.
    #[serde(rename = "left_out")]
    pub omitted_records: Vec<OmittedRecord>,
    /// Omitted blobs, sorted by digest.
    #[serde(rename = "left_out_blobs")]
    pub omitted_blobs: Vec<OmittedBlob>,
}

/// A session in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionHead {
    /// The session's id.
    pub session: SessionId,
    /// The kind of its first record.
    pub birth: String,
    /// Its fork point, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Reference>,
    /// The number of its last record in the bundle.
    pub seq: u64,
    /// The id of its last record in the bundle.
    pub head: rath_core::RecordId,
}

/// A `merged` record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergedHeads {
    /// The `merged` record.
    pub into: Reference,
    /// The heads of the merged branches.
    pub took: Vec<Reference>,
}

/// The rule name for bodies that were erased before the export.
pub(super) const ERASED: &str = "erased";

/// A record whose salt and body are not in the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OmittedRecord {
    /// The record.
    pub record: Reference,
    /// The record's kind.
    pub kind: String,
    /// The rule: `kind`, `record` or `text`; `erased` if the body was gone before the export.
    pub rule: String,
}

impl OmittedRecord {
    /// Whether the body was erased before the export.
    pub fn is_erased(&self) -> bool {
        self.rule == ERASED
    }
}

/// An omitted blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OmittedBlob {
    /// The blob's digest.
    pub digest: Digest,
    /// The blob's length in bytes.
    pub bytes: u64,
    /// The rule: `all blobs`, `files`, `text`, `it says what was left out`, or `not in the store`.
    pub rule: String,
}

impl BundleGraph {
    /// The bytes of `graph.json`.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}
