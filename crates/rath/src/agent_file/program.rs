//! What a run is made of, as its first record names it.

use rath_core::Blob;

use super::{AgentSpec, Error, Resolver, RunFile};
use crate::agent::Agent;

/// The text of a run.
#[derive(Clone, Debug)]
pub enum Program {
    /// One agent, in Markdown.
    Agent(Box<AgentSpec>),
    /// A run file.
    RunFile {
        /// What it says.
        file: Box<RunFile>,
        /// Its text.
        text: String,
    },
}

const MARKDOWN: &str = "text/markdown";
const TOML: &str = "application/toml";

impl Program {
    /// Reads a text: an agent in Markdown begins with front matter, anything else is a run file.
    pub fn parse(text: String) -> Result<Self, Error> {
        match text.trim_start_matches('\u{feff}').starts_with("---") {
            true => Ok(Self::Agent(Box::new(AgentSpec::from_markdown(&text)?))),
            false => Ok(Self::RunFile { file: Box::new(RunFile::parse(&text)?), text }),
        }
    }

    /// The same, with the names of an agent's models in another form.
    #[must_use]
    pub fn with_models(self, form: impl Fn(String) -> String) -> Self {
        match self {
            Self::Agent(agent) => Self::Agent(Box::new(agent.with_models(form))),
            file @ Self::RunFile { .. } => file,
        }
    }

    /// What the session is about, if the text says so.
    pub fn title(&self) -> Option<String> {
        match self {
            Self::Agent(_) => None,
            Self::RunFile { file, .. } => file.title.clone(),
        }
    }

    /// What is to be done, if the text says so.
    pub fn task(&self) -> Option<String> {
        match self {
            Self::Agent(_) => None,
            Self::RunFile { file, .. } => file.task.clone(),
        }
    }

    /// The blob that a run stores: [`Conditions::program`](rath_core::Conditions::program).
    pub fn blob(&self) -> Result<Blob, Error> {
        Ok(match self {
            Self::Agent(agent) => Blob::new(agent.to_markdown()?.into_bytes(), MARKDOWN),
            Self::RunFile { text, .. } => Blob::new(text.clone().into_bytes(), TOML),
        })
    }

    /// The agent that begins.
    pub fn agent<R: Resolver>(&self, resolver: &R) -> Result<Agent, R::Error> {
        match self {
            Self::Agent(agent) => agent.agent(resolver),
            Self::RunFile { file, .. } => file.agent(resolver),
        }
    }
}
