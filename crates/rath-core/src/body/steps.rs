//! Spans of records made by one agent, workflow, selector or validator. Steps nest.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::RecordId;
use crate::kind::Kind;
use crate::state::{OpenStep, State};

/// A step begins. Its records carry this record's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntered {
    /// Its name among its siblings.
    pub name: String,
}

/// A step ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLeft {
    /// Its `step_entered`.
    pub step: RecordId,
    /// How.
    pub outcome: Outcome,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was for.
    Done,
    /// It did not.
    Failed,
    /// It was stopped.
    Cancelled,
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

impl Body for StepEntered {
    const KIND: Kind = Kind::StepEntered;
    fn fold(&self, record: RecordId, state: &mut State) {
        state.steps.push(OpenStep { record, name: self.name.clone(), inherited: false });
    }
}

impl Body for StepLeft {
    const KIND: Kind = Kind::StepLeft;
    fn fold(&self, _: RecordId, state: &mut State) {
        state.steps.retain(|open| open.record != self.step);
    }
}

impl Body for Cancelled {
    const KIND: Kind = Kind::Cancelled;
    fn fold(&self, _: RecordId, state: &mut State) {
        state.calls.retain(|open| !self.calls.contains(&open.id));
    }
}
