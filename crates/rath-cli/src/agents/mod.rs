//! Agents as people write them: a Markdown file with front matter ([`AgentFile`]), or a TOML file with several agents and
//! the script of a model ([`RunFile`]). Either is the text of a [`Program`], which is stored with the run.

mod agentfile;
mod budget;
mod parts;
mod program;
mod runfile;

pub(crate) use agentfile::{AgentFile, Given};
pub(crate) use budget::parse as parse_budget;
pub(crate) use program::Program;
pub(crate) use runfile::RunFile;
