//! The small state that a session's records fold into.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::body;
use crate::id::RecordId;
use crate::kind::Kind;
use crate::record::{Fault, Record};
use crate::usage::Usage;

/// Raised when the meaning of the fold changes; snapshots of another fold are passed over and folded anew.
const FOLD: u32 = 1;

/// A snapshot is due after every record whose seq is a multiple of this.
pub const SNAPSHOT_EVERY: u64 = 256;

/// The kinds that change a state.
const FOLDED: &[Kind] = &[
    Kind::Created,
    Kind::Merged,
    Kind::Closed,
    Kind::Labelled,
    Kind::Assistant,
    Kind::ToolResult,
    Kind::ModelResponded,
    Kind::StepEntered,
    Kind::StepLeft,
    Kind::Cancelled,
];

/// What the records of a line say together, apart from the context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Steps entered and not left, outermost first.
    pub steps: Vec<OpenStep>,
    /// Tool calls without a result.
    pub calls: Vec<OpenCall>,
    /// What everything behind the head used, each record once.
    pub usage: Usage,
    /// What the records of this line alone used.
    pub own_usage: Usage,
    /// What the session is about.
    pub title: Option<String>,
    /// Labels with their values.
    pub labels: BTreeMap<String, String>,
    /// Whether the line has ended.
    pub closed: bool,
}

/// A step that has not been left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStep {
    /// Its `step_entered`.
    pub record: RecordId,
    /// Its name.
    pub name: String,
    /// Whether it was entered before the fork; the line it was entered on will leave it.
    #[serde(default)]
    pub inherited: bool,
}

/// A call that has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The `assistant` record that made it.
    pub record: RecordId,
    /// The call's id.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Whether it was made before the fork.
    #[serde(default)]
    pub inherited: bool,
}

/// How a state is stored.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    fold: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<OpenStep>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<OpenCall>,
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    usage: Usage,
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    own_usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
}

impl State {
    /// The state a fork starts with: what is open stays visible, and belongs to the parent.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let mut steps = self.steps.clone();
        steps.iter_mut().for_each(|step| step.inherited = true);
        let mut calls = self.calls.clone();
        calls.iter_mut().for_each(|call| call.inherited = true);
        Self { steps, calls, usage: self.usage, ..Self::default() }
    }

    /// The step that new records belong to.
    pub fn step(&self) -> Option<&RecordId> {
        self.steps.last().map(|step| &step.record)
    }

    /// What was begun on this line and is not finished.
    pub fn pending(&self) -> Pending {
        Pending {
            steps: self.steps.iter().filter(|step| !step.inherited).cloned().collect(),
            calls: self.calls.iter().filter(|call| !call.inherited).cloned().collect(),
        }
    }

    /// Takes in the next record of the line. An erased body changes nothing.
    pub fn apply(&mut self, record: &Record) -> Result<(), Fault> {
        // Most records change no state, and their bodies need not be read.
        if !FOLDED.contains(record.kind()) {
            return Ok(());
        }
        match record.body_bytes() {
            Some(bytes) => {
                if let Some(body) = body::read(record.kind(), bytes)? {
                    body.fold(record.id(), self);
                }
            }
            None => self.closed |= *record.kind() == Kind::Closed,
        }
        Ok(())
    }

    /// The bytes of a snapshot.
    pub fn to_snapshot(&self) -> Vec<u8> {
        let State { steps, calls, usage, own_usage, title, labels, closed } = self.clone();
        let snapshot = Snapshot { fold: FOLD, steps, calls, usage, own_usage, title, labels, closed };
        serde_json::to_vec(&snapshot).unwrap_or_default()
    }

    /// Whether these bytes are a snapshot that another version folded.
    pub fn is_of_another_fold(bytes: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Mark {
            fold: u32,
        }
        serde_json::from_slice::<Mark>(bytes).is_ok_and(|mark| mark.fold != FOLD)
    }

    /// The state in a snapshot; `None` when another fold made it.
    pub fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        let snapshot: Snapshot = serde_json::from_slice(bytes).ok()?;
        let Snapshot { fold, steps, calls, usage, own_usage, title, labels, closed } = snapshot;
        (fold == FOLD).then_some(Self { steps, calls, usage, own_usage, title, labels, closed })
    }
}

/// Started or asked, and not finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Open steps, outermost first.
    pub steps: Vec<OpenStep>,
    /// Open calls.
    pub calls: Vec<OpenCall>,
}

impl Pending {
    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty()
    }
}
