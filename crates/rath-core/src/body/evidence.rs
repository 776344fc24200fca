//! What justifies a statement.

use serde::{Deserialize, Serialize};

use crate::blob::BlobRef;
use crate::id::Reference;

/// One piece of evidence: a record, a blob, or something in another system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceRef {
    /// A record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Reference>,
    /// A content that the store has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// The other system, e.g. `jira`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Its address there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

impl EvidenceRef {
    /// A record as evidence.
    pub fn record(record: Reference) -> Self {
        Self { record: Some(record), ..Self::default() }
    }
}
