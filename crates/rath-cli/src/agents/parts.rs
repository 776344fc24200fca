//! What both kinds of files say of an agent.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use rath::agent::{Agent, Decision};
use rath::{BoxTool, IntoTools as _, tools};

/// Gives an agent a built-in tool, or a group of them.
pub(super) fn with_tool(agent: Agent, name: &str) -> Result<Agent> {
    Ok(match name {
        "coding" => agent.tools(tools::coding()),
        "reading" => agent.tools(tools::reading()),
        other => agent.tools(vec![built_in(other)?]),
    })
}

fn built_in(name: &str) -> Result<BoxTool> {
    let all = (tools::coding(), tools::ask_human).into_tools();
    let names = || all.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|tool| tool.spec().name == name).cloned();
    found.with_context(|| format!("there is no tool or agent {name:?}; there are: coding, reading, {}", names()))
}

/// Has a person asked about some tools, and refuses others.
pub(super) fn with_policy(mut agent: Agent, ask: &[String], deny: &BTreeMap<String, String>) -> Result<Agent> {
    let known: Vec<_> = agent.tool_names().map(str::to_owned).collect();
    if let Some(tool) = ask.iter().chain(deny.keys()).find(|tool| !known.contains(tool)) {
        let (name, known) = (agent.name(), known.join(", "));
        bail!("agent {name} has no tool {tool:?} to ask about or to deny; it has: {known}");
    }
    for tool in ask {
        agent = agent.policy(tool, Decision::Ask);
    }
    for (tool, why) in deny {
        agent = agent.policy(tool, Decision::Deny(why.clone()));
    }
    Ok(agent)
}
