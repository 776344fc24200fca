//! The agent loop as a machine without IO: what happened so far in, what to do next out.
//!
//! The machine is part of the folded [`State`]: records drive it, snapshots store it, and an agent step that a crash
//! interrupted goes on from whatever its records fold into. No code of the loop is run again for that.

use serde::{Deserialize, Serialize};

use crate::body::About;
use crate::id::RecordId;
use crate::state::{OpenCall, State};
use crate::usage::Usage;

/// Where an agent's step is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Turns that the model has had in this step.
    pub turns: u64,
    /// How often the present turn was asked for in vain.
    #[serde(default)]
    pub attempts: u32,
    /// What the session had used when the step was entered.
    pub usage_before: Usage,
    /// The last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// What is going on.
    pub phase: Phase,
    /// What goes on with the session after this turn, because a call of it handed off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
}

/// What is going on in an agent's step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model has something to answer.
    #[default]
    Ready,
    /// A request is out.
    Requested,
    /// The model's calls wait for their results.
    Calling,
    /// The model said its last word.
    Answered,
    /// The model failed for good.
    Failed,
}

/// What an agent's step does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Asks the model.
    CallModel,
    /// A request was out when the process ended: nobody knows what came of it.
    ModelInDoubt,
    /// Makes these calls, or what is left of them.
    CallTools(Vec<OpenCall>),
    /// Leaves.
    Done,
    /// The model failed for good.
    Failed,
}

impl Run {
    /// What comes next; `calls` are those that are open on the line.
    pub fn next(&self, calls: &[OpenCall]) -> Next {
        match self.phase {
            Phase::Ready => Next::CallModel,
            Phase::Requested => Next::ModelInDoubt,
            Phase::Calling => Next::CallTools(calls.iter().filter(|call| call.is_models()).cloned().collect()),
            Phase::Answered => Next::Done,
            Phase::Failed => Next::Failed,
        }
    }

    pub(crate) fn requested(&mut self, request: RecordId) {
        (self.phase, self.request) = (Phase::Requested, Some(request));
    }

    pub(crate) fn responded(&mut self) {
        (self.turns, self.attempts) = (self.turns + 1, 0);
    }

    /// An attempt that a crash cut off is not one that the model failed.
    pub(crate) fn model_failed(&mut self, retried: bool, lost: bool) {
        self.attempts += u32::from(!lost);
        self.phase = if retried { Phase::Ready } else { Phase::Failed };
    }
}

impl State {
    /// The innermost step's machine, if an agent works in it on this line.
    pub fn run(&self) -> Option<&Run> {
        self.steps.last().filter(|step| !step.inherited)?.run.as_deref()
    }

    pub(crate) fn run_mut(&mut self) -> Option<&mut Run> {
        self.steps.last_mut().filter(|step| !step.inherited)?.run.as_deref_mut()
    }

    /// What the innermost agent step does next.
    pub fn next(&self) -> Option<Next> {
        Some(self.run()?.next(&self.calls))
    }

    /// A turn of the model is on the record. What came of one that was stopped ends nothing.
    pub(crate) fn turn_came(&mut self, with_calls: bool) {
        if let Some(run) = self.run_mut().filter(|run| run.phase != Phase::Failed) {
            run.phase = if with_calls { Phase::Calling } else { Phase::Answered };
        }
    }

    /// A person's words are on the record: the model has something to answer, once its calls have their results.
    pub(crate) fn somebody_spoke(&mut self) {
        if let Some(run) = self.run_mut().filter(|run| run.phase == Phase::Answered && run.hand_off.is_none()) {
            run.phase = Phase::Ready;
        }
    }

    /// The innermost step finishes the calls of the last turn before the fork. Questions about them are asked again.
    pub(crate) fn adopt_calls(&mut self) {
        let is_open = |call: &OpenCall| call.inherited && !call.own;
        let Some(turn) = self.calls.iter().rfind(|call| is_open(call)).map(|call| call.record) else { return };
        for call in self.calls.iter_mut().filter(|call| is_open(call) && call.record == turn) {
            if call.asked.is_some_and(|about| about == About::Question) {
                // What it asked there is asked again.
                call.finished = None;
            }
            (call.inherited, call.asked, call.answered) = (false, None, None);
        }
        self.turn_came(true);
    }

    /// A call has its result, or was given up.
    pub(crate) fn calls_may_be_over(&mut self) {
        let over = !self.calls.iter().any(OpenCall::is_models);
        if let Some(run) = self.run_mut().filter(|run| over && run.phase == Phase::Calling) {
            run.phase = if run.hand_off.is_some() { Phase::Answered } else { Phase::Ready };
        }
    }

    /// A call handed the session off: the model's turns are over once all calls have results. The first call counts.
    pub(crate) fn hand_off(&mut self, to: String) {
        if let Some(run) = self.run_mut() {
            run.hand_off.get_or_insert(to);
        }
    }
}
