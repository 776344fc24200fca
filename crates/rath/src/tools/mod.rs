//! The built-in tools: files, commands, a to-do list, and questions to a person.
//!
//! File tools and `shell` work in the session's [`ToolWorkspace`]. [`coding`] returns the tools for writing code,
//! [`reading`] those that only read files.

mod asking;
mod background;
mod cut;
mod editing;
mod globbing;
mod grepping;
mod listing;
mod nearest;
mod old_remarks;
mod patch;
mod patching;
mod path_policy;
mod planning;
mod reading;
mod retained;
mod shelling;
mod tool_workspace;
mod truncated;
mod walk;
mod writing;

use rath_core::{BoxTool, IntoTools as _, Tool, ToolSpec};

pub use crate::toolkit::Resource;
pub use asking::ask_human;
pub(crate) use background::{DirtyCommands, describe_background};
pub use editing::edit;
pub use globbing::glob;
pub use grepping::grep;
pub use listing::ls;
pub use patching::apply_patch;
pub(crate) use path_policy::PathPolicy;
pub use planning::{Progress, Todo, todo};
pub use reading::read;
pub(crate) use retained::RetainedByCall;
pub use shelling::shell;
pub use tool_workspace::ToolWorkspace;
pub use writing::write;

/// All built-in tools except [`ask_human`].
pub fn coding() -> Vec<BoxTool> {
    (reading(), write, edit, apply_patch, shell, todo).into_tools()
}

/// The specification of the built-in tool `name`.
pub fn spec(name: &str) -> Option<&'static ToolSpec> {
    let all: [&'static dyn Tool; 10] =
        [&read, &ls, &glob, &grep, &write, &edit, &apply_patch, &shell, &todo, &ask_human];
    all.into_iter().map(Tool::spec).find(|spec| spec.name == name)
}

/// The tools that only read files.
pub fn reading() -> Vec<BoxTool> {
    (read, ls, glob, grep).into_tools()
}
