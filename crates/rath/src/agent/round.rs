//! The calls of one turn while they are made: together, unless they conflict on the workspace; then in call order.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rath_core::body::Effect;
use rath_core::store::BoxFuture;
use rath_core::{Cancel, Error, OpenCall, Result, Session, Touches};

use super::Agent;
use super::call::{Ended, Running, not_made};
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

impl Job {
    pub(super) fn new(call: OpenCall, plan: Plan, touches: Touches) -> Self {
        let stage = if matches!(plan, Plan::Make(_)) { Stage::Ahead } else { Stage::Over };
        Self { call, plan, touches, stage }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ahead,
    Running,
    Over,
}

/// The calls of one turn while they are made. After an error nothing more begins; what runs comes to its own end and is
/// recorded as far as can be.
pub(super) struct Round<'a> {
    agent: &'a Agent,
    session: &'a mut Session,
    bench: &'a mut Bench,
    jobs: &'a mut [Job],
    /// Whether there is one call to make.
    alone: bool,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// What runs, by the place of its job.
    open: Vec<Option<Running>>,
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

impl<'a> Round<'a> {
    pub(super) fn new(agent: &'a Agent, session: &'a mut Session, bench: &'a mut Bench, jobs: &'a mut [Job]) -> Self {
        Self {
            alone: jobs.iter().filter(|job| job.stage == Stage::Ahead).count() == 1,
            running: FuturesUnordered::new(),
            open: jobs.iter().map(|_| None).collect(),
            branches: Vec::new(),
            cancel: bench.cancel.child(),
            stop: Some(agent.stop(session, bench)),
            cut: false,
            error: None,
            agent,
            session,
            bench,
            jobs,
        }
    }

    /// Makes the calls. Returns the branches that they worked on, with the place of the call.
    pub(super) async fn run(mut self) -> Result<Vec<(usize, Session)>> {
        loop {
            let begun = self.begin().await;
            self.note(begun);
            match self.next().await {
                Some(ended) => self.ended(ended).await,
                None if self.may_begin() => {}
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

    /// Whether another call may begin now. None does after an error, nor after the work was stopped.
    fn may_begin(&self) -> bool {
        self.error.is_none() && self.any_may_start() && self.agent.stopped(self.bench).is_none()
    }

    /// Whether there is a call that nothing before it keeps from beginning.
    fn any_may_start(&self) -> bool {
        (0..self.jobs.len()).any(|at| may_start(self.jobs, at))
    }

    /// Begins what may begin: on the record, durably, and then in fact.
    async fn begin(&mut self) -> Result<()> {
        if !self.may_begin() {
            return Ok(());
        }
        let mut fresh = Vec::new();
        let ready = match self.start(&mut fresh).await {
            Ok(()) => self.make_durable(&fresh).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            self.take_back(fresh, &error);
            return Err(error);
        }
        for (at, call) in fresh {
            self.bench.tell(self.session, || Event::CallStarted {
                id: call.id.clone(),
                tool: call.tool.clone(),
                arguments: call.arguments().to_owned(),
            });
            self.running.push(call.begin(at, self.alone));
            self.open[at] = Some(call);
        }
        Ok(())
    }

    /// Puts on the record what is about to begin.
    async fn start(&mut self, fresh: &mut Vec<(usize, Running)>) -> Result<()> {
        for at in 0..self.jobs.len() {
            if !may_start(self.jobs, at) {
                continue;
            }
            let (job, cancel) = (&mut self.jobs[at], self.cancel.child());
            match self.agent.start(self.session, self.bench, job, cancel).await? {
                Some(call) => {
                    job.stage = Stage::Running;
                    fresh.push((at, call));
                }
                None => job.stage = Stage::Over,
            }
        }
        Ok(())
    }

    /// The intent is durable before the effect; before one that cannot be taken back, whatever was said about
    /// durability.
    async fn make_durable(&mut self, fresh: &[(usize, Running)]) -> Result<()> {
        match fresh.iter().any(|(_, call)| call.effect == Effect::Irreversible) {
            true => self.session.publish().await,
            false if fresh.is_empty() => Ok(()),
            false => self.session.settle().await,
        }
    }

    /// Puts on the record that calls did not begin after all.
    fn take_back(&mut self, fresh: Vec<(usize, Running)>, error: &Error) {
        // Where nothing is recorded after this, whoever resumes the run finds it as it was before, and makes them.
        if error.leaves_the_run_open() && self.running.is_empty() {
            return;
        }
        for (_, call) in fresh {
            let _ = self.session.append(not_made(&call.id, error));
        }
    }

    /// The next call that ends. When the work is to stop, those that run are told, and end by themselves or are dropped.
    async fn next(&mut self) -> Option<Ended> {
        if self.running.is_empty() {
            return None;
        }
        if let Some(stop) = &mut self.stop {
            tokio::select! {
                biased;
                ended = self.running.next() => return ended,
                () = stop => {}
            }
            self.stop = None;
            // What somebody said they have heard already.
            self.cancel.cancel("the time of the budget is over");
        }
        self.running.next().await
    }

    /// A call ended.
    async fn ended(&mut self, ended: Ended) {
        let at = ended.at;
        let Some(call) = self.open[at].take() else { return };
        self.jobs[at].stage = Stage::Over;
        if let Some(error) = call.left_open() {
            return self.note(Err(error));
        }
        if call.waits() {
            self.jobs[at].plan = Plan::Wait;
            self.bench.waiting.extend(call.branch().map(|branch| (call.id, branch)));
            return;
        }
        let recorded = self.record(call, ended).await;
        self.note(recorded);
        self.cut |= self.stop.is_none() || self.bench.cancel.is_cancelled();
    }

    /// Puts on the record what came of a call.
    async fn record(&mut self, call: Running, ended: Ended) -> Result<()> {
        let (at, effect) = (ended.at, call.effect);
        let (finished, failed, branch) = self.agent.finish(self.session, self.bench, call, ended).await?;
        self.branches.extend(branch.map(|branch| (at, branch)));
        self.jobs[at].plan = Plan::Report(finished, failed);
        let last = self.jobs.iter().all(|job| job.stage == Stage::Over);
        match (&self.error, last && effect != Effect::Irreversible) {
            // Perhaps nobody comes after this who would.
            (Some(_), _) => self.session.publish().await,
            // What follows the last one is published at once: the two share a commit.
            (None, true) => Ok(()),
            (None, false) => self.session.settle().await,
        }
    }

    /// Nothing runs any more, and nothing may begin.
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
