//! The tool calls of one turn, from the model's request to the results that it is shown.
//!
//! Read [`Agent::make_calls`] and then this file from top to bottom. Of each stage the details are in one file:
//!
//! 1. `decide`: is the call made, refused, asked about, or over already?
//! 2. `one_call`: `tool_started` is appended, the tool is called, `tool_finished` is appended.
//! 3. `branches`: branches that calls worked on are merged, in call order.

mod branches;
mod decide;
mod merged;
mod one_call;
mod recovery;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rath_core::body::{Assistant, Block, ToolFinished, ToolResult};
use rath_core::store::BoxFuture;
use rath_core::{Cancel, Content, Error, ErrorKind, OpenCall, RecordId, Result, Session, Touches};

use super::Agent;
use super::drive::Bench;
use super::event::Event;

pub(super) use branches::give_up;
use decide::Plan;
use one_call::{CallEnd, InFlightCall};

/// A call of the turn, and what is done about it.
struct ScheduledCall {
    call: OpenCall,
    plan: Plan,
    /// What the call does with the files, also while it waits for a person.
    touches: Touches,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    Over,
}

impl Agent {
    /// Makes the calls of the last turn, or what is left of them, and gives the model their results.
    pub(super) async fn make_calls(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        calls: Vec<OpenCall>,
    ) -> Result<()> {
        let Some(record) = calls.first().map(|call| call.record) else { return Ok(()) };
        let turn = self.turn(session, bench, record).await?;
        let mut batch = Vec::with_capacity(calls.len());
        for call in calls {
            let arguments = arguments_of(session, &turn, &call.id).await?;
            let plan = self.decide(session, bench, &call, arguments).await?;
            let stage = if matches!(plan, Plan::Make(_)) { Stage::Queued } else { Stage::Over };
            let touches = self.touches(&call.tool);
            batch.push(ScheduledCall { call, plan, touches, stage });
        }
        let mut branches = std::mem::take(&mut bench.branches);
        branches.extend(CallBatch::new(self, session, bench, &mut batch).run().await?);
        if batch.iter().any(|scheduled| matches!(scheduled.plan, Plan::Wait)) {
            (bench.turn, bench.branches) = (Some(turn), branches);
            return self.await_answer(session, bench).await;
        }
        let merged = self.merge_branches(session, &batch, branches).await?;
        for (at, ScheduledCall { call, plan, .. }) in batch.into_iter().enumerate() {
            if let Plan::Say { text, failed: true, .. } | Plan::Refuse { text, .. } = &plan {
                bench.tell(session, || Event::CallRefused { tool: call.tool.clone(), why: text.clone() });
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
                    match merged.iter().find(|merged| merged.at == at).and_then(|merged| merged.told(session)) {
                        Some(told) => with_words(session, result, &told).await?,
                        None => result,
                    }
                }
                Plan::Wait | Plan::Make(_) => continue,
            };
            session.append(result)?;
        }
        Ok(())
    }

    /// What a call does with the files. One that works on a branch begins with a copy of them.
    fn touches(&self, tool: &str) -> Touches {
        match self.tool(tool).map(|tool| tool.spec()) {
            Some(spec) if spec.branches && spec.touches == Touches::Nothing => Touches::Reads,
            Some(spec) => spec.touches,
            None => Touches::Nothing,
        }
    }
}

/// The calls of one turn while they are made: together, unless they conflict on the files. After an error no other call
/// is started; those that run come to their own end and are recorded as far as possible.
struct CallBatch<'a> {
    agent: &'a Agent,
    session: &'a mut Session,
    bench: &'a mut Bench,
    calls: &'a mut [ScheduledCall],
    /// Whether there is one call to make.
    alone: bool,
    running: FuturesUnordered<BoxFuture<'static, CallEnd>>,
    /// The calls that run, by their place.
    in_flight: Vec<Option<InFlightCall>>,
    /// The branches that calls worked on, with the place of the call.
    branches: Vec<(usize, Session)>,
    /// What those that run are stopped by.
    cancel: Cancel,
    /// Comes when they are to be stopped; gone once it came.
    stop: Option<BoxFuture<'static, ()>>,
    /// Whether a call ended after that.
    cut: bool,
    error: Option<Error>,
}

impl<'a> CallBatch<'a> {
    fn new(agent: &'a Agent, session: &'a mut Session, bench: &'a mut Bench, calls: &'a mut [ScheduledCall]) -> Self {
        Self {
            alone: calls.iter().filter(|call| call.stage == Stage::Queued).count() == 1,
            running: FuturesUnordered::new(),
            in_flight: calls.iter().map(|_| None).collect(),
            branches: Vec::new(),
            cancel: bench.cancel.child(),
            stop: Some(agent.stop(session, bench)),
            cut: false,
            error: None,
            agent,
            session,
            bench,
            calls,
        }
    }

    /// Makes the calls. Returns the branches that they worked on, with the place of the call.
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

    /// Starts every call that may start now: first all of them on the record, durably, and then in fact.
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
            self.bench.tell(self.session, || call.event());
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
            match self.agent.start_call(self.session, self.bench, scheduled, cancel).await? {
                Some(call) => {
                    scheduled.stage = Stage::Running;
                    fresh.push((at, call));
                }
                None => scheduled.stage = Stage::Over,
            }
        }
        Ok(())
    }

    /// The intent is durable before the effect; before one that cannot be taken back, whatever was said about
    /// durability.
    async fn make_durable(&mut self, fresh: &[(usize, InFlightCall)]) -> Result<()> {
        match fresh.iter().any(|(_, call)| call.effect().is_irreversible()) {
            true => self.session.publish().await,
            false if fresh.is_empty() => Ok(()),
            false => self.session.settle().await,
        }
    }

    /// Records that calls did not start after all.
    fn take_back(&mut self, fresh: Vec<(usize, InFlightCall)>, error: &Error) {
        // Where nothing is recorded after this, a resumed run finds the session as it was before, and makes them.
        if error.leaves_the_run_open() && self.running.is_empty() {
            return;
        }
        for (_, call) in fresh {
            let _ = call.did_not_start(self.session, error);
        }
    }

    /// The next call that ends. When the work is to stop, those that run are told, and end by themselves or are dropped.
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
            // If a person or a program cancelled, the token says so already.
            self.cancel.cancel("the time of the budget is over");
        }
        self.running.next().await
    }

    /// A call ended.
    async fn ended(&mut self, mut end: CallEnd) {
        let Some(call) = self.in_flight[end.at].take() else { return };
        self.calls[end.at].stage = Stage::Over;
        match end.outcome.open.take() {
            // The work on its branch waits for a person: so does the call.
            Some(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                self.calls[end.at].plan = Plan::Wait;
                let branch = error.into_sessions().into_iter().next();
                self.bench.waiting.extend(branch.map(|branch| (call.id().to_owned(), branch)));
            }
            Some(error) => self.note(Err(error)),
            None => {
                let recorded = self.record_end(call, end).await;
                self.note(recorded);
                self.cut |= self.stop.is_none() || self.bench.cancel.is_cancelled();
            }
        }
    }

    async fn record_end(&mut self, call: InFlightCall, end: CallEnd) -> Result<()> {
        let (at, effect) = (end.at, call.effect());
        let finished = self.agent.finish_call(self.session, self.bench, call, end).await?;
        self.branches.extend(finished.branch.map(|branch| (at, branch)));
        self.calls[at].plan = match finished.asks {
            true => Plan::Wait,
            false => Plan::Report { finished: finished.record, failed: finished.failed },
        };
        let last = self.calls.iter().all(|call| call.stage == Stage::Over);
        match (&self.error, last && !effect.is_irreversible()) {
            // Nothing that publishes it may follow.
            (Some(_), _) => self.session.publish().await,
            // What follows the last one is published at once: the two share a commit.
            (None, true) => Ok(()),
            (None, false) => self.session.settle().await,
        }
    }

    /// Nothing runs any more, and nothing may start.
    async fn over(self) -> Result<Vec<(usize, Session)>> {
        let cut = self.cut || self.any_may_start();
        match (self.error, self.agent.stopped(self.bench).filter(|_| cut)) {
            (Some(error), _) => Err(error),
            (None, Some(error)) => {
                self.session.publish().await?;
                Err(error)
            }
            (None, None) => Ok(self.branches),
        }
    }

    /// Whether another call may start now. None does after an error, nor after the work was stopped.
    fn may_start_more(&self) -> bool {
        self.error.is_none() && self.any_may_start() && self.agent.stopped(self.bench).is_none()
    }

    fn any_may_start(&self) -> bool {
        (0..self.calls.len()).any(|at| may_start(self.calls, at))
    }
}

/// Whether no call before it conflicts with this one on the files.
fn may_start(calls: &[ScheduledCall], at: usize) -> bool {
    if calls[at].stage != Stage::Queued {
        return false;
    }
    // A call that waits for a person keeps its place: later calls on the files wait for it.
    let mut before = calls[..at].iter().filter(|call| call.stage != Stage::Over || matches!(call.plan, Plan::Wait));
    match calls[at].touches {
        Touches::Nothing => true,
        Touches::Reads => before.all(|call| call.touches != Touches::Writes),
        Touches::Writes => before.all(|call| call.touches == Touches::Nothing),
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

/// A result that shows the whole outcome of its call, with more words behind it.
async fn with_words(session: &Session, result: ToolResult, more: &str) -> Result<ToolResult> {
    // An erased body says nothing.
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
