//! Tools that come with Rath: files, commands, a plan, a question to a person.
//!
//! Those that touch files work at the session's [`Desk`]. [`coding`] is all that a programmer needs, [`reading`] what
//! looks and changes nothing.

mod asking;
mod background;
mod cut;
mod desk;
mod editing;
mod globbing;
mod grepping;
mod kept;
mod listing;
mod nearest;
mod old_remarks;
mod patch;
mod patching;
mod permit;
mod planning;
mod reading;
mod shelling;
mod truncated;
mod walk;
mod writing;

use rath_core::{BoxTool, IntoTools as _, Tool, ToolSpec};

pub use crate::toolkit::State;
pub use asking::ask_human;
pub(crate) use background::{Busy, in_words};
pub use desk::Desk;
pub use editing::edit;
pub use globbing::glob;
pub use grepping::grep;
pub(crate) use kept::Kept;
pub use listing::ls;
pub use patching::apply_patch;
pub(crate) use permit::Permit;
pub use planning::{Progress, Todo, todo};
pub use reading::read;
pub use shelling::shell;
pub use writing::write;

/// All tools but the question to a person.
pub fn coding() -> Vec<BoxTool> {
    (reading(), write, edit, apply_patch, shell, todo).into_tools()
}

/// What is known of the built-in tool `name`.
pub fn spec(name: &str) -> Option<&'static ToolSpec> {
    let all: [&'static dyn Tool; 10] =
        [&read, &ls, &glob, &grep, &write, &edit, &apply_patch, &shell, &todo, &ask_human];
    all.into_iter().map(Tool::spec).find(|spec| spec.name == name)
}

/// The tools that look at files and change nothing.
pub fn reading() -> Vec<BoxTool> {
    (read, ls, glob, grep).into_tools()
}
