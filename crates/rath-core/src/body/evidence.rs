//! Evidence for a statement.

use serde::{Deserialize, Serialize};

use crate::blob::BlobRef;
use crate::id::Reference;

/// One piece of evidence: a record, a blob, or an object in another system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceRef {
    /// A record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Reference>,
    /// A blob in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// The name of the other system, e.g. `jira`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The address of the object in the other system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

impl EvidenceRef {
    /// A record as evidence.
    pub fn record(record: Reference) -> Self {
        Self { record: Some(record), ..Self::default() }
    }
}
