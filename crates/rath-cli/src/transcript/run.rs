//! Where a run stands: the first thing that somebody wants to know of it.

use std::sync::Arc;

use anyhow::Result;
use rath::body::{Created, Outcome, StepLeft};
use rath::store::{BoxFuture, Row, Scan, Which};
use rath::{Kind, OpenAsk, Point, SessionId, Store, View};
use serde::Serialize;

use crate::output::{self, style};

/// Where a run stands.
#[derive(Serialize)]
pub(crate) struct Status {
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    pub(crate) is: Is,
    /// The process that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    /// What a person is asked, on the session or on its branches.
    pub(crate) waiting: Vec<Waiting>,
}

/// In a word.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Is {
    /// No step was entered.
    NotBegun,
    Running,
    Waiting,
    /// Nobody works on it, and it is not over.
    Interrupted,
    Done,
    Failed,
    Cancelled,
}

/// A question that waits.
#[derive(Serialize)]
pub(crate) struct Waiting {
    pub(crate) at: Point,
    #[serde(flatten)]
    pub(crate) ask: OpenAsk,
}

impl Status {
    /// Where the run that `view` looks at stood there; `None` where no run works on it.
    pub(crate) async fn of(store: &Arc<dyn Store>, view: &View) -> Result<Option<Self>> {
        let (id, state) = (view.reference().session, view.state());
        let first = super::records(store, id, 0, 0, &[Kind::Created]).await?;
        let key = first.first().and_then(|record| record.body::<Created>().ok()).and_then(|created| created.run);
        let open = state.steps.iter().any(|step| !step.inherited);
        if key.is_none() && state.entered == 0 && !open {
            let last = last_left(store, view).await?;
            if last.is_none() {
                return Ok(None);
            }
        }
        let row = store.sessions(Which::Id(id).into()).await?.into_iter().next();
        let at_head = row.as_ref().is_some_and(|row| row.seq == view.reference().seq);
        let process = row.filter(|_| at_head).and_then(|row| row.holder).map(|holder| holder.process);
        let mut waiting: Vec<Waiting> = waiting_on(id, view);
        if open && at_head {
            on_branches(store, id, &mut waiting).await?;
        }
        let is = match last_left(store, view).await? {
            _ if open && !waiting.is_empty() => Is::Waiting,
            // What came after is known: it went on.
            _ if process.is_some() || open && !at_head => Is::Running,
            _ if open => Is::Interrupted,
            Some(Outcome::Done) => Is::Done,
            Some(Outcome::Failed) => Is::Failed,
            Some(Outcome::Cancelled) => Is::Cancelled,
            None => Is::NotBegun,
        };
        Ok(Some(Self { key, is, process, waiting }))
    }

    /// As lines of a header.
    pub(crate) fn lines(&self, session: SessionId) -> Vec<String> {
        let key =
            self.key.as_ref().map(|key| style::dim(format!(", key {}", output::harmless(key)))).unwrap_or_default();
        let process =
            self.process.map(|process| style::dim(format!(", held by process {process}"))).unwrap_or_default();
        // A branch goes on with the run that it is part of.
        let go_on = match self.key {
            Some(_) => style::dim(format!(" (rath resume {})", session.short())),
            None => String::new(),
        };
        let is = match self.is {
            Is::NotBegun => style::label("not begun"),
            Is::Running => style::good("running"),
            Is::Waiting => style::label("waiting for an answer"),
            Is::Interrupted => format!("{}{go_on}", style::bad("interrupted")),
            Is::Done => style::good("done"),
            Is::Failed => style::bad("failed"),
            Is::Cancelled => style::label("cancelled"),
        };
        let mut lines = vec![format!("run: {is}{process}{key}")];
        for Waiting { at, ask } in &self.waiting {
            let about = match ask.about {
                rath::body::About::Approval => "may a call be made?",
                rath::body::About::InDoubt => "did a call happen?",
                rath::body::About::Question => "a question",
            };
            lines.push(format!(
                "{} {}",
                style::label(format!("waiting: {about}")),
                style::dim(format!("(rath answer {at})"))
            ));
        }
        lines
    }
}

fn waiting_on(id: SessionId, view: &View) -> Vec<Waiting> {
    view.pending().asks.into_iter().map(|ask| Waiting { at: Point { session: id, seq: ask.seq }, ask }).collect()
}

/// How the last step that this line left ended.
async fn last_left(store: &Arc<dyn Store>, view: &View) -> Result<Option<Outcome>> {
    let at = view.reference();
    let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::StepLeft]).backwards().limit(1);
    let page = store.scan(scan).await?;
    Ok(page.records.first().and_then(|record| record.body::<StepLeft>().ok()).map(|left| left.outcome))
}

fn on_branches<'a>(store: &'a Arc<dyn Store>, id: SessionId, into: &'a mut Vec<Waiting>) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rows: Vec<Row> = store.sessions(Which::ChildrenOf(id).into()).await?;
        for row in rows.iter().filter(|row| !row.closed) {
            let view = View::of(store, row.id, None).await?;
            into.extend(waiting_on(row.id, &view));
            on_branches(store, row.id, into).await?;
        }
        Ok(())
    })
}
