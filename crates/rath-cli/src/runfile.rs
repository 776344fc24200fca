//! What `rath run` runs: agents, their tools and a scripted model, in one TOML text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rath::agent::{Agent, Budget, Decision};
use rath::{BoxModel, BoxTool, IntoTools as _, Scripted, tools};
use serde::Deserialize;

/// How deep agents may call each other.
const DEEPEST: usize = 4;

/// A run, as a file describes it.
#[derive(Deserialize)]
pub(crate) struct RunFile {
    /// What the session is about.
    #[serde(default)]
    pub(crate) title: Option<String>,
    /// What the first agent is asked, where the command line does not say.
    #[serde(default)]
    pub(crate) task: Option<String>,
    /// The agent that begins; the only one if absent.
    #[serde(default)]
    start: Option<String>,
    /// The agents, by name.
    agents: BTreeMap<String, AgentTable>,
    /// The script of the model.
    #[serde(flatten)]
    script: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    #[serde(default)]
    prompt: String,
    /// What it is for, to agents that call it.
    #[serde(default)]
    description: Option<String>,
    /// Names of tools or of other agents; `coding` and `reading` are groups.
    #[serde(default)]
    tools: Vec<String>,
    /// Tools that a person is asked about.
    #[serde(default)]
    ask: Vec<String>,
    /// Tools that are refused, and why.
    #[serde(default)]
    deny: BTreeMap<String, String>,
    /// The most turns it may take.
    #[serde(default)]
    turns: Option<u64>,
    #[serde(default)]
    tokens: Option<u64>,
    #[serde(default)]
    seconds: Option<f64>,
}

impl RunFile {
    /// Reads the text of a run.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("this is not a run file")
    }

    /// The agent that begins.
    pub(crate) fn agent(&self) -> Result<Agent> {
        let names = || self.agents.keys().cloned().collect::<Vec<_>>().join(", ");
        let name = match (&self.start, self.agents.len()) {
            (Some(start), _) => start,
            (None, 1) => self.agents.keys().next().context("there is no agent")?,
            (None, _) => bail!("say which agent begins: start = \"…\", one of {}", names()),
        };
        let script = toml::to_string(&self.script).context("the script cannot be read")?;
        let model: BoxModel = Arc::new(Scripted::from_toml(&script).context("the script of the model")?);
        self.build(name, &model, 0)
    }

    fn build(&self, name: &str, model: &BoxModel, depth: usize) -> Result<Agent> {
        let known = || self.agents.keys().cloned().collect::<Vec<_>>().join(", ");
        let table = self.agents.get(name).with_context(|| format!("there is no agent {name:?}: {}", known()))?;
        if depth >= DEEPEST {
            bail!("agents call each other more than {DEEPEST} deep: {name} is in a circle");
        }
        let budget = Budget {
            turns: table.turns.or(Budget::default().turns),
            tokens: table.tokens,
            wall_time: table.seconds.map(Duration::from_secs_f64),
            ..Budget::default()
        };
        let mut agent = Agent::new(name).prompt(&table.prompt).shared_model(model.clone()).budget(budget);
        for tool in &table.tools {
            agent = match tool.as_str() {
                "coding" => agent.tools(tools::coding()),
                "reading" => agent.tools(tools::reading()),
                other => match self.agents.get(other) {
                    Some(sub) => {
                        let what = sub.description.clone().unwrap_or_else(|| format!("Asks agent {other}."));
                        agent.tools(self.build(other, model, depth + 1)?.as_tool(what))
                    }
                    None => agent.tools(vec![built_in(other)?]),
                },
            };
        }
        let known: Vec<_> = agent.tool_names().map(str::to_owned).collect();
        if let Some(tool) = table.ask.iter().chain(table.deny.keys()).find(|tool| !known.contains(tool)) {
            bail!("agent {name} has no tool {tool:?} to ask about or to deny; it has: {}", known.join(", "));
        }
        for tool in &table.ask {
            agent = agent.policy(tool, Decision::Ask);
        }
        for (tool, why) in &table.deny {
            agent = agent.policy(tool, Decision::Deny(why.clone()));
        }
        Ok(agent)
    }
}

fn built_in(name: &str) -> Result<BoxTool> {
    let all = (tools::coding(), tools::ask_human).into_tools();
    let names = || all.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|tool| tool.spec().name == name).cloned();
    found.with_context(|| format!("there is no tool or agent {name:?}; there are: coding, reading, {}", names()))
}
