//! The input of a model that answers from code.

use rath_core::body::{Block, ToolResult};
use rath_core::{Content, Message, MessageBody, ModelInput, ToolChoice};

/// The input of a model that answers from code. It is the same when a resumed session asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptInput {
    /// The name of the agent.
    pub agent: String,
    /// The agent's system prompt.
    pub prompt: String,
    /// The names of the agent's tools.
    pub tools: Vec<String>,
    /// Whether the model may or must call a tool.
    pub tool_choice: Option<ToolChoice>,
    /// The number of turns that the model has had in this step.
    pub turn: u64,
    /// The attempt at this turn, from 1.
    pub attempt: u32,
    /// The text of the latest message. Empty if there is no message.
    pub latest: String,
}

impl ScriptInput {
    pub(super) fn new(shown: &ModelInput<'_>, latest: String) -> Self {
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

/// The text of a message, without ids and markers.
pub(super) fn text_of_message(message: &Message) -> String {
    match &message.body {
        MessageBody::Assistant(turn) => {
            let texts = turn.blocks.iter().filter_map(|block| match block {
                Block::Text { text } => Some(text.to_string()),
                _ => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        MessageBody::Tool(ToolResult { shown, .. }) => shown.as_ref().map(Content::to_string).unwrap_or_default(),
        said => said.to_string(),
    }
}
