//! The tool `ask_human`.

use rath_core::ToolOutcome;
use rath_macros::tool;

/// Asks the person you work for, and waits for the answer. Ask when the decision is theirs, or when you cannot find the
/// answer yourself.
#[tool(effect = "pure", paths = "", asks)]
pub fn ask_human(
    /// The question, with everything needed to answer it.
    question: String,
) -> ToolOutcome {
    ToolOutcome::ask(question)
}
