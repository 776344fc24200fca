//! What a run is made of, as its first record names it.

use anyhow::{Context as _, Result};
use rath::{Agent, Blob, BoxModel};

use super::{AgentFile, RunFile};

/// The text of a run.
pub(crate) enum Program {
    Agent(Box<AgentFile>),
    File { file: Box<RunFile>, text: String },
}

const MARKDOWN: &str = "text/markdown";
const TOML: &str = "application/toml";

impl Program {
    /// Reads a text: an agent begins with front matter.
    pub(crate) fn parse(text: String) -> Result<Self> {
        match text.trim_start_matches('\u{feff}').starts_with("---") {
            true => Ok(Self::Agent(Box::new(AgentFile::parse(&text)?))),
            false => Ok(Self::File { file: Box::new(RunFile::parse(&text)?), text }),
        }
    }

    /// With the names of its models in another form.
    pub(crate) fn with_models(self, form: impl Fn(String) -> String) -> Self {
        match self {
            Program::Agent(agent) => Self::Agent(Box::new(agent.with_models(form))),
            file @ Program::File { .. } => file,
        }
    }

    /// What the session is about, where the text says so.
    pub(crate) fn title(&self) -> Option<String> {
        match self {
            Program::Agent(_) => None,
            Program::File { file, .. } => file.title.clone(),
        }
    }

    /// What is to be done, where the text says so.
    pub(crate) fn task(&self) -> Option<String> {
        match self {
            Program::Agent(_) => None,
            Program::File { file, .. } => file.task.clone(),
        }
    }

    /// As it is stored.
    pub(crate) fn blob(&self) -> Result<Blob> {
        Ok(match self {
            Program::Agent(agent) => Blob::new(agent.text()?.into_bytes(), MARKDOWN),
            Program::File { text, .. } => Blob::new(text.clone().into_bytes(), TOML),
        })
    }

    /// The agent that begins. `model` makes the client of a model by its name, and of those that are asked after it.
    pub(crate) fn agent(&self, model: impl FnOnce(&str, &[String]) -> Result<BoxModel>) -> Result<Agent> {
        match self {
            Program::Agent(agent) => {
                let name = agent.model.as_deref().context("the agent has no model")?;
                agent.agent(model(name, &agent.fallback)?)
            }
            Program::File { file, .. } => file.agent(),
        }
    }
}
