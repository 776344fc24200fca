//! Agents as tools: each call works on a branch of the session, and the branch is merged when the call is over.
//!
//! Nothing here is special: a tool of a user can do the same with `#[tool(branches)]` and [`Call::branch`].

use std::sync::OnceLock;

use rath_core::body::Effect;
use rath_core::store::BoxFuture;
use rath_core::{
    BoxWorkflow, Call, PathArguments, Result, Session, StandardView, Tool, ToolOutcome, ToolSpec, Workflow,
};
use serde::Deserialize;
use serde_json::json;

use super::Agent;

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
        let agent = self.view(StandardView::LastAnswer);
        let config = serde_json::from_slice(&agent.sealed().blob.bytes).ok();
        SubAgent { agent: config, ..SubAgent::new(name, description, agent) }
    }
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
        self.spec.get_or_init(|| {
            let schema = json!({
                "type": "object",
                "properties": { "task": { "type": "string", "description": "What is to be done, with all it takes to do it." } },
                "required": ["task"],
                "additionalProperties": false,
            });
            ToolSpec {
                // Making it again goes on with its branch, where each call has a class of its own.
                effect: Effect::Idempotent,
                // The task is prose: each call that the agent makes is decided by its own paths.
                paths: PathArguments::named(""),
                branches: true,
                agent: self.agent.clone(),
                ..ToolSpec::new(&self.name, &self.description, schema)
            }
        })
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        let task = serde_json::from_str::<Task>(arguments);
        task.map(|_| ()).map_err(|why| format!("{} takes one argument, \"task\", a text: {why}", self.name))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let Ok(Task { task }) = serde_json::from_str(&call.arguments) else {
                return ToolOutcome::failed("The argument \"task\" is missing.");
            };
            let Some(branch) = call.branch() else {
                return ToolOutcome::failed("This tool works only in an agent.");
            };
            match self.work(branch, task).await {
                Ok((branch, text)) => ToolOutcome::done(text).with_branch(branch),
                Err(error) => error.into(),
            }
        })
    }
}
