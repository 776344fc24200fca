//! The state of a session at a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::body::Grant;
use rath_core::files::{Conflict, Version};
use rath_core::{
    AgentAction, Ancestor, Message, OpenAsk, OpenCall, OpenStep, OpenWait, Pending, Placement, Reference, Result,
    SessionId, Store, Usage, View,
};
use serde::Serialize;

use super::RunStatus;

/// A summary of a session: title, open items, context, placement and run.
#[derive(Clone, Debug, Serialize)]
pub struct SessionSummary {
    /// The id of the session.
    pub session: SessionId,
    /// The record at which the session is summarized.
    pub at: Reference,
    /// Its title.
    pub title: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is closed.
    pub closed: bool,
    /// The usage up to here, including the sessions that it was forked from.
    pub usage: Usage,
    /// Open calls, steps and questions.
    pub pending: Pending,
    /// The sessions that it was forked from, and this one.
    pub lineage: Vec<Ancestor>,
    /// The messages of the context.
    pub context: Vec<Message>,
    /// Where its files are and its commands run. `None` if it has no workspace.
    pub placement: Option<Box<Placement>>,
    /// The version of its files.
    pub workspace: Option<Version>,
    /// The status of the run that works on it.
    pub run: Option<RunStatus>,
}

impl SessionSummary {
    /// Summarizes the session at `view`.
    pub async fn of(store: &Arc<dyn Store>, view: &View) -> Result<Self> {
        let (at, state) = (view.reference(), view.state());
        Ok(Self {
            session: at.session,
            at,
            title: state.title.clone(),
            labels: state.labels.clone(),
            closed: state.closed,
            usage: state.usage,
            pending: state.pending(),
            lineage: view.lineage().await?,
            context: view.context().await?,
            placement: state.placement.clone(),
            workspace: state.workspace.clone(),
            run: RunStatus::of(store, view).await?,
        })
    }
}

/// The folded state of a session.
#[derive(Clone, Debug, Serialize)]
pub struct FoldedState {
    /// The record up to which it is folded.
    pub at: Reference,
    /// The title.
    pub title: Option<String>,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Whether the session is closed.
    pub closed: bool,
    /// Open steps, the outermost first.
    pub steps: Vec<OpenStep>,
    /// The number of top-level steps that were entered.
    pub entered: u32,
    /// Open tool calls.
    pub calls: Vec<OpenCall>,
    /// Open questions.
    pub asks: Vec<OpenAsk>,
    /// External events that the session waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
    /// Grants: calls that need no further approval.
    pub granted: Vec<Grant>,
    /// The usage, including the sessions that it was forked from.
    pub usage: Usage,
    /// The usage of this session alone.
    pub own_usage: Usage,
    /// Where its files are and its commands run. `None` if it has no workspace.
    pub placement: Option<Box<Placement>>,
    /// The version of its files.
    pub workspace: Option<Version>,
    /// Unresolved merge conflicts.
    pub conflicts: Vec<Conflict>,
    /// The next action of the active agent.
    pub next: Option<NextAction>,
}

/// The next action of an agent's step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum NextAction {
    /// Sends a request to the model.
    CallModel,
    /// Repeats the last request, whose outcome is unknown.
    ModelInDoubt,
    /// Makes the remaining tool calls.
    CallTools {
        /// The calls that have no result yet.
        calls: Vec<OpenCall>,
    },
    /// Finishes the step.
    Done,
    /// Finishes the step, which failed.
    Failed,
}

impl From<AgentAction> for NextAction {
    fn from(next: AgentAction) -> Self {
        match next {
            AgentAction::CallModel => Self::CallModel,
            AgentAction::RecoverRequest => Self::ModelInDoubt,
            AgentAction::CallTools(calls) => Self::CallTools { calls },
            AgentAction::Done => Self::Done,
            AgentAction::Failed => Self::Failed,
        }
    }
}

impl From<&View> for FoldedState {
    fn from(view: &View) -> Self {
        let state = view.state().clone();
        Self {
            at: view.reference(),
            own_usage: state.own_usage(),
            next: state.next().map(NextAction::from),
            title: state.title,
            labels: state.labels,
            closed: state.closed,
            steps: state.steps,
            entered: state.entered,
            calls: state.calls,
            asks: state.asks,
            waits: state.waits,
            granted: state.granted,
            usage: state.usage,
            placement: state.placement,
            workspace: state.workspace,
            conflicts: state.conflicts,
        }
    }
}

/// A placement as text: `local in a copy of /home/ada/work`.
pub fn placement_text(placement: &Placement) -> String {
    let origin = match (&placement.origin, placement.in_place) {
        (Some(origin), true) => format!(" in {origin}"),
        (Some(origin), false) => format!(" in a copy of {origin}"),
        (None, _) => String::new(),
    };
    format!("{}{origin}", placement.backend)
}
