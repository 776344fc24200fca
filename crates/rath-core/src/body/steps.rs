//! Spans of records made by one agent, workflow, selector or validator. Steps nest.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::{BlobRef, Content};
use crate::id::{Digest, Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};

/// A step begins. Its records carry this record's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntered {
    /// Its name among its siblings.
    pub name: String,
    /// What works in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// What the code says of itself, e.g. `2`. Resuming with another one stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of a run's workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// An agent's model, prompt, parameters and tools. They apply inside this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BlobRef>,
    /// Whether an agent finishes in it the calls of the last turn before the fork, which were open there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopts_calls: bool,
    /// What a run is made of from here on, where it was over and goes on with other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

open_enum! {
    /// What works in a step. One that this version does not know has no agent's loop here.
    pub enum Role {
        /// A model with tools, in a loop.
        Agent = "agent",
        /// Code.
        Workflow = "workflow",
    }
}

/// A step ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLeft {
    /// Its `step_entered`.
    pub step: RecordId,
    /// How.
    pub outcome: Outcome,
    /// What it left, as JSON text, if it is a step that leaves a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Content>,
    /// The `failed` or `cancelled` record that says why it did not end well. It may stand on another line: a branch's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Point>,
    /// The agent or workflow that goes on with the session: a call of the step's agent handed it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
}

impl StepLeft {
    /// The step that `step` entered ends, without a value.
    pub fn new(step: RecordId, outcome: Outcome) -> Self {
        Self { step, outcome, value: None, because: None, hand_off: None }
    }
}

open_enum! {
    /// How a step ended. A way that this version does not know is not done.
    pub enum Outcome {
        /// It did what it was for.
        Done = "done",
        /// It did not.
        Failed = "failed",
        /// It was stopped.
        Cancelled = "cancelled",
    }
}

/// Something pending was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// Ids of the open calls that will get no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The reason.
    pub why: String,
}

impl Cancelled {
    /// The reason, for whoever says beforehand that it was cancelled. Early records say that once more.
    pub fn reason(&self) -> &str {
        self.why.strip_prefix("cancelled: ").unwrap_or(&self.why)
    }
}

/// The innermost step of a line could not go on. Outer steps only say that they failed too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What happened.
    pub why: String,
    /// The error's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether trying again may help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

impl StepEntered {
    /// A step called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, role: None, version: None, workflow: None, config: None, adopts_calls: false, program: None }
    }

    /// Its name; for a run also the name and version of its workflow.
    pub fn title(&self) -> String {
        match (&self.workflow, &self.version) {
            (Some(workflow), Some(version)) => format!("{} {workflow}, version {version}", self.name),
            (Some(workflow), None) => format!("{} {workflow}", self.name),
            (None, _) => self.name.clone(),
        }
    }

    /// What must be the same when a step is entered again on resume, besides its key. Two configurations may also differ
    /// in prose.
    pub fn fingerprint(&self) -> (Option<&str>, Option<Digest>) {
        (self.version.as_deref(), self.config.as_ref().map(|config| config.digest))
    }

    /// Whether code that enters `now` may go on in this step, which is on the record. Name and version of a run's workflow
    /// are compared where both sides have them: runs that were recorded without stay resumable.
    pub fn may_be_entered_as(&self, now: &Self) -> bool {
        let differ = |then: &Option<String>, now: &Option<String>| then.is_some() && now.is_some() && then != now;
        match (&self.role, &self.config) {
            (Some(Role::Workflow), None) if self.name == crate::session::RUN => {
                !differ(&self.workflow, &now.workflow) && !differ(&self.version, &now.version)
            }
            _ => self.fingerprint() == now.fingerprint(),
        }
    }
}

impl Body for StepEntered {
    const KIND: Kind = Kind::StepEntered;
    fn summary(&self, _: SessionId) -> String {
        self.title()
    }
    fn fold(&self, at: &At, state: &mut State) {
        state.step_entered(at, &self.name, self.role == Some(Role::Agent));
        if self.adopts_calls {
            state.adopt_calls();
        }
    }
}

impl Body for StepLeft {
    const KIND: Kind = Kind::StepLeft;
    fn summary(&self, _: SessionId) -> String {
        match &self.value {
            Some(value) => format!("{} = {value}", self.outcome),
            None => self.outcome.to_string(),
        }
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.steps.retain(|open| open.record != self.step);
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.value.iter_mut().for_each(each);
    }
}

impl Body for Cancelled {
    const KIND: Kind = Kind::Cancelled;
    fn summary(&self, _: SessionId) -> String {
        self.reason().to_owned()
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.calls.retain(|open| !self.calls.contains(&open.id));
        state.asks.retain(|ask| ask.inherited);
        state.waits.retain(|wait| wait.inherited);
        state.calls_may_be_over();
    }
}

impl Body for Failed {
    const KIND: Kind = Kind::Failed;
    fn summary(&self, _: SessionId) -> String {
        self.why.clone()
    }
}
