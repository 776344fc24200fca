//! Agent files: a Markdown file with front matter for one agent, or a TOML run file with several agents, a workflow
//! over them and a scripted model. Both are the text of an [`AgentProgram`], which is stored with the run, so that
//! resuming needs no file.
//!
//! An [`AgentSpec`] refers to models and tools by name, and a [`Resolver`] resolves the names. This module reads no
//! file, environment or home directory.
//!
//! ```
//! use rath::agent_file::{AgentSpec, Error, Resolver};
//! use rath::prelude::*;
//! use std::sync::Arc;
//!
//! struct Offline;
//! impl Resolver for Offline {
//!     type Error = Error;
//!     fn model(&self, name: &str, _fallback: &[String]) -> Result<rath::model::BoxModel, Error> {
//!         Ok(Arc::new(Scripted::new(name).say("Looks good.")))
//!     }
//! }
//!
//! let spec = AgentSpec::from_markdown("---\nname: reviewer\nmodel: m\ntools: reading\nbudget: 2usd, 50 turns\n---\nBe kind.")?;
//! let agent = spec.agent(&Offline)?;
//! assert_eq!(agent.name(), "reviewer");
//! # Ok::<(), Error>(())
//! ```

mod budget;
mod markdown;
mod problem;
mod program;
mod run_file;
mod spec;
mod workflow;

pub use budget::BadBudget;
pub use problem::FileProblem;
pub use program::AgentProgram;
pub use run_file::RunFile;
pub use spec::{AgentSpec, ContextChoice, ToolNames};

use rath_core::{BoxModel, BoxTool, IntoTools as _};

use crate::tools;

/// Resolves the names of models and tools in an agent file.
pub trait Resolver {
    /// The error when a tool or a model cannot be provided.
    type Error: From<Error>;

    /// The model of this name. If it fails, the fallback models are tried in order.
    fn model(&self, name: &str, fallback: &[String]) -> Result<BoxModel, Self::Error>;

    /// The tool or group of tools of this name. By default the built-in ones.
    fn tools(&self, name: &str) -> Result<Vec<BoxTool>, Self::Error> {
        built_in(name).ok_or_else(|| unknown_tool(name).into())
    }
}

/// The built-in tool or group of tools with this name.
pub fn built_in(name: &str) -> Option<Vec<BoxTool>> {
    match name {
        "coding" => Some(tools::coding().into_tools()),
        "reading" => Some(tools::reading().into_tools()),
        other => {
            let tool = all().into_iter().find(|tool| tool.spec().name == other)?;
            Some(vec![tool])
        }
    }
}

fn all() -> Vec<BoxTool> {
    (tools::coding(), tools::ask_human).into_tools()
}

fn unknown_tool(name: &str) -> Error {
    let known: Vec<_> = all().iter().map(|tool| tool.spec().name.clone()).collect();
    Error::UnknownTool { name: name.to_owned(), known: known.join(", ") }
}

/// An error in an agent file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is too long.
    #[error("the agent file is too long: {bytes} bytes, at most {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The largest accepted length in bytes.
        limit: usize,
    },
    /// The Markdown file has no front matter.
    #[error("missing front matter: an agent file starts with a line ---, `name: …`, and a line ---")]
    NoFrontMatter,
    /// The front matter is not YAML, or has unknown fields.
    #[error(
        "invalid front matter (the fields are name, description, model, fallback, tools, ask, deny, view, output, budget, \
         max_tokens, temperature, effort): {0}"
    )]
    FrontMatter(String),
    /// The text is neither an agent nor a run file.
    #[error("neither an agent file (Markdown that starts with a line ---) nor a run file (TOML): {0}")]
    NotAProgram(String),
    /// The agent has no name.
    #[error("the agent has no name: add `name: …` to the front matter")]
    NoName,
    /// The name has several lines, or is too long.
    #[error("an agent's name must be one line of at most {0} characters")]
    BadName(usize),
    /// The temperature is out of range.
    #[error("the temperature must be from 0 to 10, usually from 0 to 1")]
    BadTemperature,
    /// The budget is malformed.
    #[error(transparent)]
    Budget(#[from] BadBudget),
    /// The schema of the agent's output cannot be used.
    #[error("`output`: {0}")]
    Output(String),
    /// The agent names no model.
    #[error("the agent has no model")]
    NoModel,
    /// The name is neither a tool nor an agent.
    #[error("unknown tool or agent {name:?}; the tools are: coding, reading, {known}")]
    UnknownTool {
        /// The name as the file spells it.
        name: String,
        /// The built-in tools.
        known: String,
    },
    /// `ask` or `deny` names a tool that the agent does not have.
    #[error("`ask` or `deny` names {tool:?}, which agent {agent} does not have; its tools are: {known}")]
    NotItsTool {
        /// The agent with the rule.
        agent: String,
        /// The tool that the rule names.
        tool: String,
        /// The agent's tools.
        known: String,
    },
    /// The run file has no agents.
    #[error("the run file has no agents")]
    NoAgents,
    /// The run file has several agents and no `start`.
    #[error("several agents and no start: set `start` to one of {0}")]
    NoStart(String),
    /// The run file has no agent of this name.
    #[error("unknown agent {name:?}; the agents are: {known}")]
    UnknownAgent {
        /// The name as it was given.
        name: String,
        /// The agents.
        known: String,
    },
    /// The agents call each other in a cycle.
    #[error("agents call each other more than {deepest} levels deep: {name} is in a cycle")]
    Circle {
        /// The agent.
        name: String,
        /// The largest depth.
        deepest: usize,
    },
    /// The run file has a workflow and names an agent that starts.
    #[error("the run file has both a [workflow] and `start`: remove one of them")]
    StartAndWorkflow,
    /// The run file has a workflow, so it is not the file of one agent.
    #[error("the run file has a [workflow]: it is not one agent")]
    NotOneAgent,
    /// The `[workflow]` tables have errors.
    #[error("invalid workflow: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Workflow(Vec<FileProblem>),
    /// The script of the scripted model is malformed.
    #[error("script of the scripted model: {0}")]
    Script(String),
}
