//! Several agents, their tools and a scripted model, in one TOML text.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::BoxModel;
use rath_model::Scripted;
use serde::Deserialize;

use super::{AgentSpec, Error, Resolver, ToolNames};
use crate::agent::Agent;

/// How deep agents may call each other.
const DEEPEST: usize = 4;

/// A run, as a file describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct RunFile {
    /// What the session is about.
    #[serde(default)]
    pub title: Option<String>,
    /// What the first agent is asked, if nothing else is.
    #[serde(default)]
    pub task: Option<String>,
    /// The agent that begins; the only one if absent.
    #[serde(default)]
    pub start: Option<String>,
    /// The agents, by name. An agent's tools may name other agents.
    pub agents: BTreeMap<String, AgentSpec>,
    /// The script of the model of agents that name none.
    #[serde(flatten)]
    script: toml::Table,
}

impl RunFile {
    /// Reads the text of a run file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut file: Self = toml::from_str(text).map_err(|error| Error::NotAProgram(error.to_string()))?;
        for (name, spec) in &mut file.agents {
            spec.name.clone_from(name);
        }
        Ok(file)
    }

    /// The agent that begins.
    pub fn agent<R: Resolver>(&self, resolver: &R) -> Result<Agent, R::Error> {
        let name = match (&self.start, self.agents.len()) {
            (Some(start), _) => start,
            (None, 1) => self.agents.keys().next().ok_or(Error::NoAgents)?,
            (None, _) => return Err(Error::NoStart(self.names()).into()),
        };
        let script = toml::to_string(&self.script).map_err(|error| Error::Script(error.to_string()))?;
        let model: BoxModel = Arc::new(Scripted::from_toml(&script).map_err(|error| Error::Script(error.to_string()))?);
        self.build(name, &model, resolver, 0)
    }

    fn names(&self) -> String {
        self.agents.keys().cloned().collect::<Vec<_>>().join(", ")
    }

    fn build<R: Resolver>(&self, name: &str, script: &BoxModel, resolver: &R, depth: usize) -> Result<Agent, R::Error> {
        let unknown = || Error::UnknownAgent { name: name.to_owned(), known: self.names() };
        let spec = self.agents.get(name).ok_or_else(unknown)?;
        if depth >= DEEPEST {
            return Err(Error::Circle { name: name.to_owned(), deepest: DEEPEST }.into());
        }
        let model = match &spec.model {
            Some(model) => resolver.model(model, &spec.fallback)?,
            None => script.clone(),
        };
        let mut agent = spec.without_tools(model)?;
        for tool in spec.tools.iter().flat_map(ToolNames::names) {
            let is_group = ["coding", "reading"].contains(&tool);
            agent = match self.agents.get(tool).filter(|_| !is_group) {
                Some(sub) => {
                    let what = sub.description.clone().unwrap_or_else(|| format!("Asks agent {tool}."));
                    agent.tools(self.build(tool, script, resolver, depth + 1)?.as_tool(what))
                }
                None => agent.tools(resolver.tools(tool)?),
            };
        }
        Ok(spec.with_decisions(agent)?)
    }
}
