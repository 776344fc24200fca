//! An agent's configuration as its step names it: stored once, and the agent's fingerprint.

use rath_core::{Blob, Parameters, Rule, ToolSpec};
use serde::Serialize;

use super::policy::ByTool;
use super::{Agent, Sealed};
use crate::policy::Policy;

#[derive(Serialize)]
struct Config<'a> {
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prompt: &'a str,
    view: Rule,
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "ByTool::is_empty")]
    policy: &'a ByTool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a Policy>,
    tools: &'a [ToolSpec],
}

pub(super) fn seal(agent: &Agent) -> Sealed {
    let specs: Vec<ToolSpec> = agent.tools.iter().map(|tool| tool.spec().clone()).collect();
    let config = Config {
        agent: &agent.name,
        model: agent.model.as_ref().map(|model| model.name()),
        prompt: &agent.prompt,
        view: agent.rule,
        parameters: &agent.parameters,
        policy: &agent.by_tool,
        rules: agent.rules.as_ref(),
        tools: &specs,
    };
    // Our own plain types always serialise.
    let bytes = serde_json::to_vec(&config).unwrap_or_default();
    Sealed { name: agent.name.as_str().into(), blob: Blob::new(bytes, "application/json"), specs }
}
