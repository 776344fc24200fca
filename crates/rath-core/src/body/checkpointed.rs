//! The state of the store, signed.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::{Blob, BlobRef};
use crate::checkpoint::{Checkpoint, HEADS, Heads};
use crate::kind::Kind;

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

    fn brought(&mut self) -> Option<Blob> {
        self.list.take()
    }
}
