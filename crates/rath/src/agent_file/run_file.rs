//! Run files: several agents, their tools, a workflow and a scripted model in one TOML text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rath_core::{BoxModel, BoxWorkflow};
use rath_model::Scripted;
use serde::Deserialize;

use super::{AgentSpec, Error, FileProblem, Resolver, ToolNames, workflow};
use crate::agent::Agent;

/// The largest depth of agents that call each other.
const DEEPEST: usize = 4;

/// A parsed run file.
#[derive(Clone, Debug, Deserialize)]
pub struct RunFile {
    /// The title of the session.
    #[serde(default)]
    pub title: Option<String>,
    /// The default task of the first agent.
    #[serde(default)]
    pub task: Option<String>,
    /// The agent that starts. Needed only if there are several agents.
    #[serde(default)]
    pub start: Option<String>,
    /// The directory that the run works in a copy of, relative to the run file.
    #[serde(default, rename = "in")]
    pub directory: Option<PathBuf>,
    /// The agents, by name. An agent's tools may name other agents.
    #[serde(default)]
    pub agents: BTreeMap<String, AgentSpec>,
    /// The workflow. [`workflow`] reads it from the text, which has the positions.
    #[serde(default, rename = "workflow")]
    tables: Option<toml::Value>,
    /// The text of the file.
    #[serde(skip)]
    text: String,
    /// The script of the scripted model, for agents without a model.
    #[serde(flatten)]
    script: toml::Table,
}

impl RunFile {
    /// Parses a run file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut file: Self = toml::from_str(text).map_err(|error| Error::NotAProgram(error.to_string()))?;
        for (name, spec) in &mut file.agents {
            spec.name.clone_from(name);
        }
        text.clone_into(&mut file.text);
        match (file.has_workflow(), &file.start) {
            (true, Some(_)) => return Err(Error::StartAndWorkflow),
            (true, None) => {
                let agents: Vec<&str> = file.agents.keys().map(String::as_str).collect();
                workflow::check(text, &agents).map_err(Error::Workflow)?;
            }
            (false, _) if file.agents.is_empty() => return Err(Error::NoAgents),
            (false, _) => {}
        }
        Ok(file)
    }

    /// All problems of a run file that can be found without models, with their positions.
    pub fn check<R: Resolver>(text: &str, resolver: &R) -> Vec<FileProblem>
    where
        R::Error: std::fmt::Display,
    {
        let file = match Self::parse(text) {
            Ok(file) => file,
            Err(Error::Workflow(problems)) => return problems,
            Err(error) => {
                let (span, problem) = match toml::from_str::<Self>(text) {
                    Err(error) => (error.span(), error.message().to_owned()),
                    Ok(_) => (None, error.to_string()),
                };
                return vec![FileProblem::at(text, &span.unwrap_or_default(), problem, None)];
            }
        };
        let mut problems = Vec::new();
        let script = file.script();
        for name in file.agents.keys() {
            let built = script
                .as_ref()
                .map_err(|error| error.to_string())
                .and_then(|script| file.build(name, script, resolver, 0).map_err(|error| error.to_string()));
            if let Err(why) = built {
                problems.push(FileProblem::at(text, &file.position_of(name), why, None));
            }
        }
        if problems.is_empty()
            && let Err(error) = file.workflow(resolver)
        {
            problems.push(FileProblem::at(text, &(0..0), error.to_string(), None));
        }
        problems
    }

    /// The position of an agent's table.
    fn position_of(&self, agent: &str) -> std::ops::Range<usize> {
        let Ok(file) = toml::de::DeTable::parse(&self.text) else { return 0..0 };
        let agents = file.get_ref().get("agents").and_then(|agents| agents.get_ref().as_table());
        let key = agents.and_then(|agents| agents.keys().find(|key| key.get_ref() == agent));
        key.map_or(0..0, toml::Spanned::span)
    }

    /// Whether the file has a workflow, instead of an agent that starts.
    pub fn has_workflow(&self) -> bool {
        self.tables.is_some()
    }

    /// The workflow: that of the file, or else the agent that starts.
    pub fn workflow<R: Resolver>(&self, resolver: &R) -> Result<BoxWorkflow, R::Error> {
        if !self.has_workflow() {
            return Ok(BoxWorkflow::new(self.agent(resolver)?));
        }
        let names: Vec<&str> = self.agents.keys().map(String::as_str).collect();
        let referenced = workflow::check(&self.text, &names).map_err(Error::Workflow)?;
        let script = self.script()?;
        let mut agents = BTreeMap::new();
        for name in referenced {
            let agent = self.build(&name, &script, resolver, 0)?;
            agents.insert(name, agent);
        }
        Ok(workflow::build(&self.text, &agents).map_err(Error::Workflow)?)
    }

    /// The agent that starts.
    pub fn agent<R: Resolver>(&self, resolver: &R) -> Result<Agent, R::Error> {
        if self.has_workflow() {
            return Err(Error::NotOneAgent.into());
        }
        let name = match (&self.start, self.agents.len()) {
            (Some(start), _) => start,
            (None, 1) => self.agents.keys().next().ok_or(Error::NoAgents)?,
            (None, _) => return Err(Error::NoStart(self.names()).into()),
        };
        self.build(name, &self.script()?, resolver, 0)
    }

    /// The scripted model.
    fn script(&self) -> Result<BoxModel, Error> {
        let script = toml::to_string(&self.script).map_err(|error| Error::Script(error.to_string()))?;
        Ok(Arc::new(Scripted::from_toml(&script).map_err(|error| Error::Script(error.to_string()))?))
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
