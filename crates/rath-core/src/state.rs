//! The small state that a session's records fold into.

mod migrate;
mod refold;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::body::{self, About, Effect, Forked, Grant, WaitsFor};
use crate::clock::Time;
use crate::files::{Conflict, Name, Version};
use crate::id::{Digest, RecordId};
use crate::kind::{InState, Kind};
use crate::record::{Fault, Record};
use crate::run::Run;
use crate::usage::Usage;

pub use migrate::{OtherFold, StoredState};
pub use refold::{Gone, Refold};

/// Raised when the fold gets a part or changes its meaning. What another fold's snapshots are good for: see [`OtherFold`].
pub const FOLD: u32 = 5;

/// A snapshot is due after every record whose seq is a multiple of this.
pub const SNAPSHOT_EVERY: u64 = 256;

/// What the records of a line say together, apart from the context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Steps entered and not left, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<OpenStep>,
    /// How many steps the line has entered outside any step of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub entered: u32,
    /// Tool calls without a result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<OpenCall>,
    /// Questions without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<OpenAsk>,
    /// What the line waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
    /// What a person allowed for good, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<Grant>,
    /// What everything behind the head used, each record once.
    #[serde(skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// What the records of this line alone used, where they used anything. Boxed: a fork is to be small.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_usage: Option<Box<Usage>>,
    /// What the session is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where the session works. Boxed: most sessions have none, and a fork is to be small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Box<Placement>>,
    /// The files, as they were last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// Conflicts between files that nobody has decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Whether the line had a place elsewhere and was given none here since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub arrived: bool,
    /// Whether the line has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// Where a session's side effects happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The backend's name.
    pub backend: String,
    /// Whether it keeps what runs there away from the machine.
    pub isolated: bool,
    /// The directory the files come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Name>,
    /// Whether the session works in that directory itself.
    #[serde(default)]
    pub in_place: bool,
    /// What the origin had when the files were last brought from it or into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Version>,
    /// The shell line that makes its files ready for work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// The sandbox that was opened last and is not known to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxName>,
}

/// A sandbox by identity and generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SandboxName {
    /// Its identity.
    pub id: String,
    /// Counts how often it was made anew.
    pub generation: u64,
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
    /// Its key: made of the key of the step around it, its name and its place among the steps entered there.
    #[serde(default = "no_key")]
    pub key: Digest,
    /// How many steps were entered in it on this line.
    #[serde(default)]
    pub entered: u32,
    /// The generation of its `step_entered`.
    #[serde(default)]
    pub generation: u64,
    /// Where its agent is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<Run>>,
}

/// The record that a body is folded from.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Its id.
    pub id: RecordId,
    /// Its place on the line.
    pub seq: u64,
    /// Its generation.
    pub generation: u64,
}

/// A question that nobody has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAsk {
    /// Its `asked` record.
    pub record: RecordId,
    /// That record's place on the line.
    pub seq: u64,
    /// What it is about.
    pub about: About,
    /// The call that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The digest of what is shown: an answer binds to it.
    pub shown_digest: Digest,
    /// What "always" allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Box<Grant>>,
    /// Whether it was asked before the fork.
    #[serde(default)]
    pub inherited: bool,
}

/// Something that is waited for and has not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWait {
    /// Its `awaited` record.
    pub record: RecordId,
    /// That record's place on the line.
    pub seq: u64,
    /// The id that `received` refers to.
    pub id: String,
    /// What sort of thing is waited for.
    #[serde(rename = "for")]
    pub what: WaitsFor,
    /// The event's or the person's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Whether the wait began before the fork: what comes is received on the line that waits.
    #[serde(default)]
    pub inherited: bool,
}

/// A call that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The place of its last `tool_started` on the line.
    pub seq: u64,
    /// What can be done if nobody knows whether it happened.
    pub effect: Effect,
    /// Counts the attempts that were not merely interrupted.
    pub attempt: u32,
    /// The files before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Version>,
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
    /// Whether no model made it: it ends with its `tool_finished`, not with a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Set once a `tool_started` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Box<Started>>,
    /// Its `tool_finished`, by place and id: only the result is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<(u64, RecordId)>,
    /// What a person was asked about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<About>,
    /// The place of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<u64>,
    /// What its `tool_finished` hands the session to.
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
            own: false,
            started: None,
            finished: None,
            asked: None,
            answered: None,
            hand_off: None,
        }
    }

    /// Whether a model made it on this line.
    pub fn is_models(&self) -> bool {
        !self.own && !self.inherited
    }
}

/// How a state is stored.
#[derive(Serialize)]
struct Snapshot<'a> {
    fold: u32,
    #[serde(flatten)]
    state: &'a State,
}

/// Which fold made a snapshot.
#[derive(Deserialize)]
struct Mark {
    fold: u32,
}

/// The first folds gave steps no keys.
fn no_key() -> Digest {
    Digest([0; 32])
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl State {
    /// What stands where an erased record gave a name.
    pub const ERASED: &str = "(erased)";

    /// Nothing but a title and labels.
    pub fn named(title: Option<String>, labels: BTreeMap<String, String>) -> Self {
        Self { title, labels, ..Self::default() }
    }

    /// What the records of this line alone used.
    pub fn own_usage(&self) -> Usage {
        self.own_usage.as_deref().copied().unwrap_or_default()
    }

    /// Counts what a record of this line used.
    pub(crate) fn add_usage(&mut self, more: Usage) {
        if !more.is_zero() {
            self.usage += more;
            **self.own_usage.get_or_insert_default() += more;
        }
    }

    /// The state of a line on which a run goes on instead of on the one it left: the steps are its to leave.
    #[must_use]
    pub fn continued(&self) -> Self {
        let mut state = self.inherited();
        for (step, before) in state.steps.iter_mut().zip(&self.steps) {
            (step.inherited, step.entered) = (before.inherited, before.entered);
        }
        state.entered = self.entered;
        state
    }

    /// The state a fork starts with: what is open stays visible, and belongs to the parent.
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
        // The files fork too: the place is the same kind of place, and never the same directory.
        let placement = self.placement.clone().map(|mut place| {
            if place.in_place {
                // What a session in place has is what is there.
                place.base.clone_from(&self.workspace);
            }
            (place.in_place, place.sandbox) = (false, None);
            place
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

    /// What the keys of steps on a branch that a run forks here are made of.
    pub(crate) fn branch_key(&self, forked: &Forked) -> Option<Digest> {
        let around = self.steps.last()?.key;
        match (&forked.call, forked.ordinal) {
            (Some(call), _) => Some(branch_key(around, &format!("call {call}"))),
            (None, Some(ordinal)) => Some(branch_key(around, &ordinal.to_string())),
            (None, None) => None,
        }
    }

    /// What came before was made elsewhere: place, permissions and answers of there do not count here. Whether a call
    /// that was started there happened is for a person to say.
    pub(crate) fn arrive(&mut self) {
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

    /// Whether [`arrive`](Self::arrive) would change anything.
    pub(crate) fn would_leave(&self) -> bool {
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

    /// The generation of the record that entered the innermost step of this line; what is younger was made in it.
    pub(crate) fn entered_generation(&self) -> u64 {
        self.steps.last().filter(|step| !step.inherited).map_or(0, |step| step.generation)
    }

    /// What was begun on this line and is not finished.
    pub fn pending(&self) -> Pending {
        Pending {
            steps: self.steps.iter().filter(|step| !step.inherited).cloned().collect(),
            calls: self.calls.iter().filter(|call| !call.inherited).cloned().collect(),
            conflicts: self.conflicts.clone(),
            asks: self.asks.iter().filter(|ask| !ask.inherited).cloned().collect(),
            waits: self.waits.iter().filter(|wait| !wait.inherited).cloned().collect(),
        }
    }

    /// A step begins.
    pub(crate) fn step_entered(&mut self, at: &At, name: &str, agent: bool) {
        let (around, place) = match self.steps.last_mut() {
            Some(step) => (Some(step.key), &mut step.entered),
            None => (None, &mut self.entered),
        };
        let key = step_key(around, name, *place);
        *place += 1;
        let run = agent.then(|| Box::new(Run { usage_before: self.usage, ..Run::default() }));
        let (record, generation) = (at.id, at.generation);
        let step = OpenStep { record, name: name.into(), inherited: false, key, entered: 0, generation, run };
        self.steps.push(step);
    }

    /// Takes in the next record of the line. An erased body changes nothing.
    pub fn apply(&mut self, record: &Record) -> Result<(), Fault> {
        // Most records change no state, and their bodies need not be read.
        if *record.kind() == Kind::User {
            self.somebody_spoke();
            return Ok(());
        }
        let in_state = record.kind().row().state;
        if in_state == InState::Inert {
            return Ok(());
        }
        match record.body_bytes() {
            Some(bytes) => match body::read(record.kind(), bytes) {
                Ok(Some(body)) => {
                    body.fold(&At { id: record.id(), seq: record.seq(), generation: record.generation() }, self);
                }
                Err(_) if in_state == InState::FoldsIfReadable => {}
                Err(fault) => return Err(fault),
                Ok(None) => {}
            },
            None if *record.kind() == Kind::Forked => *self = self.inherited(),
            None if *record.kind() == Kind::Arrived => self.arrive(),
            None => self.closed |= *record.kind() == Kind::Closed,
        }
        Ok(())
    }

    /// The bytes of a snapshot.
    pub fn to_snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(&Snapshot { fold: FOLD, state: self }).unwrap_or_default()
    }

    /// Reads a snapshot; `None` when it is none, or of a fold whose parts cannot be read here.
    pub fn read_snapshot(bytes: &[u8]) -> Option<StoredState> {
        let Mark { fold } = serde_json::from_slice(bytes).ok()?;
        let state: State = serde_json::from_slice(bytes).ok()?;
        Some(match fold {
            FOLD => StoredState::Current(state),
            _ => StoredState::Other(OtherFold::new(fold, state)),
        })
    }

    /// Whether these bytes are a snapshot that a later version made.
    pub fn is_of_newer_fold(bytes: &[u8]) -> bool {
        serde_json::from_slice::<Mark>(bytes).is_ok_and(|mark| mark.fold > FOLD)
    }

    /// The state in a snapshot; `None` when another fold made it.
    pub fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        match Self::read_snapshot(bytes)? {
            StoredState::Current(state) => Some(state),
            StoredState::Other(_) => None,
        }
    }
}

/// The key that a branch of a run gives its steps instead of that of the step around them: which branch of that step it is.
fn branch_key(around: Digest, which: &str) -> Digest {
    Digest::of_parts(&[around.hex().as_str().as_bytes(), b"/fork/", which.as_bytes()])
}

/// The key of a step: where it stands in the program, the same in every process.
fn step_key(around: Option<Digest>, name: &str, place: u32) -> Digest {
    let around = around.map(|key| key.hex().as_str().to_owned()).unwrap_or_default();
    Digest::of_parts(&[around.as_bytes(), b"/", name.as_bytes(), b"\0", &place.to_be_bytes()])
}

/// Started or asked, and not finished.
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
    /// What is waited for and has not come.
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
