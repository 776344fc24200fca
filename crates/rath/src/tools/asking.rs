//! `ask_human`: a question to a person.

use rath_core::ToolOutcome;
use rath_macros::tool;

/// Asks the person you work for, and waits for the answer. Ask when a decision is theirs, or when you cannot find out
/// by yourself.
#[tool(effect = "pure", paths = "", asks)]
pub fn ask_human(
    /// What you want to know, with all that is needed to answer it.
    question: String,
) -> ToolOutcome {
    ToolOutcome::ask(question)
}
