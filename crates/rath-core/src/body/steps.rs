//! Steps: nested spans of records made by one agent, workflow, selector or validator.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::{BlobRef, Content};
use crate::id::{Digest, Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};

/// A step starts. The headers of its records contain this record's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntered {
    /// The name of the step.
    pub name: String,
    /// What runs in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The version that the code declares, e.g. `2`. A run stops when it is resumed with another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of the workflow, in the outermost step of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The agent's model, prompt, parameters and tools. They apply inside this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BlobRef>,
    /// Whether the agent finishes tool calls in this step that were open at the fork point.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopts_calls: bool,
    /// Whether the step starts over when a failed run is run again, instead of being continued inside: a step that has
    /// undone its work, for example.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_a_whole: bool,
    /// The program of the run from this record on, if a finished run continues with another program text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<BlobRef>,
}

open_enum! {
    /// What runs in a step. A role that this version does not know runs no agent loop here.
    pub enum Role {
        /// An agent: a model that calls tools in a loop.
        Agent = "agent",
        /// Program code.
        Workflow = "workflow",
        /// A validator, whose verdict is the value of the step.
        Validator = "validator",
    }
}

/// A step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLeft {
    /// The `step_entered` record of the step.
    pub step: RecordId,
    /// How the step ended.
    pub outcome: Outcome,
    /// The value that the step returned, as JSON text; `None` for a step without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Content>,
    /// The `failed` or `cancelled` record with the reason, if the step did not succeed. It may be in another session: a
    /// branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Point>,
    /// The agent or workflow that continues the session, if a tool call of the step's agent handed it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
}

impl StepLeft {
    /// The end of the step that `step` entered, without a value.
    pub fn new(step: RecordId, outcome: Outcome) -> Self {
        Self { step, outcome, value: None, because: None, hand_off: None }
    }
}

open_enum! {
    /// How a step ended. An outcome that this version does not know does not count as done.
    pub enum Outcome {
        /// The step succeeded.
        Done = "done",
        /// The step failed.
        Failed = "failed",
        /// The step was cancelled.
        Cancelled = "cancelled",
    }
}

/// Open calls, questions and waits were cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The ids of the open calls that will get no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The reason.
    pub why: String,
}

impl Cancelled {
    /// The reason without the prefix `cancelled: ` that early records contain.
    pub fn reason(&self) -> &str {
        self.why.strip_prefix("cancelled: ").unwrap_or(&self.why)
    }
}

/// The innermost step of a session failed. Outer steps that fail because of it have no `failed` record of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The error message.
    pub why: String,
    /// The error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether a retry may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

impl StepEntered {
    /// A step called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            name,
            role: None,
            version: None,
            workflow: None,
            config: None,
            adopts_calls: false,
            as_a_whole: false,
            program: None,
        }
    }

    /// The name; for a run also the name and version of its workflow.
    pub fn title(&self) -> String {
        match (&self.workflow, &self.version) {
            (Some(workflow), Some(version)) => format!("{} {workflow}, version {version}", self.name),
            (Some(workflow), None) => format!("{} {workflow}", self.name),
            (None, _) => self.name.clone(),
        }
    }

    /// What must be equal, besides the key, when a resumed run enters the step again. Configurations with different
    /// digests are still accepted if they differ only in prose.
    pub fn fingerprint(&self) -> (Option<&str>, Option<Digest>) {
        (self.version.as_deref(), self.config.as_ref().map(|config| config.digest))
    }

    /// Whether code that enters the step `now` may continue in this recorded step. For a run, the name and version of
    /// its workflow are compared only if both sides have them, so that runs recorded without them can still be resumed.
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
    fn fold(&self, at: &RecordMeta, state: &mut State) {
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.steps.retain(|open| open.record != self.step);
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.value.iter_mut().for_each(each);
    }
}

impl Body for Cancelled {
    const KIND: Kind = Kind::Cancelled;
    fn summary(&self, _: SessionId) -> String {
        self.reason().to_owned()
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.calls.retain(|open| !self.calls.contains(&open.id));
        state.asks.retain(|ask| ask.inherited);
        state.waits.retain(|wait| wait.inherited);
        state.on_call_closed();
    }
}

impl Body for Failed {
    const KIND: Kind = Kind::Failed;
    fn summary(&self, _: SessionId) -> String {
        self.why.clone()
    }
}
