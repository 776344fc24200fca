//! Agents as tools: each call works on a branch of the session, which is merged when the call ends.
//!
//! This uses only public API: other tools can do the same with `#[tool(branches)]` and [`Call::branch`].

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
    /// The agent's configuration, if the workflow is an agent.
    agent: Option<serde_json::Value>,
    spec: OnceLock<ToolSpec>,
}

#[derive(Deserialize)]
struct Task {
    task: String,
}

impl Agent {
    /// This agent as a tool for another agent. Each call works on a branch of the caller's session. The agent sees its
    /// task, not the caller's conversation. Its answer is the result; its file changes and its usage are merged. If the
    /// agent fails, its file changes stay on the branch. If they conflict with those of another call, the result lists
    /// the paths.
    pub fn as_tool(self, description: impl Into<String>) -> SubAgent {
        let name = self.name.clone();
        // The view shows the last message before the agent's step, which is the task.
        let agent = self.view(StandardView::LastAnswer);
        let config = serde_json::from_slice(&agent.resolved().blob.bytes).ok();
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
        // The task is the last message before the agent's step. Its view shows only this message.
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
                "properties": { "task": { "type": "string", "description": "The task, with all the information needed to do it." } },
                "required": ["task"],
                "additionalProperties": false,
            });
            ToolSpec {
                // A repeated call continues its branch, where each inner call has its own effect.
                effect: Effect::Idempotent,
                // The task is prose. The policy checks the paths of the inner calls.
                paths: PathArguments::named(""),
                branches: true,
                agent: self.agent.clone(),
                ..ToolSpec::new(&self.name, &self.description, schema)
            }
        })
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        let task = serde_json::from_str::<Task>(arguments);
        task.map(|_| ()).map_err(|why| format!("{} takes one string argument, \"task\": {why}", self.name))
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
