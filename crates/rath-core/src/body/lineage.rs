//! Where a session comes from and how it ends.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::BlobRef;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};
use crate::summary::join;

/// The first record of a session that comes from nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The key of the run that it was created for: no two sessions of a store have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What the run is made of, where the text of a program says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

/// The first record of a branch. Its one parent is the fork point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The fork point; its id is the record's parent.
    pub from: Point,
    /// The reason.
    pub why: String,
    /// Which fork of its step it is, counted along the line, where a run made it. Resuming finds it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u64>,
    /// The tool call that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Who made it, where that is not the fork point's line in the fork point's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<Maker>,
    /// What the keys of steps on this branch are made of, in place of the key of the step that it was forked in: so steps of
    /// one name on sibling branches have different keys. Forks that early versions made have none, and keep the key of
    /// that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_key: Option<Digest>,
    /// Why its run goes on here instead of on the line that it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Instead>,
    /// The line of another store whose words follow, where the fork keeps what diverged there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Box<CopiedLine>>,
}

impl Forked {
    /// A fork at `from`.
    pub fn new(from: Point, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { from, why, ordinal: None, call: None, maker: None, step_key: None, instead: None, copied: None }
    }

    /// The state that the branch begins with, from the state at the fork point.
    pub(crate) fn begin(&self, at_fork_point: &State) -> State {
        if self.instead.is_some() {
            return at_fork_point.continued();
        }
        let mut state = at_fork_point.inherited();
        if let (Some(key), Some(step)) = (self.step_key, state.steps.last_mut()) {
            step.key = key;
        }
        state
    }

    /// Whether it is a branch that a run made, and will find again.
    pub fn is_of_run(&self) -> bool {
        self.ordinal.is_some() || self.call.is_some()
    }
}

/// The end of a line that went on elsewhere, in another way than here. Its words are said again on a fork at the last
/// record that both have; its exact records are kept as a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedLine {
    /// The head of the line there.
    pub head: Reference,
    /// The first record that only that line has.
    pub from: u64,
    /// Its exact records from there on, as lines of a bundle.
    pub records: BlobRef,
    /// Blobs that they name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobRef>,
    /// How many of them say nothing that can be said again here: they are only in the blob.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsaid: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A run goes on on another line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instead {
    /// How the code diverged from what is recorded.
    pub diverged: String,
    /// Names the resumption in which it did: lines of one run that were left in it belong together.
    pub edition: String,
    /// What the run is made of from here on, where the text of a program says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

/// The step of a line in which a run made a fork.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Maker {
    /// The line.
    pub session: SessionId,
    /// The step's `step_entered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<RecordId>,
}

/// The first record of a session that starts anew from another's context: history and usage begin at zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Where the context was taken. Not a parent: nothing behind it is history of this session.
    pub from: Reference,
    /// The reason.
    pub why: String,
    /// The context items, copied.
    pub context: BlobRef,
    /// Blobs that the copied items name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<BlobRef>,
}

/// The last record of a session. It can still be forked, not appended to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The `merged` record that took it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<Reference>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A branch that a merge did not keep. Stands on the line that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The head of the branch.
    pub branch: Reference,
    /// The reason.
    pub why: String,
}

impl Body for Created {
    const KIND: Kind = Kind::Created;
    fn summary(&self, _: SessionId) -> String {
        self.title.clone().unwrap_or_default()
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.title.clone_from(&self.title);
    }
}

impl Body for Forked {
    const KIND: Kind = Kind::Forked;
    fn summary(&self, _: SessionId) -> String {
        join(&format!("from {}", self.from), &self.why)
    }
    /// Folded onto the state at the fork point.
    fn fold(&self, _: &At, state: &mut State) {
        *state = self.begin(state);
    }
}

impl Body for Detached {
    const KIND: Kind = Kind::Detached;
    fn summary(&self, _: SessionId) -> String {
        join(&format!("from {}", self.from.point()), &self.why)
    }
}

impl Body for Closed {
    const KIND: Kind = Kind::Closed;
    fn summary(&self, _: SessionId) -> String {
        match (&self.merged_into, &self.why) {
            (Some(merged), _) => format!("merged into {}", merged.point()),
            (None, why) => why.clone().unwrap_or_default(),
        }
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.closed = true;
    }
}

impl Body for Rejected {
    const KIND: Kind = Kind::Rejected;
    fn summary(&self, _: SessionId) -> String {
        join(&self.branch.point().to_string(), &self.why)
    }
}
