//! What an answer from code is given.

use rath_core::body::{Block, ToolResult};
use rath_core::{Content, Message, Said, Shown, ToolChoice};

/// What the model is shown, for an answer from code. The same on a resumed session as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The agent that asks.
    pub agent: String,
    /// Its prompt.
    pub prompt: String,
    /// The names of the tools it may call.
    pub tools: Vec<String>,
    /// Whether the model may or must call a tool.
    pub tool_choice: Option<ToolChoice>,
    /// How many turns the model has had in this step.
    pub turn: u64,
    /// Counts how often this turn was asked for. The first is 1.
    pub attempt: u32,
    /// The words of the youngest message; empty when nothing was said.
    pub latest: String,
}

impl Seen {
    pub(super) fn new(shown: &Shown<'_>, latest: String) -> Self {
        Self {
            agent: shown.agent.into(),
            prompt: shown.prompt.into(),
            tools: shown.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_choice: shown.parameters.tool_choice.clone(),
            turn: shown.turn,
            attempt: shown.attempt,
            latest,
        }
    }
}

/// The words of a message, without ids and marks.
pub(super) fn words(message: &Message) -> String {
    match &message.said {
        Said::Assistant(turn) => {
            let texts = turn.blocks.iter().filter_map(|block| match block {
                Block::Text { text } => Some(text.to_string()),
                _ => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Said::Tool(ToolResult { shown, .. }) => shown.as_ref().map(Content::to_string).unwrap_or_default(),
        said => said.to_string(),
    }
}
