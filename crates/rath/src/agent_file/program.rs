//! The text that a run was started with, which its first record names.

use std::path::PathBuf;

use rath_core::{Blob, BoxWorkflow};

use super::{AgentSpec, Error, Resolver, RunFile};
use crate::agent::Agent;

/// The text that a run was started with.
#[derive(Clone, Debug)]
pub enum AgentProgram {
    /// One agent, in Markdown.
    Agent(Box<AgentSpec>),
    /// Several agents, in TOML.
    RunFile {
        /// The parsed file.
        file: Box<RunFile>,
        /// The text that was parsed.
        text: String,
    },
}

const MARKDOWN: &str = "text/markdown";
const TOML: &str = "application/toml";

impl AgentProgram {
    /// Parses a text. An agent in Markdown starts with front matter; any other text is a run file.
    pub fn parse(text: String) -> Result<Self, Error> {
        match text.trim_start_matches('\u{feff}').starts_with("---") {
            true => Ok(Self::Agent(Box::new(AgentSpec::from_markdown(&text)?))),
            false => Ok(Self::RunFile { file: Box::new(RunFile::parse(&text)?), text }),
        }
    }

    /// Converts the model names of a Markdown agent with `form`.
    #[must_use]
    pub fn with_models(self, form: impl Fn(String) -> String) -> Self {
        match self {
            Self::Agent(agent) => Self::Agent(Box::new(agent.with_models(form))),
            file @ Self::RunFile { .. } => file,
        }
    }

    /// The title of the session, if the text has one.
    pub fn title(&self) -> Option<String> {
        match self {
            Self::Agent(_) => None,
            Self::RunFile { file, .. } => file.title.clone(),
        }
    }

    /// The task, if the text has one.
    pub fn task(&self) -> Option<String> {
        match self {
            Self::Agent(_) => None,
            Self::RunFile { file, .. } => file.task.clone(),
        }
    }

    /// The directory that a run works in a copy of, relative to the file, if the text names one.
    pub fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::Agent(_) => None,
            Self::RunFile { file, .. } => file.directory.clone(),
        }
    }

    /// Whether the text has a workflow, instead of an agent that starts.
    pub fn has_workflow(&self) -> bool {
        match self {
            Self::Agent(_) => false,
            Self::RunFile { file, .. } => file.has_workflow(),
        }
    }

    /// The blob that a run stores, for [`RunOptions::program`](rath_core::RunOptions::program).
    pub fn blob(&self) -> Result<Blob, Error> {
        Ok(match self {
            Self::Agent(agent) => Blob::new(agent.to_markdown()?.into_bytes(), MARKDOWN),
            Self::RunFile { text, .. } => Blob::new(text.clone().into_bytes(), TOML),
        })
    }

    /// The agent that starts.
    pub fn agent<R: Resolver>(&self, resolver: &R) -> Result<Agent, R::Error> {
        match self {
            Self::Agent(agent) => agent.agent(resolver),
            Self::RunFile { file, .. } => file.agent(resolver),
        }
    }

    /// What a run executes: the workflow, or else the agent that starts.
    pub fn workflow<R: Resolver>(&self, resolver: &R) -> Result<BoxWorkflow, R::Error> {
        match self {
            Self::Agent(agent) => Ok(BoxWorkflow::new(agent.agent(resolver)?)),
            Self::RunFile { file, .. } => file.workflow(resolver),
        }
    }
}
