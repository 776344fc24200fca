//! What a session is doing, and where its run stands.

use std::sync::Arc;

use rath_core::body::{Created, Outcome, StepLeft};
use rath_core::store::{BoxFuture, Row, Scan, Which};
use rath_core::{Kind, OpenAsk, Point, Result, SessionId, Store, View};
use serde::Serialize;

use super::records;

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It waits for a person's answer.
    Waiting,
    /// A process works on it.
    Running,
    /// A process holds it and does nothing on it now.
    Held,
    /// Its work stopped in the middle, and no process holds it.
    Stopped,
    /// It is open, and nothing is left to do.
    Open,
    /// It is closed.
    Closed,
}

impl Activity {
    /// What the session of `row` is doing; `view` looks at its head. Questions of its branches are theirs.
    pub fn of(row: &Row, view: &View) -> Self {
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

    /// The word for it, as it is serialised.
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

/// Where the run that works on a session stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunStatus {
    /// The key of the run, if the session is its first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// In a word.
    pub is: RunState,
    /// The process that holds the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// What a person is asked, on the session or on its branches.
    pub waiting: Vec<WaitingQuestion>,
}

/// Where a run stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// No step was entered.
    NotBegun,
    /// A process works on it.
    Running,
    /// It waits for a person's answer.
    Waiting,
    /// No process works on it, and it is not over.
    Interrupted,
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingQuestion {
    /// The place of its record.
    pub at: Point,
    /// What is folded of it.
    #[serde(flatten)]
    pub ask: OpenAsk,
}

impl RunStatus {
    /// Where the run that `view` looks at stood there; `None` if no run works on the session.
    pub async fn of(store: &Arc<dyn Store>, view: &View) -> Result<Option<Self>> {
        let (id, state) = (view.reference().session, view.state());
        let first = records(store, id, 0, 0, &[Kind::Created]).await?;
        let key = first.first().and_then(|record| record.body::<Created>().ok()).and_then(|created| created.run);
        let open = state.steps.iter().any(|step| !step.inherited);
        let last_left = last_left(store, view).await?;
        if key.is_none() && state.entered == 0 && !open && last_left.is_none() {
            return Ok(None);
        }
        let row = store.sessions(Which::Id(id).into()).await?.into_iter().next();
        let at_head = row.as_ref().is_some_and(|row| row.seq == view.reference().seq);
        let process = row.filter(|_| at_head).and_then(|row| row.holder).map(|holder| holder.process);
        let mut waiting = questions(id, view);
        if open && at_head {
            on_branches(store, id, &mut waiting).await?;
        }
        let is = match last_left {
            _ if open && !waiting.is_empty() => RunState::Waiting,
            // A view that is not at the head has records after it: the run continued.
            _ if process.is_some() || open && !at_head => RunState::Running,
            _ if open => RunState::Interrupted,
            Some(Outcome::Done) => RunState::Done,
            Some(Outcome::Failed | Outcome::Unknown(_)) => RunState::Failed,
            Some(Outcome::Cancelled) => RunState::Cancelled,
            None => RunState::NotBegun,
        };
        Ok(Some(Self { key, is, process, waiting }))
    }
}

fn questions(id: SessionId, view: &View) -> Vec<WaitingQuestion> {
    let at = |ask: &OpenAsk| Point { session: id, seq: ask.seq };
    view.pending().asks.into_iter().map(|ask| WaitingQuestion { at: at(&ask), ask }).collect()
}

/// How the last step that this line left ended.
async fn last_left(store: &Arc<dyn Store>, view: &View) -> Result<Option<Outcome>> {
    let at = view.reference();
    let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::StepLeft]).backwards().limit(1);
    let page = store.scan(scan).await?;
    Ok(page.records.first().and_then(|record| record.body::<StepLeft>().ok()).map(|left| left.outcome))
}

fn on_branches<'a>(
    store: &'a Arc<dyn Store>,
    id: SessionId,
    into: &'a mut Vec<WaitingQuestion>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rows: Vec<Row> = store.sessions(Which::ChildrenOf(id).into()).await?;
        for row in rows.iter().filter(|row| !row.closed) {
            let view = View::of(store, row.id, None).await?;
            into.extend(questions(row.id, &view));
            on_branches(store, row.id, into).await?;
        }
        Ok(())
    })
}
