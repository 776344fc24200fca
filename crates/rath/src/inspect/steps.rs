//! The steps of a session and of its branches, as a tree.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rath_core::body::{
    Cancelled, Failed, Forked, Merged, ModelResponded, Outcome, Role, StepEntered, StepLeft, ToolFinished, ToolStarted,
};
use rath_core::store::{BoxFuture, SessionFilter};
use rath_core::{Content, Kind, Point, Record, RecordId, Result, SessionId, Store, Time, Usage};
use serde::Serialize;

use super::{model_of, records};

/// The kinds of records that the tree is built from.
const KINDS: &[Kind] = &[
    Kind::Forked,
    Kind::StepEntered,
    Kind::StepLeft,
    Kind::ModelResponded,
    Kind::ToolStarted,
    Kind::ToolFinished,
    Kind::Merged,
    Kind::Failed,
    Kind::Cancelled,
];

/// Details that few steps have.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepDetails {
    /// The name of a run's workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The version of the agent or workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The value that the step returned, as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Content>,
}

/// A step, or a branch that was forked in one.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "most nodes are steps")]
pub enum StepNode {
    /// A step.
    Step {
        /// Its depth in the tree.
        depth: usize,
        /// The session that entered the step.
        session: SessionId,
        /// The position of its `step_entered` record.
        seq: u64,
        /// The id of its `step_entered` record.
        record: RecordId,
        /// The enclosing step.
        #[serde(skip_serializing_if = "Option::is_none")]
        around: Option<RecordId>,
        /// Its name.
        name: String,
        /// Whether an agent or a workflow works in it.
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// The agent's model.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// When it was entered.
        entered: Time,
        /// When it finished.
        left: Option<Time>,
        /// The duration in microseconds.
        duration_us: Option<u64>,
        /// How it ended.
        outcome: Option<Outcome>,
        /// The reason.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// Further details.
        #[serde(flatten)]
        more: Box<StepDetails>,
        /// The number of model answers in this step, without inner steps.
        turns: u64,
        /// The number of calls in this step, without inner steps.
        calls: u64,
        /// The usage, including inner steps.
        usage: Usage,
    },
    /// A session that was forked.
    Branch {
        /// Its depth in the tree.
        depth: usize,
        /// The forked session.
        session: SessionId,
        /// The fork point.
        from: Point,
        /// The reason for the fork.
        why: String,
        /// The tool call that works on the branch.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// Whether it is closed.
        closed: bool,
    },
}

/// A node with its children.
struct Found {
    node: StepNode,
    inside: Vec<Found>,
}

/// The steps of a session up to one of its records, and those of its branches, in depth-first order.
pub async fn steps(store: &Arc<dyn Store>, session: SessionId, to: u64) -> Result<Vec<StepNode>> {
    let mut nodes = Vec::new();
    flatten(line(store, session, to).await?, 0, &mut nodes);
    Ok(nodes)
}

fn flatten(found: Vec<Found>, at: usize, into: &mut Vec<StepNode>) {
    for Found { mut node, inside } in found {
        match &mut node {
            StepNode::Step { depth, .. } | StepNode::Branch { depth, .. } => *depth = at,
        }
        into.push(node);
        flatten(inside, at + 1, into);
    }
}

/// The steps of one session, with the branches that were forked in them.
fn line(store: &Arc<dyn Store>, session: SessionId, to: u64) -> BoxFuture<'_, Result<Vec<Found>>> {
    Box::pin(async move {
        let mut branches = Vec::new();
        for row in store.sessions(SessionFilter::ChildrenOf(session).into()).await? {
            let Some(origin) = row.origin.filter(|origin| origin.seq <= to) else { continue };
            let first = records(store, row.id, 0, 0, &[Kind::Forked]).await?;
            let forked = first.first().and_then(|record| record.body::<Forked>().ok());
            let (why, call) = forked.map_or_else(Default::default, |forked| (forked.why, forked.call));
            let from = origin.point();
            let node = StepNode::Branch { depth: 0, session: row.id, from, why, call, closed: row.closed };
            let inside = line(store, row.id, row.seq).await?;
            branches.push((origin.seq, row.id, Found { node, inside }));
        }
        branches.sort_by_key(|(seq, id, _)| (*seq, *id));
        let mut fold =
            Fold { store, branches: branches.into(), top: Vec::new(), open: Vec::new(), running: HashSet::new() };
        for record in records(store, session, 0, to, KINDS).await? {
            fold.take(&record).await?;
        }
        Ok(fold.close())
    })
}

struct Fold<'a> {
    store: &'a Arc<dyn Store>,
    /// Branches that are not in the tree yet, by fork point.
    branches: VecDeque<(u64, SessionId, Found)>,
    top: Vec<Found>,
    open: Vec<Found>,
    /// Open calls.
    running: HashSet<String>,
}

impl Fold<'_> {
    fn add(&mut self, found: Found) {
        match self.open.last_mut() {
            Some(step) => step.inside.push(found),
            None => self.top.push(found),
        }
    }

    /// Adds the branches that were forked before this record to the open step.
    fn branches_before(&mut self, seq: u64) {
        while self.branches.front().is_some_and(|(from, ..)| *from < seq) {
            if let Some((_, _, found)) = self.branches.pop_front() {
                self.add(found);
            }
        }
    }

    async fn take(&mut self, record: &Record) -> Result<()> {
        self.branches_before(record.seq());
        let time = time_of(record)?;
        match record.kind() {
            Kind::StepEntered => {
                let Ok(body) = record.body::<StepEntered>() else { return Ok(()) };
                let model = model_of(self.store, body.config.as_ref()).await?;
                let around = self.open.last().and_then(|found| match &found.node {
                    StepNode::Step { record, .. } => Some(*record),
                    StepNode::Branch { .. } => None,
                });
                let node = StepNode::Step {
                    depth: 0,
                    session: record.session(),
                    seq: record.seq(),
                    record: record.id(),
                    around,
                    name: body.name,
                    role: body.role,
                    model,
                    entered: time,
                    left: None,
                    duration_us: None,
                    outcome: None,
                    why: None,
                    more: Box::new(StepDetails { workflow: body.workflow, version: body.version, value: None }),
                    turns: 0,
                    calls: 0,
                    usage: Usage::default(),
                };
                self.open.push(Found { node, inside: Vec::new() });
            }
            Kind::StepLeft => {
                let Ok(body) = record.body::<StepLeft>() else { return Ok(()) };
                self.leave(&body, time);
            }
            Kind::ModelResponded => {
                if let Ok(body) = record.body::<ModelResponded>() {
                    self.count(1, 0, body.usage);
                }
            }
            Kind::ToolStarted => {
                // An interrupted call has two starts and counts once.
                let is_new = record.body::<ToolStarted>().is_ok_and(|body| self.running.insert(body.call));
                self.count(0, u64::from(is_new), Usage::default());
            }
            Kind::ToolFinished => {
                if let Ok(body) = record.body::<ToolFinished>() {
                    self.running.remove(&body.call);
                }
            }
            Kind::Merged => {
                if let Ok(body) = record.body::<Merged>() {
                    self.count(0, 0, body.usage);
                }
            }
            Kind::Failed => self.because(record.body::<Failed>().ok().map(|body| body.why)),
            Kind::Cancelled => self.because(record.body::<Cancelled>().ok().map(|body| body.reason().to_owned())),
            _ => {}
        }
        Ok(())
    }

    /// Counts turns and calls in the innermost step, and usage in all open steps.
    fn count(&mut self, more_turns: u64, more_calls: u64, used: Usage) {
        let innermost = self.open.len().saturating_sub(1);
        for (at, found) in self.open.iter_mut().enumerate() {
            if let StepNode::Step { turns, calls, usage, .. } = &mut found.node {
                *usage += used;
                if at == innermost {
                    (*turns, *calls) = (*turns + more_turns, *calls + more_calls);
                }
            }
        }
    }

    fn because(&mut self, reason: Option<String>) {
        if let Some(Found { node: StepNode::Step { why, .. }, .. }) = self.open.last_mut() {
            *why = reason.or(why.take());
        }
    }

    fn leave(&mut self, body: &StepLeft, time: Time) {
        let is = |found: &Found| matches!(&found.node, StepNode::Step { record, .. } if *record == body.step);
        let Some(place) = self.open.iter().rposition(is) else { return };
        while self.open.len() > place {
            let Some(mut found) = self.open.pop() else { return };
            if self.open.len() == place
                && let StepNode::Step { entered, left, duration_us, outcome, why, more, .. } = &mut found.node
            {
                (*left, *outcome, more.value) = (Some(time), Some(body.outcome), body.value.clone());
                *duration_us = Some(time.micros_since(*entered));
                if body.outcome == Outcome::Done {
                    *why = None;
                }
            }
            self.add(found);
        }
    }

    fn close(mut self) -> Vec<Found> {
        self.branches_before(u64::MAX);
        while let Some(found) = self.open.pop() {
            self.add(found);
        }
        self.top
    }
}

/// The time of a record.
pub(super) fn time_of(record: &Record) -> Result<Time> {
    let bad = |why: rath_core::RecordError| rath_core::ErrorKind::Record { point: record.point(), why };
    Ok(record.time().map_err(|why| bad(why.into()))?)
}
