//! The state of the store, signed.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::{Blob, BlobRef};
use crate::checkpoint::{Checkpoint, HEADS, Heads};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::summary::join;

/// A checkpoint of the store, on its operator session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// The line that was signed, exactly.
    pub line: String,
    /// The heads that it digests: a line `SESSION SEQ ID` each.
    pub heads: BlobRef,
    /// Their text, on the way into the store.
    #[serde(skip)]
    list: Option<Blob>,
}

impl Checkpointed {
    /// A checkpoint with the heads that it digests.
    pub fn new(checkpoint: &Checkpoint, heads: &Heads) -> Self {
        let list = Blob::new(heads.text().into_bytes(), HEADS);
        Self { line: checkpoint.line(), heads: list.reference.clone(), list: Some(list) }
    }
}

impl Body for Checkpointed {
    const KIND: Kind = Kind::Checkpointed;
    fn summary(&self, _: SessionId) -> String {
        // The line is signed text of its own: one that cannot be read is shown as it is.
        let Ok(it) = Checkpoint::parse(&self.line) else { return self.line.clone() };
        let text = format!("{}: {} records in {} sessions", it.no, it.records, it.sessions);
        join(&text, &it.note.map(|note| format!("({note})")).unwrap_or_default())
    }

    fn brought(&mut self) -> Option<Blob> {
        self.list.take()
    }
}
