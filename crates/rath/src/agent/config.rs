//! An agent's configuration, which is stored once and named by its step. Its digest is the agent's fingerprint.

use rath_core::{Blob, Parameters, StandardView, ToolSpec};
use serde::{Deserialize, Serialize};

use super::policy::ToolDecisions;
use super::{Agent, ResolvedConfig};
use crate::policy::Policy;

/// An agent's configuration as read from a store: the parts that requests are made of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AgentConfig {
    /// The model's name.
    #[serde(default)]
    pub model: Option<String>,
    /// The prompt; empty if the agent has none.
    #[serde(default)]
    pub prompt: String,
    /// The context view, by name and version.
    #[serde(default = "whole")]
    pub view: String,
    /// The parameters of requests.
    #[serde(default)]
    pub parameters: Parameters,
    /// The tools that the model may call.
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

/// The configuration as it is written. The order of the fields is part of the stored bytes.
#[derive(Serialize)]
struct Config<'a> {
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prompt: &'a str,
    view: &'a str,
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "ToolDecisions::is_empty")]
    policy: &'a ToolDecisions,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a Policy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hands_off_to: Vec<&'a str>,
    tools: &'a [ToolSpec],
}

pub(super) fn resolve(agent: &Agent) -> ResolvedConfig {
    let mut specs: Vec<ToolSpec> = agent.tools.iter().map(|tool| tool.spec().clone()).collect();
    let mut parameters = agent.parameters.clone();
    let answer_tool = agent.output.as_ref().and_then(|output| {
        let support = agent.model.as_ref().map(|model| model.answer_schema_support()).unwrap_or_default();
        output.configure(support, &mut parameters, &mut specs)
    });
    let config = Config {
        agent: &agent.name,
        model: agent.model.as_ref().map(|model| model.name()),
        prompt: &agent.prompt,
        view: agent.view.name(),
        parameters: &parameters,
        policy: &agent.tool_decisions,
        rules: agent.policy.as_ref(),
        hands_off_to: agent.hand_offs.iter().map(|(name, _)| name.as_str()).collect(),
        tools: &specs,
    };
    // These types always serialize.
    let bytes = serde_json::to_vec(&config).unwrap_or_default();
    let blob = Blob::new(bytes, "application/json");
    ResolvedConfig { name: agent.name.as_str().into(), specs, parameters, answer_tool, blob }
}
