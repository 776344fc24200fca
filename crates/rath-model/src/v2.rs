//! Version 2 of the encoders. It differs from version 1 in three points: turns of other agents are shown as messages
//! that name the agent, with their calls as text; images and files of a tool's result follow the result as a message;
//! and the request carries the tool choice.
//!
//! FROZEN, as [version 1](crate::v1) is: stored requests are rebuilt from these texts, so no byte of them may change.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_core::body::{Assistant, Block, ToolResult, User};
use rath_core::{BlobRef, Content, Message, MessageBody, ToolChoice};
use serde_json::{Value, json};

use crate::chat::Dialect;
use crate::request_input::RequestInput;
use crate::v1;

pub(crate) fn anthropic(request_input: &RequestInput<'_>) -> serde_json::Result<Vec<u8>> {
    let choice = choice(request_input).map(|choice| match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    });
    let results = with_files(request_input.messages);
    let messages = with_names(&RequestInput { messages: &results, ..*request_input });
    v1::anthropic::encode_with(&RequestInput { messages: &messages, ..*request_input }, choice)
}

pub(crate) fn chat(request_input: &RequestInput<'_>, dialect: Dialect) -> serde_json::Result<Vec<u8>> {
    let choice = openai_choice(request_input, |name| json!({"type": "function", "function": {"name": name}}));
    let results = with_files(request_input.messages);
    let messages = with_names(&RequestInput { messages: &results, ..*request_input });
    v1::chat::encode_with(&RequestInput { messages: &messages, ..*request_input }, dialect, choice)
}

pub(crate) fn responses(request_input: &RequestInput<'_>) -> serde_json::Result<Vec<u8>> {
    let choice = openai_choice(request_input, |name| json!({"type": "function", "name": name}));
    let results = with_files(request_input.messages);
    let messages = with_names(&RequestInput { messages: &results, ..*request_input });
    v1::responses::encode_with(&RequestInput { messages: &messages, ..*request_input }, choice)
}

/// The tool choice. `None` if there are no tools: providers reject a choice then.
fn choice<'a>(request_input: &RequestInput<'a>) -> Option<&'a ToolChoice> {
    request_input.parameters.tool_choice.as_ref().filter(|_| !request_input.tools.is_empty())
}

fn openai_choice(request_input: &RequestInput<'_>, named: impl Fn(&str) -> Value) -> Option<Value> {
    Some(match choice(request_input)? {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => named(name),
    })
}

/// Replaces the turns and tool results of other agents with user messages that name the agent. A turn outside any
/// agent's step counts as the model's own.
fn with_names<'a>(request_input: &RequestInput<'a>) -> Cow<'a, [Message]> {
    let other = |message: &Message| match &message.body {
        MessageBody::Assistant(_) | MessageBody::Tool(_) => {
            message.agent.as_ref().is_some_and(|agent| agent != request_input.agent)
        }
        _ => false,
    };
    if !request_input.messages.iter().any(other) {
        return Cow::Borrowed(request_input.messages);
    }
    // Names of tools, by agent and call id: calls of other agents that have no result yet.
    let mut open: HashMap<(&str, &str), &str> = HashMap::new();
    let mut messages = Vec::with_capacity(request_input.messages.len());
    for message in request_input.messages {
        let text = match (&message.body, message.agent.as_deref()) {
            (MessageBody::Assistant(turn), Some(agent)) if agent != request_input.agent => {
                open.extend(turn.calls().map(|(id, tool)| ((agent, id), tool)));
                turn_as_text(agent, turn)
            }
            (MessageBody::Tool(result), Some(agent)) if agent != request_input.agent => {
                result_as_text(agent, open.remove(&(agent, result.call.as_str())), result)
            }
            _ => {
                messages.push(message.clone());
                continue;
            }
        };
        if !text.is_empty() {
            let body = MessageBody::User(User { text: text.into(), post: None, attached: Vec::new() });
            messages.push(Message { body, ..message.clone() });
        }
    }
    Cow::Owned(messages)
}

/// Moves images and files of a tool's result into a message after the result. Every API accepts them there; not every
/// API accepts them in a result.
fn with_files(messages: &[Message]) -> Cow<'_, [Message]> {
    let has_files =
        |message: &Message| matches!(&message.body, MessageBody::Tool(result) if !result.attached.is_empty());
    if !messages.iter().any(has_files) {
        return Cow::Borrowed(messages);
    }
    let mut all = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        let MessageBody::Tool(result) = &message.body else {
            all.push(message.clone());
            continue;
        };
        let mut lines: Vec<String> = result.shown.iter().map(|shown| text(shown).into_owned()).collect();
        lines.retain(|line| !line.is_empty());
        lines.extend(result.attached.iter().map(ToString::to_string));
        let shown = Some(lines.join("\n").into()).filter(|_| !lines.is_empty());
        let without_files = ToolResult { shown, attached: Vec::new(), ..result.clone() };
        all.push(Message { body: MessageBody::Tool(without_files), ..message.clone() });
        if !result.attached.is_empty() {
            let words = format!("What is attached to the result of call {}:", result.call);
            let said = User { text: words.into(), post: None, attached: result.attached.clone() };
            all.push(Message { body: MessageBody::User(said), ..message.clone() });
        }
    }
    Cow::Owned(all)
}

fn turn_as_text(agent: &str, turn: &Assistant) -> String {
    let mut parts: Vec<String> = Vec::new();
    let words: Vec<Cow<'_, str>> = turn.blocks.iter().filter_map(words).collect();
    if !words.is_empty() {
        parts.push(format!("Agent {agent} said:\n\n{}", words.join("\n\n")));
    }
    for block in &turn.blocks {
        if let Block::ToolUse { name, arguments, .. } = block {
            parts.push(format!("Agent {agent} called {name}({})", text(arguments)));
        }
    }
    parts.join("\n\n")
}

fn result_as_text(agent: &str, tool: Option<&str>, result: &ToolResult) -> String {
    let shown = result.shown.as_ref().map(text).filter(|shown| !shown.trim().is_empty());
    let shown = shown.unwrap_or(Cow::Borrowed("(no output)"));
    let tool = tool.unwrap_or("A tool");
    let ended = if result.failed { "failed for" } else { "answered" };
    format!("{tool} {ended} agent {agent}:\n\n{shown}")
}

fn words(block: &Block) -> Option<Cow<'_, str>> {
    let words = match block {
        Block::Text { text: words } => text(words),
        Block::Image { image } => format!("[picture, {}, {} bytes]", image.media_type, image.bytes).into(),
        Block::Reasoning { .. } | Block::ToolUse { .. } | Block::Unknown(_) => return None,
    };
    (!words.trim().is_empty()).then_some(words)
}

fn text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => Cow::Borrowed(text),
        Content::Blob(BlobRef { bytes, digest, .. }) => Cow::Owned(format!("[{bytes} bytes, blob {digest:?}]")),
    }
}
