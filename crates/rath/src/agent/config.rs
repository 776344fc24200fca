//! An agent's configuration as its step names it: stored once, and the agent's fingerprint.

use rath_core::{Blob, Parameters, StandardView, ToolSpec};
use serde::{Deserialize, Serialize};

use super::policy::ByTool;
use super::{Agent, Sealed};
use crate::policy::Policy;

/// An agent's configuration as it is read from a store: as much of it as requests are made of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AgentConfig {
    /// The model's name.
    #[serde(default)]
    pub model: Option<String>,
    /// The prompt.
    #[serde(default)]
    pub prompt: String,
    /// The context view, by name and version.
    #[serde(default = "whole")]
    pub view: String,
    /// What is asked of the model besides.
    #[serde(default)]
    pub parameters: Parameters,
    /// The tools.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
}

fn whole() -> String {
    StandardView::Whole.to_string()
}

impl AgentConfig {
    /// Reads the blob that a `step_entered` names; `None` if it is not a configuration.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// The same, as it is written. The order of the fields is stored.
#[derive(Serialize)]
struct Config<'a> {
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prompt: &'a str,
    view: &'a str,
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "ByTool::is_empty")]
    policy: &'a ByTool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a Policy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hands_off_to: Vec<&'a str>,
    tools: &'a [ToolSpec],
}

pub(super) fn seal(agent: &Agent) -> Sealed {
    let specs: Vec<ToolSpec> = agent.tools.iter().map(|tool| tool.spec().clone()).collect();
    let config = Config {
        agent: &agent.name,
        model: agent.model.as_ref().map(|model| model.name()),
        prompt: &agent.prompt,
        view: agent.view.name(),
        parameters: &agent.parameters,
        policy: &agent.by_tool,
        rules: agent.rules.as_ref(),
        hands_off_to: agent.hand_offs.iter().map(|(name, _)| name.as_str()).collect(),
        tools: &specs,
    };
    // Our own plain types always serialise.
    let bytes = serde_json::to_vec(&config).unwrap_or_default();
    Sealed { name: agent.name.as_str().into(), blob: Blob::new(bytes, "application/json"), specs }
}
