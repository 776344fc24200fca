//! `ask_human`: a question to a person.

use rath_core::Reply;
use rath_macros::tool;
use serde_json::Value;

/// The name of [`ask_human`].
pub const ASK_HUMAN: &str = "ask_human";

/// Asks the person you work for, and waits for the answer. Ask when a decision is theirs, or when you cannot find out
/// by yourself.
#[tool(effect = "pure", paths = "")]
pub fn ask_human(
    /// What you want to know, with all that is needed to answer it.
    question: String,
) -> Reply {
    Reply::failed(format!("nobody is there to answer: {question}"))
}

/// The question in the arguments of [`ask_human`].
pub fn question_of(arguments: &str) -> Option<String> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    arguments["question"].as_str().map(str::to_owned)
}
