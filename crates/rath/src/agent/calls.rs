//! The calls of one turn: together, unless they conflict on the workspace; then in call order.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rath_core::body::{Assistant, Block, Effect, ToolResult};
use rath_core::{BoxTool, Content, ErrorKind, OpenCall, Result, Session, Touches};

use super::Agent;
use super::call::{Ended, Running};
use super::drive::Bench;
use super::event::Event;
use super::plan::Plan;

/// A call of the turn and what is done about it.
pub(super) struct Job {
    pub(super) call: OpenCall,
    pub(super) plan: Plan,
    /// What the call does with the files, also while it waits for a person.
    touches: Touches,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ahead,
    Running,
    Over,
}

type Future = Pin<Box<dyn std::future::Future<Output = Ended> + Send>>;

impl Agent {
    /// Makes the calls of the last turn, or what is left of them, and gives the model their results.
    pub(super) async fn make_calls(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        calls: Vec<OpenCall>,
    ) -> Result<()> {
        let turn = self.last_turn(session, bench).await?;
        let mut jobs = Vec::with_capacity(calls.len());
        for call in calls {
            let arguments = arguments_of(session, &turn, &call.id).await?;
            let plan = self.plan(session, bench, &call, arguments).await?;
            let stage = if matches!(plan, Plan::Make(_)) { Stage::Ahead } else { Stage::Over };
            let touches = self.touches(&call.tool);
            jobs.push(Job { call, plan, touches, stage });
        }
        let mut branches = std::mem::take(&mut bench.branches);
        branches.extend(self.run_jobs(session, bench, &mut jobs).await?);
        if jobs.iter().any(|job| matches!(job.plan, Plan::Wait)) {
            (bench.turn, bench.branches) = (Some(turn), branches);
            return self.await_answer(session, bench).await;
        }
        self.take_in(session, &jobs, branches).await?;
        for Job { call, plan, .. } in jobs {
            let (finished, shown, failed) = match plan {
                Plan::Say { text, failed } => (None, Some(text.into()), failed),
                Plan::Report(finished, failed) => (Some(finished), None, failed),
                Plan::Wait | Plan::Make(_) => continue,
            };
            session.append(ToolResult { call: call.id, finished, shown, failed })?;
        }
        Ok(())
    }

    /// What a call does with the files. One that works on a branch begins with a copy of them.
    fn touches(&self, tool: &str) -> Touches {
        let spec = self.tools.iter().map(|known| known.spec()).find(|spec| spec.name == tool);
        match spec {
            Some(spec) if spec.branches && spec.touches == Touches::Nothing => Touches::Reads,
            Some(spec) => spec.touches,
            None => Touches::Nothing,
        }
    }

    /// Runs what is to be made, as many together as may be. Returns the branches that calls worked on, with the place
    /// of the call.
    async fn run_jobs(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        jobs: &mut [Job],
    ) -> Result<Vec<(usize, Session)>> {
        let mut running: FuturesUnordered<Future> = FuturesUnordered::new();
        let mut open: Vec<Option<Running>> = jobs.iter().map(|_| None).collect();
        let mut branches = Vec::new();
        let alone = jobs.iter().filter(|job| job.stage == Stage::Ahead).count() == 1;
        loop {
            let mut fresh = Vec::new();
            let stopped = bench.cancel.why();
            for at in 0..jobs.len() {
                // Nothing begins after somebody said stop.
                if stopped.is_none() && may_start(jobs, at) {
                    match self.start(session, bench, &mut jobs[at]).await? {
                        Some(call) => {
                            jobs[at].stage = Stage::Running;
                            fresh.push((at, call));
                        }
                        None => jobs[at].stage = Stage::Over,
                    }
                }
            }
            // The intent is durable before the effect; before one that cannot be taken back, whatever was said about durability.
            match fresh.iter().any(|(_, call)| call.effect == Effect::Irreversible) {
                true => session.publish().await?,
                false if fresh.is_empty() => {}
                false => session.settle().await?,
            }
            for (at, call) in fresh {
                bench.tell(session, &self.name, Event::CallStarted { id: &call.id, tool: &call.tool });
                running.push(call.begin(at, alone));
                open[at] = Some(call);
            }
            let told = Self::told_to_stop(session.id(), session.store().clone(), bench.cancel.clone());
            let Some(ended) = next_or_stop(&mut running, bench, told).await else {
                match stopped {
                    Some(why) if jobs.iter().any(|job| job.stage == Stage::Ahead) => {
                        return Err(ErrorKind::Cancelled { why: why.to_string() }.into());
                    }
                    None if (0..jobs.len()).any(|at| may_start(jobs, at)) => continue,
                    _ => return Ok(branches),
                }
            };
            let at = ended.at;
            let Some(call) = open[at].take() else { continue };
            if let Some(error) = call.left_open() {
                return Err(error);
            }
            if call.waits() {
                bench.left_waiting = true;
                (jobs[at].plan, jobs[at].stage) = (Plan::Wait, Stage::Over);
                continue;
            }
            let (tool, id) = (call.tool.clone(), call.id.clone());
            let irreversible = call.effect == Effect::Irreversible;
            let (finished, failed, branch) = self.finish(session, bench, call, ended).await?;
            bench.tell(session, &self.name, Event::CallFinished { id: &id, tool: &tool, failed });
            branches.extend(branch.map(|branch| (at, branch)));
            jobs[at].plan = Plan::Report(finished, failed);
            jobs[at].stage = Stage::Over;
            let last = jobs.iter().all(|job| job.stage == Stage::Over);
            // What follows the last one is published at once: the two share a commit.
            if !last || irreversible {
                session.settle().await?;
            }
            if let Some(why) = bench.cancel.why()
                && running.is_empty()
            {
                session.publish().await?;
                return Err(ErrorKind::Cancelled { why: why.to_string() }.into());
            }
        }
    }
}

/// Whether nothing that comes before a call is in its way.
fn may_start(jobs: &[Job], at: usize) -> bool {
    if jobs[at].stage != Stage::Ahead {
        return false;
    }
    // A call that waits for a person may be made yet: what comes after it on the files comes after it.
    let mut before = jobs[..at].iter().filter(|job| job.stage != Stage::Over || matches!(job.plan, Plan::Wait));
    match jobs[at].touches {
        Touches::Nothing => true,
        Touches::Reads => before.all(|job| job.touches != Touches::Writes),
        Touches::Writes => before.all(|job| job.touches == Touches::Nothing),
    }
}

/// The next call that ends. When the work is to stop, those that run are told, and given a moment.
async fn next_or_stop(
    running: &mut FuturesUnordered<Future>,
    bench: &Bench,
    told: impl std::future::Future<Output = ()>,
) -> Option<Ended> {
    if running.is_empty() {
        return None;
    }
    if bench.cancel.is_cancelled() {
        return running.next().await;
    }
    tokio::select! {
        biased;
        ended = running.next() => ended,
        // Each call hears of it too, and ends by itself or is dropped.
        () = bench.cancel.cancelled() => running.next().await,
        () = told => running.next().await,
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

/// What can be done about a call of which nobody knows whether it happened: the less safe of the tool's and the place's.
pub(super) fn spec_effect(tool: &BoxTool, isolated: bool) -> Effect {
    // What a command does outside the files can be taken back only where it cannot get there.
    match tool.spec().effect {
        Effect::Workspace if !isolated => Effect::Irreversible,
        effect => effect,
    }
}

/// The branch that a call works on, for the tool to take and give back.
pub(crate) type Lent = Arc<super::sub::Branch>;
