//! Context items that are replaced by a summary. The history keeps them.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A range of context items was replaced by one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The range of items that left the context.
    pub replaces: Replaced,
    /// The text that replaces them.
    pub summary: Content,
}

/// A range of context items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The position of the first item in the context before the replacement.
    pub at: u64,
    /// The number of items.
    pub count: u64,
    /// The record of the first item.
    pub first: Point,
    /// The record of the last item.
    pub last: Point,
}

impl Body for Compressed {
    const KIND: Kind = Kind::Compressed;
    fn summary(&self, _: SessionId) -> String {
        let Replaced { count, first, last, .. } = &self.replaces;
        join(&format!("{count} items from {first} to {last}"), &self.summary.to_string())
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.summary);
    }
}
