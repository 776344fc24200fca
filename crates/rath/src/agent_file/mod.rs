//! Agents as people write them: a Markdown file with front matter, or a TOML run file with several agents and the script of a
//! model. Either is the text of a [`Program`], which is stored with the run, so that a resumed run needs no file.
//!
//! An [`AgentSpec`] says what an agent is made of by name; a [`Resolver`] says what the names mean. This module reads no
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
//!     fn model(&self, name: &str, _fallback: &[String]) -> Result<rath::BoxModel, Error> {
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
mod program;
mod run_file;
mod spec;

pub use budget::BadBudget;
pub use program::Program;
pub use run_file::RunFile;
pub use spec::{AgentSpec, ContextChoice, ToolNames};

use rath_core::{BoxModel, BoxTool, IntoTools as _};

use crate::tools;

/// What the names in an agent's description mean.
pub trait Resolver {
    /// What it fails with.
    type Error: From<Error>;

    /// The model of this name; those of the other names are asked if it does not answer, in this order.
    fn model(&self, name: &str, fallback: &[String]) -> Result<BoxModel, Self::Error>;

    /// The tools of this name: one, or a group. By default the built-in ones.
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

/// Why a text does not describe an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is too long.
    #[error("this is too long for an agent: {bytes} bytes, at most {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A Markdown file without front matter.
    #[error("an agent's file begins with front matter: a line ---, `name: …`, and a line ---")]
    NoFrontMatter,
    /// Front matter that is not YAML, or has unknown fields.
    #[error(
        "the front matter cannot be read (name, description, model, fallback, tools, ask, deny, view, budget, max_tokens, \
         temperature, effort): {0}"
    )]
    FrontMatter(String),
    /// A text that is neither an agent nor a run file.
    #[error("this is neither an agent (Markdown that begins with a line ---) nor a run file (TOML): {0}")]
    NotAProgram(String),
    /// An agent without a name.
    #[error("an agent has a name: `name: …` in the front matter")]
    NoName,
    /// A name of several lines, or a long one.
    #[error("an agent's name is one line of at most {0} characters")]
    BadName(usize),
    /// An impossible temperature.
    #[error("a temperature is a number from 0 on: mostly 0 to 1")]
    BadTemperature,
    /// A budget that cannot be read.
    #[error(transparent)]
    Budget(#[from] BadBudget),
    /// An agent without a model.
    #[error("the agent has no model")]
    NoModel,
    /// A name that is neither a tool nor an agent.
    #[error("there is no tool or agent {name:?}; there are: coding, reading, {known}")]
    UnknownTool {
        /// The name.
        name: String,
        /// The built-in tools.
        known: String,
    },
    /// `ask` or `deny` names a tool that the agent does not have.
    #[error("agent {agent} has no tool {tool:?} to ask about or to deny; it has: {known}")]
    NotItsTool {
        /// The agent.
        agent: String,
        /// The tool.
        tool: String,
        /// The agent's tools.
        known: String,
    },
    /// A run file without agents.
    #[error("there is no agent")]
    NoAgents,
    /// A run file with several agents that does not say which starts.
    #[error("say which agent begins: start = \"…\", one of {0}")]
    NoStart(String),
    /// A run file that has no agent of this name.
    #[error("there is no agent {name:?}: {known}")]
    UnknownAgent {
        /// The name.
        name: String,
        /// The agents.
        known: String,
    },
    /// Agents that call each other in a circle.
    #[error("agents call each other more than {deepest} deep: {name} is in a circle")]
    Circle {
        /// The agent.
        name: String,
        /// How deep they may.
        deepest: usize,
    },
    /// A script that cannot be read.
    #[error("the script of the model: {0}")]
    Script(String),
}
