//! Agents as tools: each call works on a branch of the session, and the branch is taken in when it is done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rath_core::body::{CallOutcome, Effect, ToolFinished};
use rath_core::store::BoxFuture;
use rath_core::{
    BoxWorkflow, Call, Error, ErrorKind, OpenCall, Reply, Result, Rule, Session, Tool, ToolSpec, Touches, Workflow,
};
use serde::Deserialize;
use serde_json::json;

use super::Agent;
use super::brought::Brought;
use super::drive::Bench;
use super::plan::Plan;
use super::round::Job;
use crate::Workshop;

/// A branch of the session that a call works on. The tool takes it and gives it back.
pub(crate) struct Branch {
    session: Mutex<Option<Session>>,
    waits: AtomicBool,
    /// An error that leaves the run open: a store that fails, code that diverged.
    left_open: Mutex<Option<Error>>,
}

impl Branch {
    pub(super) fn new(session: Session) -> Self {
        Self { session: Mutex::new(Some(session)), waits: AtomicBool::new(false), left_open: Mutex::new(None) }
    }

    pub(super) fn take_back(&self) -> Option<Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn left_open(&self) -> Option<Error> {
        self.left_open.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the work on it waits for a person.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    fn give(&self, session: Session) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }
}

/// A workflow that a model can call: see [`Agent::as_tool`].
pub struct SubAgent {
    workflow: BoxWorkflow,
    name: String,
    description: String,
    /// The agent's configuration, if it is one.
    agent: Option<serde_json::Value>,
    spec: OnceLock<ToolSpec>,
}

#[derive(Deserialize)]
struct Task {
    task: String,
}

impl Agent {
    /// This agent as a tool for another one. Each call works on a branch of the caller's session: the agent sees the
    /// task it is given, not the caller's conversation; its files and its usage come back with its answer. Where it fails,
    /// its files stay on the branch. Where they do not fit to what another call made of them, its result says so.
    pub fn as_tool(self, description: impl Into<String>) -> SubAgent {
        let name = self.name.clone();
        // The task is the last thing said before the agent's step.
        let agent = self.view(Rule::LastAnswer);
        let config = serde_json::from_slice(&agent.sealed().blob.bytes).ok();
        SubAgent { agent: config, ..SubAgent::new(name, description, agent) }
    }

    /// The branch for a call: the one it had before a crash, or a new one.
    pub(super) async fn branch_for(&self, session: &mut Session, bench: &Bench, call: &OpenCall) -> Result<Session> {
        let (why, name) = (format!("call {} of {}", call.id, call.tool), name_of(call));
        let workshop = bench.equipment.get::<Workshop>().ok().filter(|_| session.state().placement.is_some());
        match workshop {
            Some(workshop) => {
                let forked = workshop.fork_for_call(session, why, &name).await;
                forked.map_err(super::call::of_workshop)
            }
            None => Ok(session.fork_for_call(why, &name)),
        }
    }

    /// Takes in the branches that calls worked on: files and usage, not their conversations. Returns what is to be told
    /// about the files of each.
    pub(super) async fn take_in(
        &self,
        session: &mut Session,
        jobs: &[Job],
        branches: Vec<(usize, Session)>,
    ) -> Result<Vec<Brought>> {
        let mut branches = branches;
        // Branches of calls that ended before a crash. What was taken in then is closed.
        for (at, job) in jobs.iter().enumerate() {
            let branching = self.tools.iter().any(|tool| tool.spec().name == job.call.tool && tool.spec().branches);
            if branching && matches!(job.plan, Plan::Report(..)) {
                let left = session.branch_of_call(&name_of(&job.call)).await?;
                if let Some(left) = left.filter(|left| !branches.iter().any(|(_, branch)| branch.id() == left.id())) {
                    branches.push((at, left));
                }
            }
        }
        // In call order, whichever ended first.
        branches.sort_by_key(|(at, _)| *at);
        let mut brought = Vec::with_capacity(branches.len());
        for (at, branch) in &branches {
            let failed = matches!(jobs[*at].plan, Plan::Report(_, true));
            brought.push(Brought::of(*at, branch, failed).await?);
        }
        let branches = branches.into_iter().map(|(_, branch)| branch);
        let mut branches: Vec<Session> = branches.filter(|branch| !branch.state().closed).collect();
        for branch in &mut branches {
            branch.cancel("the call that it was made for is over")?;
        }
        if !branches.is_empty() {
            let without_files = brought.iter().filter_map(Brought::without_files).collect();
            session.take_in(branches, without_files).await?;
        }
        Ok(brought)
    }
}

/// A name for a call that no other call of the session has, whatever ids a provider gives.
fn name_of(call: &OpenCall) -> String {
    format!("{}/{}", call.record.short(), call.id)
}

/// Gives up the branches of open calls: those that wait in this process, and those that an earlier one left.
pub(super) fn give_up<'a>(
    session: &'a mut Session,
    mut waiting: HashMap<String, Session>,
    why: &'a str,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for call in session.pending().calls {
            let branch = match waiting.remove(&call.id) {
                Some(branch) => Some(branch),
                None => session.branch_of_call(&name_of(&call)).await?,
            };
            let Some(mut branch) = branch.filter(|branch| !branch.state().closed) else { continue };
            give_up(&mut branch, HashMap::new(), why).await?;
            branch.cancel(why)?;
            branch.publish().await?;
            if call.started.is_some() && call.finished.is_none() {
                let mut finished = ToolFinished::new(&call.id, CallOutcome::Cancelled);
                finished.remarks.push("the run was stopped, and the work on its branch was given up".into());
                session.append(finished)?;
            }
        }
        Ok(())
    })
}

impl SubAgent {
    /// A workflow as a tool called `name`.
    pub fn new(name: impl Into<String>, description: impl Into<String>, workflow: impl Workflow + 'static) -> Self {
        Self {
            workflow: BoxWorkflow::new(workflow),
            name: name.into(),
            description: description.into(),
            agent: None,
            spec: OnceLock::new(),
        }
    }

    async fn work(&self, mut session: Session, task: String) -> Result<(Session, String)> {
        // The task is the last thing said before the agent's step: its agent sees it, and nothing before it.
        let workflow = self.workflow.clone();
        session = session
            .step(&self.name, async move |mut session: Session| {
                if let Err(error) = session.user(task) {
                    return Err(error.with_sessions(vec![session]));
                }
                workflow.forward(session).await
            })
            .await?;
        match session.text().await {
            Ok(text) => Ok((session, text.unwrap_or_default())),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}

impl Tool for SubAgent {
    fn spec(&self) -> &ToolSpec {
        self.spec.get_or_init(|| ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            schema: json!({
                "type": "object",
                "properties": { "task": { "type": "string", "description": "What is to be done, with all it takes to do it." } },
                "required": ["task"],
                "additionalProperties": false,
            }),
            // Making it again goes on with its branch, where each call has a class of its own.
            effect: Effect::Idempotent,
            touches: Touches::Nothing,
            branches: true,
            timeout: None,
            agent: self.agent.clone(),
        })
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        let task = serde_json::from_str::<Task>(arguments);
        task.map(|_| ()).map_err(|why| format!("{} takes one argument, \"task\", a text: {why}", self.name))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let Ok(Task { task }) = serde_json::from_str(&call.arguments) else {
                return Reply::failed("The argument \"task\" is missing.");
            };
            let Ok(lent) = call.get::<Branch>() else {
                return Reply::failed("This tool works only in an agent.");
            };
            let Some(mut session) = lent.take_back() else {
                return Reply::failed("The branch for this call is gone.");
            };
            session.stop_with(call.cancel.clone());
            match self.work(session, task).await {
                Ok((session, text)) => {
                    lent.give(session);
                    Reply::done(text)
                }
                Err(error) => {
                    // The call is not over: the whole run waits, and comes back to it.
                    lent.waits.store(matches!(error.kind(), ErrorKind::Waiting(_)), Ordering::Release);
                    let text = format!("It failed: {}", error);
                    if error.leaves_the_run_open() && !lent.waits() {
                        *lent.left_open.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return Reply::failed(text);
                    }
                    if let Some(session) = error.into_sessions().into_iter().next() {
                        lent.give(session);
                    }
                    Reply::failed(text)
                }
            }
        })
    }
}
