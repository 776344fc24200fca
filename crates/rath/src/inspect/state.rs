//! What the records of a session up to one of them come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::body::Grant;
use rath_core::files::{Conflict, Version};
use rath_core::{
    Ancestor, Message, Next, OpenAsk, OpenCall, OpenStep, OpenWait, Pending, Placement, Reference, Result, SessionId,
    Store, Usage, View,
};
use serde::Serialize;

use super::RunStatus;

/// What a session is about, what is open on it, and what a model would be shown.
#[derive(Clone, Debug, Serialize)]
pub struct SessionSummary {
    /// The session.
    pub session: SessionId,
    /// The record that was looked at.
    pub at: Reference,
    /// Its title.
    pub title: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it has ended.
    pub closed: bool,
    /// What was used up to here, also on the sessions that it was forked from.
    pub usage: Usage,
    /// What is open.
    pub pending: Pending,
    /// The sessions that it was forked from, and this one.
    pub lineage: Vec<Ancestor>,
    /// What a model would be shown.
    pub context: Vec<Message>,
    /// Where its tools work.
    pub placement: Option<Box<Placement>>,
    /// The version of its files.
    pub workspace: Option<Version>,
    /// Where the run stands that works on it.
    pub run: Option<RunStatus>,
}

impl SessionSummary {
    /// The session that `view` looks at.
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
    /// Whether the session has ended.
    pub closed: bool,
    /// Open steps, the outermost first.
    pub steps: Vec<OpenStep>,
    /// How many steps were entered outside of any other.
    pub entered: u32,
    /// Open tool calls.
    pub calls: Vec<OpenCall>,
    /// Questions that wait for an answer.
    pub asks: Vec<OpenAsk>,
    /// What is waited for from outside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
    /// What need not be asked about any more.
    pub granted: Vec<Grant>,
    /// What was used, also on the sessions that it was forked from.
    pub usage: Usage,
    /// What was used on this session.
    pub own_usage: Usage,
    /// Where its tools work.
    pub placement: Option<Box<Placement>>,
    /// The version of its files.
    pub workspace: Option<Version>,
    /// Conflicts between files that are not resolved.
    pub conflicts: Vec<Conflict>,
    /// What the agent at work does next.
    pub next: Option<NextAction>,
}

/// What an agent's step does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum NextAction {
    /// It asks the model.
    CallModel,
    /// It asks the model again: the outcome of the last request is unknown.
    ModelInDoubt,
    /// It makes calls, or what is left of them.
    CallTools {
        /// The calls.
        calls: Vec<OpenCall>,
    },
    /// It leaves the step.
    Done,
    /// It leaves the step, which failed.
    Failed,
}

impl From<Next> for NextAction {
    fn from(next: Next) -> Self {
        match next {
            Next::CallModel => Self::CallModel,
            Next::ModelInDoubt => Self::ModelInDoubt,
            Next::CallTools(calls) => Self::CallTools { calls },
            Next::Done => Self::Done,
            Next::Failed => Self::Failed,
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

/// Where a session's tools work, in words: `local in a copy of /home/ada/work`.
pub fn placement_text(placement: &Placement) -> String {
    let origin = match (&placement.origin, placement.in_place) {
        (Some(origin), true) => format!(" in {origin}"),
        (Some(origin), false) => format!(" in a copy of {origin}"),
        (None, _) => String::new(),
    };
    format!("{}{origin}", placement.backend)
}
