//! How sessions start and end.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::BlobRef;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};
use crate::summary::join;

/// The first record of a session without an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The key of the run that the session was created for. It is unique in a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The program of the run, if its text is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

/// The first record of a branch. Its only parent is the fork point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The fork point. The header has its id as the parent.
    pub from: Point,
    /// The reason.
    pub why: String,
    /// The number of this fork within its step, if a run made it. A resumed run finds the branch by this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u64>,
    /// The id of the tool call that the branch was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The name that the program gave the branch. A resumed run finds the branch by it, whatever the order of the
    /// forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The session and step that made the fork; `None` when it was made in the fork point's session and step.
    #[serde(rename = "maker", default, skip_serializing_if = "Option::is_none")]
    pub forked_by: Option<ForkedBy>,
    /// The base for the keys of steps on this branch. It replaces the key of the step that the branch was forked in, so
    /// that steps of the same name on sibling branches have different keys. Forks made by early versions have none;
    /// their steps are based on the key of that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_key: Option<Digest>,
    /// Set when a diverged run continues on this branch instead of on the session that it left.
    #[serde(rename = "instead", default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<ContinuedFrom>,
    /// Set when this fork holds the diverged end of an imported session.
    #[serde(rename = "copied", default, skip_serializing_if = "Option::is_none")]
    pub imported_tail: Option<Box<ImportedTail>>,
}

impl Forked {
    /// A fork at `from`.
    pub fn new(from: Point, why: impl Into<String>) -> Self {
        let why = why.into();
        Self {
            from,
            why,
            ordinal: None,
            call: None,
            key: None,
            forked_by: None,
            step_key: None,
            continued_from: None,
            imported_tail: None,
        }
    }

    /// The initial state of the branch, computed from the state at the fork point.
    pub(crate) fn begin(&self, at_fork_point: &State) -> State {
        if self.continued_from.is_some() {
            return at_fork_point.for_continuation();
        }
        let mut state = at_fork_point.inherited();
        if let (Some(key), Some(step)) = (self.step_key, state.steps.last_mut()) {
            step.key = key;
        }
        state
    }

    /// Whether a run made the branch, and finds it again when it is resumed.
    pub fn is_of_run(&self) -> bool {
        self.ordinal.is_some() || self.call.is_some() || self.key.is_some()
    }
}

/// The end of a session that was continued in another store, where it diverged from this one. Its messages are appended
/// again on a fork at the last common record; its exact records are kept as a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedTail {
    /// The head of the session in the other store.
    pub head: Reference,
    /// The sequence number of the first record that only the other store has.
    pub from: u64,
    /// The exact records from `from` on, as lines of a bundle.
    pub records: BlobRef,
    /// The blobs that these records name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobRef>,
    /// How many of these records could not be appended again on the fork. They are only in the blob.
    #[serde(rename = "unsaid", default, skip_serializing_if = "is_zero")]
    pub not_converted: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A diverged run that continues on a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuedFrom {
    /// How the code diverged from the records.
    pub diverged: String,
    /// The id of the resumption in which the run diverged. All sessions of a run that were left in the same resumption
    /// share it.
    #[serde(rename = "edition")]
    pub resume_id: String,
    /// The program of the run from this record on, if its text is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

/// The session and step in which a run made a fork.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForkedBy {
    /// The session in which the fork was made.
    pub session: SessionId,
    /// The `step_entered` record of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<RecordId>,
}

/// The first record of a session that starts with a copy of another session's context. Its history is empty and its
/// usage is zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The record after which the context was copied. It is not a parent, so its history is not part of this session.
    pub from: Reference,
    /// The reason.
    pub why: String,
    /// The copied context items.
    pub context: BlobRef,
    /// The blobs that the copied items name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<BlobRef>,
}

/// The last record of a session. A closed session can be forked, but not appended to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The `merged` record of the merge that closed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<Reference>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A branch that a merge did not keep. The record is in the session that continues.
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.title.clone_from(&self.title);
    }
}

impl Body for Forked {
    const KIND: Kind = Kind::Forked;
    fn summary(&self, _: SessionId) -> String {
        join(&format!("from {}", self.from), &self.why)
    }
    /// `state` is the state at the fork point.
    fn fold(&self, _: &RecordMeta, state: &mut State) {
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.closed = true;
    }
}

impl Body for Rejected {
    const KIND: Kind = Kind::Rejected;
    fn summary(&self, _: SessionId) -> String {
        join(&self.branch.point().to_string(), &self.why)
    }
}
