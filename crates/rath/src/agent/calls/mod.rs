//! The tool calls of one turn, from the model's request to the results.
//!
//! Start with [`Agent::make_calls`]. The details of each stage are in one file:
//!
//! 1. `decide`: whether the call is made, refused, needs an approval, or is over already.
//! 2. `one_call`: appends `tool_started`, calls the tool, appends `tool_finished`.
//! 3. `branches`: merges the branches of calls, in call order.

mod branches;
mod decide;
mod merged;
mod one_call;
mod recovery;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rath_core::body::{Assistant, Block, ToolFinished, ToolResult};
use rath_core::store::BoxFuture;
use rath_core::{Cancel, Content, Error, ErrorKind, FileAccess, OpenCall, RecordId, Result, Session};

use super::Agent;
use super::drive::StepContext;
use super::event::Event;

pub(super) use branches::abandon_branches;
use decide::Plan;
pub(crate) use one_call::panic_message;
use one_call::{CallEnd, InFlightCall};

/// A call of the turn, and its plan.
struct ScheduledCall {
    call: OpenCall,
    plan: Plan,
    /// How the call uses the files. It keeps its place among file calls while it waits for an answer.
    file_access: FileAccess,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    Over,
}

impl Agent {
    /// Makes the remaining calls of the last turn, and records their results for the model.
    pub(super) async fn make_calls(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        calls: Vec<OpenCall>,
    ) -> Result<()> {
        let Some(record) = calls.first().map(|call| call.record) else { return Ok(()) };
        let turn = self.turn(session, context, record).await?;
        let mut batch = Vec::with_capacity(calls.len());
        for call in calls {
            let arguments = arguments_of(session, &turn, &call.id).await?;
            let plan = self.decide(session, context, &call, arguments).await?;
            let stage = if matches!(plan, Plan::Make(_)) { Stage::Queued } else { Stage::Over };
            let file_access = self.file_access(&call.tool);
            batch.push(ScheduledCall { call, plan, file_access, stage });
        }
        let mut branches = std::mem::take(&mut context.branches);
        branches.extend(CallBatch::new(self, session, context, &mut batch).run().await?);
        if batch.iter().any(|scheduled| matches!(scheduled.plan, Plan::Wait)) {
            (context.turn, context.branches) = (Some(turn), branches);
            return self.await_answer(session, context).await;
        }
        let merged = self.merge_branches(session, &batch, branches).await?;
        for (at, ScheduledCall { call, plan, .. }) in batch.into_iter().enumerate() {
            if let Plan::Say { text, failed: true, .. } | Plan::Refuse { text, .. } = &plan {
                context.emit(session, || Event::CallRefused { tool: call.tool.clone(), why: text.clone() });
            }
            let result = ToolResult::new(call.id);
            let result = match plan {
                Plan::Say { text, failed, finished } => {
                    ToolResult { finished, shown: Some(text.into()), failed, ..result }
                }
                Plan::Refuse { text, by } => {
                    ToolResult { shown: Some(text.into()), failed: true, policy: by, ..result }
                }
                Plan::Report { finished, failed } => {
                    let result = ToolResult { finished: Some(finished), failed, ..result };
                    match merged.iter().find(|merged| merged.at == at).and_then(|merged| merged.notice(session)) {
                        Some(notice) => with_words(session, result, &notice).await?,
                        None => result,
                    }
                }
                Plan::Wait | Plan::Make(_) => continue,
            };
            session.append(result)?;
        }
        Ok(())
    }

    /// How a call uses the files. A call with a branch reads them, because the branch starts with a copy.
    fn file_access(&self, tool: &str) -> FileAccess {
        match self.tool(tool).map(|tool| tool.spec()) {
            Some(spec) if spec.branches && spec.file_access == FileAccess::Nothing => FileAccess::Reads,
            Some(spec) => spec.file_access,
            None => FileAccess::Nothing,
        }
    }
}

/// The calls of one turn while they run. Calls run concurrently unless they conflict on the files. After an error no
/// further call is started; running calls finish and are recorded as far as possible.
struct CallBatch<'a> {
    agent: &'a Agent,
    session: &'a mut Session,
    context: &'a mut StepContext,
    calls: &'a mut [ScheduledCall],
    /// Whether only one call is to be made.
    alone: bool,
    running: FuturesUnordered<BoxFuture<'static, CallEnd>>,
    /// The running calls, by index.
    in_flight: Vec<Option<InFlightCall>>,
    /// The branches of finished calls, with the index of the call.
    branches: Vec<(usize, Session)>,
    /// Cancels the running calls.
    cancel: Cancel,
    /// Completes when the calls must stop. `None` after that.
    stop: Option<BoxFuture<'static, ()>>,
    /// Whether a call ended after `stop` completed.
    cut: bool,
    error: Option<Error>,
}

impl<'a> CallBatch<'a> {
    fn new(
        agent: &'a Agent,
        session: &'a mut Session,
        context: &'a mut StepContext,
        calls: &'a mut [ScheduledCall],
    ) -> Self {
        Self {
            alone: calls.iter().filter(|call| call.stage == Stage::Queued).count() == 1,
            running: FuturesUnordered::new(),
            in_flight: calls.iter().map(|_| None).collect(),
            branches: Vec::new(),
            cancel: context.cancel.child(),
            stop: Some(agent.stop(session, context)),
            cut: false,
            error: None,
            agent,
            session,
            context,
            calls,
        }
    }

    /// Makes the calls. Returns their branches, with the index of the call.
    async fn run(mut self) -> Result<Vec<(usize, Session)>> {
        loop {
            let started = self.start_ready().await;
            self.note(started);
            match self.next_end().await {
                Some(end) => self.ended(end).await,
                None if self.may_start_more() => {}
                None => return self.over().await,
            }
        }
    }

    /// Keeps the first error.
    fn note(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.error.get_or_insert(error);
        }
    }

    /// Starts every call that may start now. All starts are recorded durably before the first tool is called.
    async fn start_ready(&mut self) -> Result<()> {
        if !self.may_start_more() {
            return Ok(());
        }
        let mut fresh = Vec::new();
        let ready = match self.record_starts(&mut fresh).await {
            Ok(()) => self.make_durable(&fresh).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            self.take_back(fresh, &error);
            return Err(error);
        }
        for (at, call) in fresh {
            self.context.emit(self.session, || call.event());
            self.running.push(call.run(at, self.alone));
            self.in_flight[at] = Some(call);
        }
        Ok(())
    }

    async fn record_starts(&mut self, fresh: &mut Vec<(usize, InFlightCall)>) -> Result<()> {
        for at in 0..self.calls.len() {
            if !may_start(self.calls, at) {
                continue;
            }
            let (scheduled, cancel) = (&mut self.calls[at], self.cancel.child());
            match self.agent.start_call(self.session, self.context, scheduled, cancel).await? {
                Some(call) => {
                    scheduled.stage = Stage::Running;
                    fresh.push((at, call));
                }
                None => scheduled.stage = Stage::Over,
            }
        }
        Ok(())
    }

    /// Publishes the starts before the effects. For irreversible effects this does not depend on the session's
    /// durability.
    async fn make_durable(&mut self, fresh: &[(usize, InFlightCall)]) -> Result<()> {
        match fresh.iter().any(|(_, call)| call.effect().is_irreversible()) {
            true => self.session.publish().await,
            false if fresh.is_empty() => Ok(()),
            false => self.session.publish_if_due().await,
        }
    }

    /// Records that calls did not start after all.
    fn take_back(&mut self, fresh: Vec<(usize, InFlightCall)>, error: &Error) {
        // Without further records a resumed run finds the session as before, and makes the calls.
        if error.leaves_the_run_open() && self.running.is_empty() {
            return;
        }
        for (_, call) in fresh {
            let _ = call.record_not_started(self.session, error);
        }
    }

    /// Waits for the next call that ends. When the run must stop, running calls are cancelled first.
    async fn next_end(&mut self) -> Option<CallEnd> {
        if self.running.is_empty() {
            return None;
        }
        if let Some(stop) = &mut self.stop {
            tokio::select! {
                biased;
                end = self.running.next() => return end,
                () = stop => {}
            }
            self.stop = None;
            // After a cancellation the token is cancelled already.
            self.cancel.cancel("the time limit of the budget is reached");
        }
        self.running.next().await
    }

    /// Handles the end of a call.
    async fn ended(&mut self, mut end: CallEnd) {
        let Some(call) = self.in_flight[end.at].take() else { return };
        self.calls[end.at].stage = Stage::Over;
        match end.outcome.open.take() {
            // An agent on the call's branch waits for an answer, so the call waits too.
            Some(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                self.calls[end.at].plan = Plan::Wait;
                let branch = error.into_sessions().into_iter().next();
                self.context.waiting.extend(branch.map(|branch| (call.id().to_owned(), branch)));
            }
            Some(error) => self.note(Err(error)),
            None => {
                let recorded = self.record_end(call, end).await;
                self.note(recorded);
                self.cut |= self.stop.is_none() || self.context.cancel.is_cancelled();
            }
        }
    }

    async fn record_end(&mut self, call: InFlightCall, end: CallEnd) -> Result<()> {
        let (at, effect) = (end.at, call.effect());
        let finished = self.agent.finish_call(self.session, self.context, call, end).await?;
        self.branches.extend(finished.branch.map(|branch| (at, branch)));
        self.calls[at].plan = match finished.asks {
            true => Plan::Wait,
            false => Plan::Report { finished: finished.record, failed: finished.failed },
        };
        let last = self.calls.iter().all(|call| call.stage == Stage::Over);
        match (&self.error, last && !effect.is_irreversible()) {
            // After an error no later record may publish it.
            (Some(_), _) => self.session.publish().await,
            // The record that follows the last end is published at once: the two share a commit.
            (None, true) => Ok(()),
            (None, false) => self.session.publish_if_due().await,
        }
    }

    /// Ends the batch: no call is running, and none may start.
    async fn over(self) -> Result<Vec<(usize, Session)>> {
        let cut = self.cut || self.any_may_start();
        match (self.error, self.agent.stopped(self.context).filter(|_| cut)) {
            (Some(error), _) => Err(error),
            (None, Some(error)) => {
                self.session.publish().await?;
                Err(error)
            }
            (None, None) => Ok(self.branches),
        }
    }

    /// Whether another call may start now: not after an error or a stop.
    fn may_start_more(&self) -> bool {
        self.error.is_none() && self.any_may_start() && self.agent.stopped(self.context).is_none()
    }

    fn any_may_start(&self) -> bool {
        (0..self.calls.len()).any(|at| may_start(self.calls, at))
    }
}

/// Whether a call is queued and no earlier call conflicts with it on the files.
fn may_start(calls: &[ScheduledCall], at: usize) -> bool {
    if calls[at].stage != Stage::Queued {
        return false;
    }
    // A call that waits for an answer keeps its place: later file calls wait for it.
    let mut before = calls[..at].iter().filter(|call| call.stage != Stage::Over || matches!(call.plan, Plan::Wait));
    match calls[at].file_access {
        FileAccess::Nothing => true,
        FileAccess::Reads => before.all(|call| call.file_access != FileAccess::Writes),
        FileAccess::Writes => before.all(|call| call.file_access == FileAccess::Nothing),
    }
}

/// The arguments of a call, as the model wrote them.
async fn arguments_of(session: &Session, turn: &Assistant, call: &str) -> Result<String> {
    let found = turn.blocks.iter().find_map(|block| match block {
        Block::ToolUse { id, arguments, .. } if id == call => Some(arguments),
        _ => None,
    });
    match found {
        Some(Content::Text(text)) => Ok(text.clone()),
        Some(blob) => session.view().await?.content(blob).await,
        None => Ok(String::new()),
    }
}

/// Adds a notice to the output that a result shows.
async fn with_words(session: &Session, result: ToolResult, more: &str) -> Result<ToolResult> {
    // The body may be erased.
    let body = finished_of(session, result.finished).await?;
    let text = match body.as_ref().and_then(ToolFinished::shown) {
        Some(shown) => session.view().await?.content(&shown).await?,
        None => String::new(),
    };
    let shown = if text.is_empty() { more.to_owned() } else { format!("{text}\n\n{more}") };
    let attached = body.map(|body| body.attached()).unwrap_or_default();
    Ok(ToolResult { shown: Some(shown.into()), attached, ..result })
}

async fn finished_of(session: &Session, finished: Option<RecordId>) -> Result<Option<ToolFinished>> {
    let open = session.state().calls.iter().filter_map(|call| call.finished);
    let seq = open.into_iter().find(|(_, id)| Some(*id) == finished).map(|(seq, _)| seq);
    match seq {
        Some(seq) => Ok(session.record_at(seq).await?.body::<ToolFinished>().ok()),
        None => Ok(None),
    }
}
