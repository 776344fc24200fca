//! Context that gives way to a summary. The history keeps everything.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// Contiguous context items are replaced by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// What left the context.
    pub replaces: Replaced,
    /// What stands there now.
    pub summary: Content,
}

/// A range of context items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Position of the first item in the context at that moment.
    pub at: u64,
    /// How many items.
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
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.summary);
    }
}
