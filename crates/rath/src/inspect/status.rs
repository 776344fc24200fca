//! The activity of a session, and the status of its run.

use std::sync::Arc;

use rath_core::body::{Created, Outcome, StepLeft};
use rath_core::store::{BoxFuture, Scan, SessionFilter, SessionInfo};
use rath_core::{Kind, OpenAsk, Point, Result, SessionId, Store, View};
use serde::Serialize;

use super::records;
use super::unfinished::{WaitingFor, waits};

/// The activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// The session waits for an answer, a time or an event.
    Waiting,
    /// A process works on the session.
    Running,
    /// A process has the session locked and does not work on it.
    Held,
    /// The work was interrupted, and no process has the session locked.
    Stopped,
    /// The session is open, and there is no work left.
    Open,
    /// The session is closed.
    Closed,
}

impl Activity {
    /// The activity of the session of `row`. `view` is at its head. Open questions of branches do not count.
    pub fn of(row: &SessionInfo, view: &View) -> Self {
        let pending = view.pending();
        let at_work = !pending.steps.is_empty() || !pending.calls.is_empty();
        match (row.holder.is_some(), at_work) {
            _ if row.closed => Self::Closed,
            _ if !(pending.asks.is_empty() && pending.waits.is_empty()) => Self::Waiting,
            (true, true) => Self::Running,
            (true, false) => Self::Held,
            (false, true) => Self::Stopped,
            (false, false) => Self::Open,
        }
    }

    /// The activity as one word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Held => "held",
            Self::Stopped => "stopped",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// The status of the run that works on a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunStatus {
    /// The key of the run, if the session is its first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The state of the run.
    pub is: RunState,
    /// The process that has the session locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Open questions of the session and its branches.
    pub waiting: Vec<WaitingQuestion>,
    /// Open waits of the session and its branches, for a time or an event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitingFor>,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run has not started.
    NotBegun,
    /// A process works on the run.
    Running,
    /// The run waits for an answer, a time or an event.
    Waiting,
    /// The run was interrupted, and no process works on it.
    Interrupted,
    /// The run is done.
    Done,
    /// The run failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

/// An open question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingQuestion {
    /// The position of its record.
    pub at: Point,
    /// The folded state of the question.
    #[serde(flatten)]
    pub ask: OpenAsk,
}

impl RunStatus {
    /// The status of the run at `view`. `None` if the session belongs to no run.
    pub async fn of(store: &Arc<dyn Store>, view: &View) -> Result<Option<Self>> {
        let (id, state) = (view.reference().session, view.state());
        let first = records(store, id, 0, 0, &[Kind::Created]).await?;
        let key = first.first().and_then(|record| record.body::<Created>().ok()).and_then(|created| created.run);
        let open = state.steps.iter().any(|step| !step.inherited);
        let last_left = last_left(store, view).await?;
        if key.is_none() && state.entered == 0 && !open && last_left.is_none() {
            return Ok(None);
        }
        let row = store.sessions(SessionFilter::Id(id).into()).await?.into_iter().next();
        let at_head = row.as_ref().is_some_and(|row| row.seq == view.reference().seq);
        let process = row.filter(|_| at_head).and_then(|row| row.holder).map(|holder| holder.process);
        let (mut waiting, mut waits) = (questions(id, view), waits(id, view));
        if open && at_head {
            on_branches(store, id, &mut waiting, &mut waits).await?;
        }
        let is = match last_left {
            _ if open && !(waiting.is_empty() && waits.is_empty()) => RunState::Waiting,
            // A view before the head: the run continued after it.
            _ if process.is_some() || open && !at_head => RunState::Running,
            _ if open => RunState::Interrupted,
            Some(Outcome::Done) => RunState::Done,
            Some(Outcome::Failed | Outcome::Unknown(_)) => RunState::Failed,
            Some(Outcome::Cancelled) => RunState::Cancelled,
            None => RunState::NotBegun,
        };
        Ok(Some(Self { key, is, process, waiting, waits }))
    }
}

pub(super) fn questions(id: SessionId, view: &View) -> Vec<WaitingQuestion> {
    let at = |ask: &OpenAsk| Point { session: id, seq: ask.seq };
    view.pending().asks.into_iter().map(|ask| WaitingQuestion { at: at(&ask), ask }).collect()
}

/// The outcome of the last step that finished in this session.
async fn last_left(store: &Arc<dyn Store>, view: &View) -> Result<Option<Outcome>> {
    let at = view.reference();
    let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::StepLeft]).backwards().limit(1);
    let page = store.scan(scan).await?;
    Ok(page.records.first().and_then(|record| record.body::<StepLeft>().ok()).map(|left| left.outcome))
}

fn on_branches<'a>(
    store: &'a Arc<dyn Store>,
    id: SessionId,
    asked: &'a mut Vec<WaitingQuestion>,
    awaited: &'a mut Vec<WaitingFor>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rows: Vec<SessionInfo> = store.sessions(SessionFilter::ChildrenOf(id).into()).await?;
        for row in rows.iter().filter(|row| !row.closed) {
            let view = View::of(store, row.id, None).await?;
            asked.extend(questions(row.id, &view));
            awaited.extend(waits(row.id, &view));
            on_branches(store, row.id, asked, awaited).await?;
        }
        Ok(())
    })
}
