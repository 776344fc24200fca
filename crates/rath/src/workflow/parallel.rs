//! Branches that run at the same time, and a join.

use std::collections::HashSet;

use rath_core::body::{Candidate, Role, Routed, Sampled, StepEntered};
use rath_core::{BoxWorkflow, Error, ErrorKind, Kind, Outline, Result, Session, SessionId, Time, Workflow};
use serde::Serialize;
use serde_json::{Value, json};

use super::SharedBudget;
use super::branches::{Branch, BranchEnd, Event, Running};
use super::codes;
use super::join::{Ended, Join, OnConflict};
use crate::agent::Budget;

/// The number of branches that run at the same time, unless set.
const AT_MOST: usize = 16;

/// The name under which an added branch and its item are recorded.
const ADDED: &str = "added branch";

/// Runs branches at the same time, each on a fork of the session with its own context, files and sandbox, and joins them.
///
/// The default join is [`Join::all`]. A failed branch cancels the others and fails the step, unless
/// [`collect`](Parallel::collect) is set. A branch that waits, for a person for example, lets the others run to their
/// end; then the run waits.
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::{Join, parallel};
/// # pollster::block_on(async {
/// let agent = |name: &str, answer: &str| Agent::new(name).model(Scripted::new("scripted").say(answer));
/// let review = parallel("review")
///     .branch("style", agent("style", "Two long lines."))
///     .branch("safety", agent("safety", "No unsafe code."))
///     .join(Join::answers());
///
/// let store = InMemory::new();
/// let mut session = store.create(Actor::person("ada"));
/// session.user("Review the change.")?;
/// let session = review.forward(session).await?;
/// assert_eq!(session.context().await?.len(), 2); // the question, and one message with both answers
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn parallel(name: impl Into<String>) -> Parallel {
    Parallel {
        name: name.into(),
        kind: "parallel",
        branches: Vec::new(),
        at_most: AT_MOST,
        join: Join::all(),
        on_conflict: OnConflict::Fail,
        at_least: None,
        budget: None,
        worker: None,
    }
}

/// See [`parallel`].
#[derive(Clone, Debug)]
pub struct Parallel {
    pub(super) name: String,
    kind: &'static str,
    branches: Vec<(String, BoxWorkflow)>,
    at_most: usize,
    pub(super) join: Join,
    on_conflict: OnConflict,
    /// How many branches must succeed, if failed branches are collected.
    at_least: Option<usize>,
    budget: Option<Budget>,
    /// The workflow of branches that are added while the step runs.
    worker: Option<BoxWorkflow>,
}

impl Parallel {
    /// Sets the name of the combinator, for the outline and for the record of the winners.
    pub(super) fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// Adds a branch. Its name must be unique within the step.
    #[must_use]
    pub fn branch(mut self, name: impl Into<String>, workflow: impl Workflow + 'static) -> Self {
        self.branches.push((name.into(), BoxWorkflow::new(workflow)));
        self
    }

    /// Lets branches add more branches while the step runs, with [`add_branch`]. Each added branch runs `worker`.
    #[must_use]
    pub fn discover(mut self, worker: impl Workflow + 'static) -> Self {
        self.worker = Some(BoxWorkflow::new(worker));
        self
    }

    /// Sets how many branches run at the same time. [default: 16]
    #[must_use]
    pub fn at_most(mut self, branches: usize) -> Self {
        self.at_most = branches.max(1);
        self
    }

    /// Sets how the branches are joined.
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.join = join;
        self
    }

    /// Sets what happens if the branches' files conflict. [default: fail]
    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Lets the other branches run when one fails. Failed branches are rejected. The step fails only if fewer than
    /// `at_least` branches succeed.
    #[must_use]
    pub fn collect(mut self, at_least: usize) -> Self {
        self.at_least = Some(at_least);
        self
    }

    /// Sets the tokens and the cost that the branches may use together. An agent on a branch fails with `budget-spent` when
    /// the budget is used up. Its limits on turns and time do not apply.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Runs the branches and returns those that succeeded, in branch order, without joining them. The caller merges
    /// them. Records no step of its own: call it inside a step.
    pub async fn run(&self, mut session: Session) -> Result<(Session, Vec<Session>)> {
        match self.run_branches(&mut session).await {
            Ok((ended, _)) => {
                let done = ended.into_iter().filter_map(|Ended { end, .. }| match end {
                    BranchEnd::Done(branch) => Some(branch),
                    _ => None,
                });
                let done = done.collect();
                Ok((session, done))
            }
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    pub(super) async fn run_and_join(&self, mut session: Session) -> Result<Session> {
        let outer = session.resources().get::<SharedBudget>().ok();
        if let Some(limit) = self.budget {
            session.provide(SharedBudget::new(limit));
        }
        let ran = self.run_branches(&mut session).await;
        if self.budget.is_some() {
            match &outer {
                Some(outer) => session.provide_shared(outer.clone()),
                None => session.withdraw::<SharedBudget>(),
            }
        }
        let (ended, winners) = match ran {
            Ok(ran) => ran,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        let branches: Vec<SessionId> = ended.iter().filter_map(Ended::id).collect();
        let joined = self.join.apply(session, ended, &winners, &self.on_conflict).await?;
        if let Some(outer) = outer {
            branches.into_iter().for_each(|branch| outer.forget(branch));
            outer.note(&joined);
        }
        Ok(joined)
    }

    /// Runs all branches to their end. Returns them in branch order, and the names of the branches that finished first
    /// if the join needs only some. The error holds the branches.
    async fn run_branches(&self, session: &mut Session) -> Result<(Vec<Ended>, Vec<String>)> {
        let mut tasks = Vec::with_capacity(self.branches.len());
        let mut names = HashSet::new();
        for (name, workflow) in &self.branches {
            if !names.insert(name) {
                let why = format!("step {:?} has two branches called {name:?}", self.name);
                return Err(ErrorKind::Workflow(why.into()).into());
            }
            tasks.push(Task { name: name.clone(), workflow: workflow.clone(), fork: None, session: None, end: None });
        }
        self.execute(session, tasks).await
    }

    async fn execute(&self, session: &mut Session, tasks: Vec<Task>) -> Result<(Vec<Ended>, Vec<String>)> {
        let winners = match self.join.enough() {
            Some(_) => session.recorded::<Routed>()?.map(|routed| routed.chosen),
            None => None,
        };
        let running = Running::of(session);
        let mut execution =
            Execution { step: self, session, tasks, running, winners, next: 0, first_failure: None, cancelled: None };
        let worked = execution.work().await;
        if let Err(error) = &worked {
            // No branch may outlive the step: it would keep the lease of its session.
            execution.running.cancel(format!("the step failed: {error}"));
            while let Some(event) = execution.running.next().await {
                execution.note_end(event);
            }
        }
        execution.finish(worked)
    }

    fn fails_fast(&self) -> bool {
        self.at_least.is_none() && self.join.enough().is_none()
    }
}

/// The execution of a step's branches.
struct Execution<'a> {
    step: &'a Parallel,
    session: &'a mut Session,
    tasks: Vec<Task>,
    running: Running,
    /// The branches that finished first, once they are recorded, if the join needs only some.
    winners: Option<Vec<String>>,
    /// The next task to start.
    next: usize,
    /// The task whose failure fails the step.
    first_failure: Option<usize>,
    /// A task that was cancelled before a crash. It fails the step only if no other task failed: the failure of another
    /// branch is the reason why it was cancelled.
    cancelled: Option<usize>,
}

impl Execution<'_> {
    /// Starts branches and handles their ends until none is running.
    async fn work(&mut self) -> Result<()> {
        loop {
            self.start_branches().await?;
            let Some(event) = self.running.next().await else {
                self.first_failure = self.first_failure.or(self.cancelled);
                return Ok(());
            };
            if let Some(index) = self.note_end(event) {
                self.add_branches_of(index).await?;
            }
            self.choose_winners().await?;
        }
    }

    async fn start_branches(&mut self) -> Result<()> {
        while self.next < self.tasks.len() && !self.running.is_cancelled() {
            let is_full = self.running.open() >= self.step.at_most;
            if is_full && self.step.join.enough().is_none() {
                break;
            }
            let task = &mut self.tasks[self.next];
            // By name, so that a resumed run finds it whatever was recorded since.
            let fork = task.fork.take();
            let mut fork = fork.unwrap_or_else(|| self.session.fork_with_key(&task.name, &task.name));
            // Before winners are chosen, every branch that may have finished before a crash must be known.
            if is_full && fork.unpublished_count() > 0 {
                task.fork = Some(fork);
                break;
            }
            match &self.winners {
                // The winners are recorded, so no branch is started now. This one was never stored.
                Some(_) if fork.unpublished_count() > 0 => {}
                Some(winners) if !winners.contains(&task.name) => {
                    let why = ErrorKind::Cancelled { why: "another branch finished first".into() };
                    task.end = Some(BranchEnd::Failed(fork, why.into()));
                }
                _ => {
                    if self.step.join.enough().is_some() {
                        // A branch that loses must be known after a crash, so that it is recorded as rejected.
                        fork.publish().await?;
                    }
                    task.session = Some(fork.id());
                    self.running.start(self.next, task.branch(fork, &self.step.join));
                }
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Keeps the end of a branch, and cancels the others if the branch fails the step. Returns the task that ended.
    fn note_end(&mut self, event: Event) -> Option<usize> {
        let Event::Ended(index, end, _) = event else { return None };
        if let BranchEnd::Failed(_, error) = &end
            && self.step.fails_fast()
            && !self.running.is_cancelled()
        {
            if error.is_cancelled() && error.is_replayed() {
                self.cancelled = Some(index);
            } else {
                self.running.cancel(format!("branch {} failed: {error}", self.tasks[index].name));
                self.first_failure = Some(index);
            }
        }
        self.tasks[index].end = Some(end);
        Some(index)
    }

    /// Adds the branches that a finished branch has added.
    async fn add_branches_of(&mut self, index: usize) -> Result<()> {
        let (Some(BranchEnd::Done(branch)), Some(worker)) = (&self.tasks[index].end, &self.step.worker) else {
            return Ok(());
        };
        for (name, item) in added_by(branch).await? {
            if self.tasks.iter().all(|task| task.name != name) {
                self.tasks.push(Task::added(name, item, worker));
            }
        }
        Ok(())
    }

    /// Records the branches that finished first, once there are enough, and then cancels the others.
    async fn choose_winners(&mut self) -> Result<()> {
        let Some(enough) = self.step.join.enough().filter(|_| self.winners.is_none() && self.running.is_settled())
        else {
            return Ok(());
        };
        let mut done = finished_first(&self.tasks).await?;
        if done.len() < enough {
            return Ok(());
        }
        done.truncate(enough);
        let candidates = self.tasks.iter().map(|task| Candidate { name: task.name.clone(), ..Candidate::default() });
        self.session.append(Routed {
            candidates: candidates.collect(),
            chosen: done.clone(),
            why: Some("finished first".into()),
            by: Some(self.step.kind.into()),
            evidence: Vec::new(),
        })?;
        self.session.publish().await?;
        self.running.cancel(format!("{} finished first", done.join(", ")));
        self.winners = Some(done);
        Ok(())
    }

    /// Returns how each branch ended, and the names of the winners. If the step failed, returns its error, which then
    /// contains the sessions of all branches.
    fn finish(self, worked: Result<()>) -> Result<(Vec<Ended>, Vec<String>)> {
        let mut failure = worked.err();
        let mut ended = Vec::with_capacity(self.tasks.len());
        for (index, Task { name, end, session, .. }) in self.tasks.into_iter().enumerate() {
            let has_lost = self.winners.as_ref().is_some_and(|winners| !winners.contains(&name));
            let end = match end {
                Some(BranchEnd::Open(error)) if has_lost => Some(lost(session, error)),
                end => end,
            };
            match end {
                None => {}
                Some(BranchEnd::Failed(branch, error)) if self.first_failure == Some(index) && failure.is_none() => {
                    failure = Some(error.with_sessions(vec![branch]));
                }
                Some(BranchEnd::Open(error)) if self.first_failure.is_none() && failure.is_none() => {
                    failure = Some(error);
                }
                Some(end) => ended.push(Ended { name, end }),
            }
        }
        // Branches are added in an order that differs from run to run: merge them by name, after the others.
        let fixed = self.step.branches.len().min(ended.len());
        ended[fixed..].sort_by(|one, other| one.name.cmp(&other.name));
        let succeeded = ended.iter().filter(|ended| matches!(ended.end, BranchEnd::Done(_))).count();
        let needed = self.step.join.enough().or(self.step.at_least).unwrap_or(0);
        if failure.is_none() && self.winners.is_none() {
            failure = match self.session.cancel_token().why() {
                Some(why) => Some(ErrorKind::Cancelled { why: why.to_string() }.into()),
                None if succeeded < needed => Some(too_few(succeeded, needed, &ended)),
                None => None,
            };
        }
        let Some(mut error) = failure else { return Ok((ended, self.winners.unwrap_or_default())) };
        let mut sessions = error.take_sessions();
        for Ended { end, .. } in ended {
            match end {
                BranchEnd::Done(branch) | BranchEnd::Failed(branch, _) => sessions.push(branch),
                BranchEnd::Open(error) => sessions.extend(error.into_sessions()),
            }
        }
        Err(error.with_sessions(sessions))
    }
}

/// The end of a branch that waited when others finished first.
fn lost(id: Option<SessionId>, mut error: Error) -> BranchEnd {
    if !matches!(error.kind(), ErrorKind::Waiting(_)) {
        return BranchEnd::Open(error);
    }
    let mut sessions = error.take_sessions();
    match sessions.iter().position(|session| Some(session.id()) == id) {
        Some(at) => {
            let why = ErrorKind::Cancelled { why: "other branches finished first".into() };
            BranchEnd::Failed(sessions.swap_remove(at), why.into())
        }
        None => BranchEnd::Open(error.with_sessions(sessions)),
    }
}

fn too_few(succeeded: usize, needed: usize, ended: &[Ended]) -> Error {
    let mut why = format!("{succeeded} branches succeeded, {needed} are needed");
    for Ended { name, end } in ended {
        if let BranchEnd::Failed(_, error) = end {
            why.push_str(&format!("; {name}: {error}"));
        }
    }
    ErrorKind::Coded { code: codes::TOO_FEW_SUCCEEDED.into(), why: why.into() }.into()
}

/// The names of the branches that succeeded, those that finished first before the others.
async fn finished_first(tasks: &[Task]) -> Result<Vec<String>> {
    let mut done: Vec<(Time, &str)> = Vec::new();
    for task in tasks {
        if let Some(BranchEnd::Done(branch)) = &task.end {
            let last = branch.record_at(branch.head().seq).await?;
            let point = last.point();
            done.push((last.time().map_err(|why| ErrorKind::Record { point, why: why.into() })?, &task.name));
        }
    }
    done.sort_by_key(|(time, _)| *time);
    Ok(done.into_iter().map(|(_, name)| name.to_owned()).collect())
}

impl Workflow for Parallel {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run_and_join(session)).await
    }

    fn outline(&self) -> Outline {
        let outline = Outline::leaf(self.kind).detail(format!("{}, join={}", self.name, self.join.describe()));
        let outline =
            self.branches.iter().fold(outline, |outline, (name, branch)| outline.child(name, branch.outline()));
        let outline = match &self.worker {
            Some(worker) => outline.child("each", worker.outline()),
            None => outline,
        };
        self.join.outline(outline)
    }
}

/// A branch and its end.
struct Task {
    name: String,
    workflow: BoxWorkflow,
    /// The fork, if the branch could not start yet.
    fork: Option<Session>,
    /// The fork's id, once the branch has started.
    session: Option<SessionId>,
    end: Option<BranchEnd>,
}

impl Task {
    fn added(name: String, item: Value, worker: &BoxWorkflow) -> Self {
        let workflow = BoxWorkflow::new(super::map::OnItem::new(item, worker.clone()));
        Self { name, workflow, fork: None, session: None, end: None }
    }

    fn branch(&self, session: Session, join: &Join) -> Branch {
        let (name, workflow) = (self.name.clone(), self.workflow.clone());
        Branch { name, session, workflow, validator: join.validator().cloned() }
    }
}

/// Adds a branch to the [`parallel`] step with [`discover`](Parallel::discover) that `session` is a branch of. The new
/// branch works on `item`, which [`item`](super::item) reads. It starts when the branch that adds it has succeeded. Nothing happens if
/// the step has a branch of this name.
pub fn add_branch<T: Serialize>(session: &mut Session, name: impl Into<String>, item: T) -> Result<()> {
    let item = serde_json::to_value(item).map_err(|why| ErrorKind::Workflow(why.into()))?;
    let added = json!([name.into(), item]).to_string();
    session.append(Sampled { what: ADDED.into(), value: added.into() }).map(drop)
}

/// The branches that a branch has added.
async fn added_by(branch: &Session) -> Result<Vec<(String, Value)>> {
    let mut added = Vec::new();
    for record in branch.own_records(&[Kind::Sampled]).await? {
        let Ok(Sampled { what, value }) = record.body() else { continue };
        if what == ADDED {
            let text = branch.view().await?.content(&value).await?;
            added.extend(serde_json::from_str::<(String, Value)>(&text));
        }
    }
    Ok(added)
}
