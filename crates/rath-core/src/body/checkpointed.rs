//! A signed checkpoint of the store.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::{Blob, BlobRef};
use crate::checkpoint::{Checkpoint, HEADS, Heads};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::summary::join;

/// A checkpoint of the store, recorded in its operator session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// The checkpoint line, byte for byte as it was signed.
    pub line: String,
    /// The list of heads that the checkpoint contains the digest of: one line `SESSION SEQ ID` per session.
    pub heads: BlobRef,
    /// The text of that list, until the record is written.
    #[serde(skip)]
    list: Option<Blob>,
}

impl Checkpointed {
    /// A record of `checkpoint`, which contains the digest of `heads`.
    pub fn new(checkpoint: &Checkpoint, heads: &Heads) -> Self {
        let list = Blob::new(heads.text().into_bytes(), HEADS);
        Self { line: checkpoint.line(), heads: list.reference.clone(), list: Some(list) }
    }
}

impl Body for Checkpointed {
    const KIND: Kind = Kind::Checkpointed;
    fn summary(&self, _: SessionId) -> String {
        // A line that cannot be parsed is shown unchanged.
        let Ok(it) = Checkpoint::parse(&self.line) else { return self.line.clone() };
        let text = format!("{}: {} records in {} sessions", it.no, it.records, it.sessions);
        join(&text, &it.note.map(|note| format!("({note})")).unwrap_or_default())
    }

    fn take_blob(&mut self) -> Option<Blob> {
        self.list.take()
    }
}
