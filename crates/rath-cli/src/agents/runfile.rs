//! What `rath run` runs: agents, their tools and a scripted model, in one TOML text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rath::agent::{Agent, Budget};
use rath::{BoxModel, Scripted};
use serde::Deserialize;

use super::parts;

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
        let neither = "this is neither an agent (Markdown that begins with a line ---) nor a run file (TOML)";
        toml::from_str(text).context(neither)
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
            let is_group = ["coding", "reading"].contains(&tool.as_str());
            agent = match self.agents.get(tool).filter(|_| !is_group) {
                Some(sub) => {
                    let what = sub.description.clone().unwrap_or_else(|| format!("Asks agent {tool}."));
                    agent.tools(self.build(tool, model, depth + 1)?.as_tool(what))
                }
                None => parts::with_tool(agent, tool)?,
            };
        }
        parts::with_policy(agent, &table.ask, &table.deny)
    }
}
