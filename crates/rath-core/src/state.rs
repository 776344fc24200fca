//! [`State`]: the small state that a session's records fold into.

mod migrate;
mod refold;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent_loop::AgentLoop;
use crate::body::{self, Effect, Forked, Grant, QuestionKind, WaitKind};
use crate::clock::Time;
use crate::files::{Conflict, FilePath, Version};
use crate::id::{Digest, RecordId};
use crate::kind::{InState, Kind};
use crate::record::{Record, RecordError};
use crate::usage::Usage;

pub use migrate::{OtherFold, StoredState};
pub use refold::{ErasedParts, Refold};

/// The version of the fold. Increase it when the fold gains a part or changes its meaning. [`OtherFold`] describes how
/// snapshots of other versions are used.
pub const FOLD: u32 = 5;

/// A snapshot is stored after every record whose seq is a multiple of this number.
pub const SNAPSHOT_EVERY: u64 = 256;

/// The state of a session after one of its records, without the context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Open steps, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<OpenStep>,
    /// The number of steps that this session entered outside any other step of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub entered: u32,
    /// Tool calls without a result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<OpenCall>,
    /// Questions without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<OpenAsk>,
    /// Open waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
    /// Permissions that a person granted with "always", sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<Grant>,
    /// The usage of all records that the head descends from. Each record counts once.
    #[serde(skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// The usage of this session's own records; `None` if they used nothing. Boxed to keep forks small.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_usage: Option<Box<Usage>>,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where the session's tools run. Boxed to keep forks small: most sessions have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Box<Placement>>,
    /// The version of the files that was saved last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// Unresolved file conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Whether the session had a placement on another machine or store and was not placed here since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub arrived: bool,
    /// Whether the session is closed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// Where a session's tools run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The name of the backend.
    pub backend: String,
    /// Whether the backend isolates commands from the machine.
    pub isolated: bool,
    /// The directory that the files were copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<FilePath>,
    /// Whether the session works in that directory itself instead of in a copy.
    #[serde(default)]
    pub in_place: bool,
    /// The files of the origin when they were last copied from it or applied to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Version>,
    /// The shell command that prepares the files for work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// The sandbox that was opened last, unless it is known to be closed or lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxName>,
}

/// The identity and generation of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SandboxName {
    /// The sandbox's id.
    pub id: String,
    /// The number of times the sandbox was recreated.
    pub generation: u64,
}

/// An open step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStep {
    /// The `step_entered` record.
    pub record: RecordId,
    /// The step's name.
    pub name: String,
    /// Whether the step was entered before the fork point. Then the parent session leaves it, not this one.
    #[serde(default)]
    pub inherited: bool,
    /// The step's key, derived from the outer step's key, the step's name and its index among the steps entered there.
    #[serde(default = "no_key")]
    pub key: Digest,
    /// The number of steps that this session entered inside it.
    #[serde(default)]
    pub entered: u32,
    /// The generation of the `step_entered` record.
    #[serde(default)]
    pub generation: u64,
    /// The state of the agent loop, if an agent runs in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<AgentLoop>>,
}

/// Identifies the record whose body is folded.
#[derive(Clone, Copy, Debug)]
pub struct RecordMeta {
    /// The record's id.
    pub id: RecordId,
    /// The record's seq.
    pub seq: u64,
    /// The record's generation.
    pub generation: u64,
}

/// A question without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAsk {
    /// The `asked` record.
    pub record: RecordId,
    /// The sequence number of the `asked` record.
    pub seq: u64,
    /// What the question is about.
    pub about: QuestionKind,
    /// The call that waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The digest of what is shown to the person. An answer must name it.
    pub shown_digest: Digest,
    /// The permission that the answer "always" grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Box<Grant>>,
    /// Whether it was asked before the fork point.
    #[serde(default)]
    pub inherited: bool,
}

/// A wait that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWait {
    /// The `awaited` record.
    pub record: RecordId,
    /// The sequence number of the `awaited` record.
    pub seq: u64,
    /// The id that the `received` record names.
    pub id: String,
    /// What kind of thing is awaited.
    #[serde(rename = "for")]
    pub what: WaitKind,
    /// The name of the event or person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the wait times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Whether the wait started before the fork point. Then the parent session receives the value, not this one.
    #[serde(default)]
    pub inherited: bool,
}

/// The start of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStart {
    /// The seq of the call's last `tool_started` record.
    pub seq: u64,
    /// How to recover the call if its outcome is unknown.
    pub effect: Effect,
    /// The number of attempts, not counting interrupted ones.
    pub attempt: u32,
    /// The version of the files before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Version>,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The `assistant` record that contains the call.
    pub record: RecordId,
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// Whether it was made before the fork point.
    #[serde(default)]
    pub inherited: bool,
    /// Whether the call was not made by a model, `rath exec` for example. It ends with `tool_finished` and has no
    /// result.
    #[serde(rename = "own", default, skip_serializing_if = "std::ops::Not::not")]
    pub user_started: bool,
    /// The call's start, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Box<CallStart>>,
    /// The seq and id of the `tool_finished` record, if only the result is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<(u64, RecordId)>,
    /// The subject of the question that was asked about the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<QuestionKind>,
    /// The seq of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<u64>,
    /// The agent or workflow that the call hands the session off to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
}

impl OpenCall {
    /// A call that a model made in `record`.
    pub(crate) fn new(record: RecordId, id: &str, tool: &str) -> Self {
        Self {
            record,
            id: id.into(),
            tool: tool.into(),
            inherited: false,
            user_started: false,
            started: None,
            finished: None,
            asked: None,
            answered: None,
            hand_off: None,
        }
    }

    /// Whether a model made the call in this session.
    pub fn is_models(&self) -> bool {
        !self.user_started && !self.inherited
    }
}

/// The stored form of a state.
#[derive(Serialize)]
struct Snapshot<'a> {
    fold: u32,
    #[serde(flatten)]
    state: &'a State,
}

/// The version of the fold that made a snapshot.
#[derive(Deserialize)]
struct SnapshotFold {
    fold: u32,
}

/// The first versions of the fold gave steps no keys.
fn no_key() -> Digest {
    Digest([0; 32])
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl State {
    /// Replaces a name that an erased record gave.
    pub const ERASED: &str = "(erased)";

    /// A state with only a title and labels.
    pub fn named(title: Option<String>, labels: BTreeMap<String, String>) -> Self {
        Self { title, labels, ..Self::default() }
    }

    /// The usage of this session's own records.
    pub fn own_usage(&self) -> Usage {
        self.own_usage.as_deref().copied().unwrap_or_default()
    }

    /// Adds the usage of a record of this session.
    pub(crate) fn add_usage(&mut self, more: Usage) {
        if !more.is_zero() {
            self.usage += more;
            **self.own_usage.get_or_insert_default() += more;
        }
    }

    /// The state of a fork on which a run continues. Unlike other forks, it leaves the open steps of the parent itself.
    #[must_use]
    pub fn for_continuation(&self) -> Self {
        let mut state = self.inherited();
        for (step, before) in state.steps.iter_mut().zip(&self.steps) {
            (step.inherited, step.entered) = (before.inherited, before.entered);
        }
        state.entered = self.entered;
        state
    }

    /// The state that a fork starts with. What is open stays visible, but belongs to the parent.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let mut steps = self.steps.clone();
        for step in &mut steps {
            (step.inherited, step.entered, step.run) = (true, 0, None);
        }
        let mut asks = self.asks.clone();
        asks.iter_mut().for_each(|ask| ask.inherited = true);
        let mut waits = self.waits.clone();
        waits.iter_mut().for_each(|wait| wait.inherited = true);
        let mut calls = self.calls.clone();
        calls.iter_mut().for_each(|call| call.inherited = true);
        // The fork gets the same kind of placement, but never the same directory.
        let placement = self.placement.clone().map(|mut placement| {
            if placement.in_place {
                // The files of a session that works in place are the files of the directory.
                placement.base.clone_from(&self.workspace);
            }
            (placement.in_place, placement.sandbox) = (false, None);
            placement
        });
        Self {
            steps,
            calls,
            asks,
            waits,
            granted: self.granted.clone(),
            usage: self.usage,
            placement,
            workspace: self.workspace.clone(),
            conflicts: self.conflicts.clone(),
            arrived: self.arrived,
            ..Self::default()
        }
    }

    /// The key from which the step keys of a branch are derived that a run forks here.
    pub(crate) fn branch_key(&self, forked: &Forked) -> Option<Digest> {
        let around = self.steps.last()?.key;
        match (&forked.call, forked.ordinal) {
            (Some(call), _) => Some(branch_key(around, &format!("call {call}"))),
            (None, Some(ordinal)) => Some(branch_key(around, &ordinal.to_string())),
            (None, None) => forked.key.as_ref().map(|key| branch_key(around, &format!("key {key}"))),
        }
    }

    /// Drops what foreign records must not decide here: placement, grants, questions and answers. Calls that were
    /// started become irreversible, so that a person decides whether they happened.
    pub(crate) fn revoke_authority(&mut self) {
        self.arrived |= self.placement.take().is_some();
        self.granted.clear();
        self.asks.clear();
        for call in &mut self.calls {
            (call.asked, call.answered) = (None, None);
            if let Some(started) = &mut call.started {
                started.effect = Effect::Irreversible;
            }
        }
    }

    /// Whether [`revoke_authority`](Self::revoke_authority) would change the state.
    pub(crate) fn has_authority(&self) -> bool {
        let is_decided = |call: &OpenCall| {
            let started = call.started.as_ref();
            call.asked.is_some() || started.is_some_and(|started| started.effect != Effect::Irreversible)
        };
        self.placement.is_some()
            || !self.granted.is_empty()
            || !self.asks.is_empty()
            || self.calls.iter().any(is_decided)
    }

    /// The step that new records belong to.
    pub fn step(&self) -> Option<&RecordId> {
        self.steps.last().map(|step| &step.record)
    }

    /// The generation of the record that entered this session's innermost step. Records of greater generation were made
    /// in the step.
    pub(crate) fn entered_generation(&self) -> u64 {
        self.steps.last().filter(|step| !step.inherited).map_or(0, |step| step.generation)
    }

    /// What was started in this session and is not finished.
    pub fn pending(&self) -> Pending {
        Pending {
            steps: self.steps.iter().filter(|step| !step.inherited).cloned().collect(),
            calls: self.calls.iter().filter(|call| !call.inherited).cloned().collect(),
            conflicts: self.conflicts.clone(),
            asks: self.asks.iter().filter(|ask| !ask.inherited).cloned().collect(),
            waits: self.waits.iter().filter(|wait| !wait.inherited).cloned().collect(),
        }
    }

    /// Folds a `step_entered` record.
    pub(crate) fn step_entered(&mut self, at: &RecordMeta, name: &str, agent: bool) {
        let (around, index) = match self.steps.last_mut() {
            Some(step) => (Some(step.key), &mut step.entered),
            None => (None, &mut self.entered),
        };
        let key = step_key(around, name, *index);
        *index += 1;
        let run = agent.then(|| Box::new(AgentLoop { usage_before: self.usage, ..AgentLoop::default() }));
        let (record, generation) = (at.id, at.generation);
        let step = OpenStep { record, name: name.into(), inherited: false, key, entered: 0, generation, run };
        self.steps.push(step);
    }

    /// Folds the next record of the session. A record with an erased body changes nothing, except that forking,
    /// arriving and closing still take effect.
    pub fn apply(&mut self, record: &Record) -> Result<(), RecordError> {
        // Most records do not change the state, so their bodies are not parsed.
        if *record.kind() == Kind::User {
            self.on_user_message();
            return Ok(());
        }
        let in_state = record.kind().row().state;
        if in_state == InState::Inert {
            return Ok(());
        }
        match record.body_bytes() {
            Some(bytes) => match body::read(record.kind(), bytes) {
                Ok(Some(body)) => {
                    body.fold(
                        &RecordMeta { id: record.id(), seq: record.seq(), generation: record.generation() },
                        self,
                    );
                }
                Err(_) if in_state == InState::FoldsIfReadable => {}
                Err(fault) => return Err(fault),
                Ok(None) => {}
            },
            None if *record.kind() == Kind::Forked => *self = self.inherited(),
            None if *record.kind() == Kind::Arrived => self.revoke_authority(),
            None => self.closed |= *record.kind() == Kind::Closed,
        }
        Ok(())
    }

    /// The bytes of a snapshot.
    pub fn to_snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(&Snapshot { fold: FOLD, state: self }).unwrap_or_default()
    }

    /// Parses a snapshot. `None` if the bytes are not a snapshot or this version cannot parse it.
    pub fn read_snapshot(bytes: &[u8]) -> Option<StoredState> {
        let SnapshotFold { fold } = serde_json::from_slice(bytes).ok()?;
        let state: State = serde_json::from_slice(bytes).ok()?;
        Some(match fold {
            FOLD => StoredState::Current(state),
            _ => StoredState::Other(OtherFold::new(fold, state)),
        })
    }

    /// Whether the bytes are a snapshot of a later fold version.
    pub fn is_of_newer_fold(bytes: &[u8]) -> bool {
        serde_json::from_slice::<SnapshotFold>(bytes).is_ok_and(|mark| mark.fold > FOLD)
    }

    /// The state in a snapshot; `None` if another fold version made it.
    pub fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        match Self::read_snapshot(bytes)? {
            StoredState::Current(state) => Some(state),
            StoredState::Other(_) => None,
        }
    }
}

/// The key that steps on a branch of a run use instead of the outer step's key. It identifies the branch within the
/// step.
fn branch_key(around: Digest, which: &str) -> Digest {
    Digest::of_parts(&[around.hex().as_str().as_bytes(), b"/fork/", which.as_bytes()])
}

/// The key of a step: identifies its position in the program, the same in every process.
fn step_key(around: Option<Digest>, name: &str, index: u32) -> Digest {
    let around = around.map(|key| key.hex().as_str().to_owned()).unwrap_or_default();
    Digest::of_parts(&[around.as_bytes(), b"/", name.as_bytes(), b"\0", &index.to_be_bytes()])
}

/// What is open in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Open steps, outermost first.
    pub steps: Vec<OpenStep>,
    /// Open calls.
    pub calls: Vec<OpenCall>,
    /// Conflicts between files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Questions without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<OpenAsk>,
    /// Open waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
}

impl Pending {
    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        let Self { steps, calls, conflicts, asks, waits } = self;
        steps.is_empty() && calls.is_empty() && conflicts.is_empty() && asks.is_empty() && waits.is_empty()
    }
}
