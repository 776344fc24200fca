//! The agent loop as a state machine without I/O: it is driven by records and returns the next action.
//!
//! The state machine is part of the folded [`State`]. Records drive it, snapshots store it, and an agent's step that a
//! crash interrupted continues from the state that its records fold into. No code of the loop is run again for that.

use serde::{Deserialize, Serialize};

use crate::body::QuestionKind;
use crate::id::RecordId;
use crate::state::{OpenCall, State};
use crate::usage::Usage;

/// The state of the agent loop in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLoop {
    /// The number of model turns in this step.
    pub turns: u64,
    /// The number of failed requests for the current turn.
    #[serde(default)]
    pub attempts: u32,
    /// The usage of the session when the step was entered.
    pub usage_before: Usage,
    /// The `model_requested` record of the last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// The current phase.
    pub phase: AgentPhase,
    /// The agent or workflow that continues the session after this turn, if a call handed off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
}

/// The phase of the agent loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentPhase {
    /// The next action is a model request.
    #[default]
    Ready,
    /// A request was sent and has no response.
    Requested,
    /// Calls of the model have no result yet.
    Calling,
    /// The model gave a turn without calls: the step is done.
    Answered,
    /// The model request failed and will not be repeated.
    Failed,
}

/// The next action of the agent loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAction {
    /// Send a request to the model.
    CallModel,
    /// Recover a request whose outcome is unknown because the process ended before the response was recorded.
    RecoverRequest,
    /// Make these calls, or continue them.
    CallTools(Vec<OpenCall>),
    /// Leave the step.
    Done,
    /// The model request failed and will not be repeated.
    Failed,
}

impl AgentLoop {
    /// The next action. `calls` are the session's open calls.
    pub fn next(&self, calls: &[OpenCall]) -> AgentAction {
        match self.phase {
            AgentPhase::Ready => AgentAction::CallModel,
            AgentPhase::Requested => AgentAction::RecoverRequest,
            AgentPhase::Calling => {
                AgentAction::CallTools(calls.iter().filter(|call| call.is_models()).cloned().collect())
            }
            AgentPhase::Answered => AgentAction::Done,
            AgentPhase::Failed => AgentAction::Failed,
        }
    }

    pub(crate) fn requested(&mut self, request: RecordId) {
        (self.phase, self.request) = (AgentPhase::Requested, Some(request));
    }

    pub(crate) fn responded(&mut self) {
        (self.turns, self.attempts) = (self.turns + 1, 0);
    }

    /// A request interrupted by a crash does not count as a failed attempt.
    pub(crate) fn model_failed(&mut self, retried: bool, lost: bool) {
        self.attempts += u32::from(!lost);
        self.phase = if retried { AgentPhase::Ready } else { AgentPhase::Failed };
    }
}

impl State {
    /// The agent loop of the innermost step, if the step was entered in this session and an agent runs in it.
    pub fn run(&self) -> Option<&AgentLoop> {
        self.steps.last().filter(|step| !step.inherited)?.run.as_deref()
    }

    pub(crate) fn run_mut(&mut self) -> Option<&mut AgentLoop> {
        self.steps.last_mut().filter(|step| !step.inherited)?.run.as_deref_mut()
    }

    /// The next action of the innermost step's agent loop.
    pub fn next(&self) -> Option<AgentAction> {
        Some(self.run()?.next(&self.calls))
    }

    /// Handles a recorded model turn. The partial turn of a failed request changes nothing.
    pub(crate) fn on_turn(&mut self, with_calls: bool) {
        if let Some(run) = self.run_mut().filter(|run| run.phase != AgentPhase::Failed) {
            run.phase = if with_calls { AgentPhase::Calling } else { AgentPhase::Answered };
        }
    }

    /// Handles a recorded user message: the model answers it, once open calls have results.
    pub(crate) fn on_user_message(&mut self) {
        if let Some(run) = self.run_mut().filter(|run| run.phase == AgentPhase::Answered && run.hand_off.is_none()) {
            run.phase = AgentPhase::Ready;
        }
    }

    /// Makes the innermost step finish the calls of the last turn before the fork point. Questions about them are asked
    /// again.
    pub(crate) fn adopt_calls(&mut self) {
        let is_open = |call: &OpenCall| call.inherited && !call.user_started;
        let Some(turn) = self.calls.iter().rfind(|call| is_open(call)).map(|call| call.record) else { return };
        for call in self.calls.iter_mut().filter(|call| is_open(call) && call.record == turn) {
            if call.asked.is_some_and(|about| about == QuestionKind::Question) {
                // The question that the tool asked there must be asked again.
                call.finished = None;
            }
            (call.inherited, call.asked, call.answered) = (false, None, None);
        }
        self.on_turn(true);
    }

    /// Handles a call that got its result or was cancelled.
    pub(crate) fn on_call_closed(&mut self) {
        let over = !self.calls.iter().any(OpenCall::is_models);
        if let Some(run) = self.run_mut().filter(|run| over && run.phase == AgentPhase::Calling) {
            run.phase = if run.hand_off.is_some() { AgentPhase::Answered } else { AgentPhase::Ready };
        }
    }

    /// Handles a hand-off: the agent's step ends when all calls have results. The first hand-off of a turn counts.
    pub(crate) fn hand_off(&mut self, to: String) {
        if let Some(run) = self.run_mut() {
            run.hand_off.get_or_insert(to);
        }
    }
}
