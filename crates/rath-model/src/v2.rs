//! Version 2 of the encoders: version 1, but the turns of other agents are shown as messages that name their agent, with
//! their calls as text; the pictures and files of a tool's result follow it as a message; and requests say which tool the
//! model may or must call.
//!
//! FROZEN, as [version 1](crate::v1) is: these texts determine the bytes of requests that are stored.

use std::borrow::Cow;
use std::collections::HashMap;

use rath_core::body::{Assistant, Block, ToolResult, User};
use rath_core::{BlobRef, Content, Message, Said, ToolChoice};
use serde_json::{Value, json};

use crate::chat::Dialect;
use crate::talk::Talk;
use crate::v1;

pub(crate) fn anthropic(talk: &Talk<'_>) -> serde_json::Result<Vec<u8>> {
    let choice = choice(talk).map(|choice| match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    });
    let results = with_files(talk.messages);
    let messages = with_names(&Talk { messages: &results, ..*talk });
    v1::anthropic::encode_with(&Talk { messages: &messages, ..*talk }, choice)
}

pub(crate) fn chat(talk: &Talk<'_>, dialect: Dialect) -> serde_json::Result<Vec<u8>> {
    let choice = openai_choice(talk, |name| json!({"type": "function", "function": {"name": name}}));
    let results = with_files(talk.messages);
    let messages = with_names(&Talk { messages: &results, ..*talk });
    v1::chat::encode_with(&Talk { messages: &messages, ..*talk }, dialect, choice)
}

pub(crate) fn responses(talk: &Talk<'_>) -> serde_json::Result<Vec<u8>> {
    let choice = openai_choice(talk, |name| json!({"type": "function", "name": name}));
    let results = with_files(talk.messages);
    let messages = with_names(&Talk { messages: &results, ..*talk });
    v1::responses::encode_with(&Talk { messages: &messages, ..*talk }, choice)
}

/// The choice of tools. Without tools there is none: providers refuse one then.
fn choice<'a>(talk: &Talk<'a>) -> Option<&'a ToolChoice> {
    talk.parameters.tool_choice.as_ref().filter(|_| !talk.tools.is_empty())
}

fn openai_choice(talk: &Talk<'_>, named: impl Fn(&str) -> Value) -> Option<Value> {
    Some(match choice(talk)? {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => named(name),
    })
}

/// The conversation in which other agents' turns and results are messages to this one. A turn of no agent's step counts
/// as the model's own.
fn with_names<'a>(talk: &Talk<'a>) -> Cow<'a, [Message]> {
    let other = |message: &Message| match &message.said {
        Said::Assistant(_) | Said::Tool(_) => message.agent.as_ref().is_some_and(|agent| agent != talk.agent),
        _ => false,
    };
    if !talk.messages.iter().any(other) {
        return Cow::Borrowed(talk.messages);
    }
    // Tools by call, of calls that another agent made and that have no result yet.
    let mut open: HashMap<(&str, &str), &str> = HashMap::new();
    let mut messages = Vec::with_capacity(talk.messages.len());
    for message in talk.messages {
        let text = match (&message.said, message.agent.as_deref()) {
            (Said::Assistant(turn), Some(agent)) if agent != talk.agent => {
                open.extend(turn.calls().map(|(id, tool)| ((agent, id), tool)));
                told_turn(agent, turn)
            }
            (Said::Tool(result), Some(agent)) if agent != talk.agent => {
                told_result(agent, open.remove(&(agent, result.call.as_str())), result)
            }
            _ => {
                messages.push(message.clone());
                continue;
            }
        };
        if !text.is_empty() {
            let said = Said::User(User { text: text.into(), post: None, attached: Vec::new() });
            messages.push(Message { said, ..message.clone() });
        }
    }
    Cow::Owned(messages)
}

/// The conversation in which the pictures and files of a tool's result are a message behind it. All APIs take them there;
/// not all take them in a result.
fn with_files(messages: &[Message]) -> Cow<'_, [Message]> {
    let has_files = |message: &Message| matches!(&message.said, Said::Tool(result) if !result.attached.is_empty());
    if !messages.iter().any(has_files) {
        return Cow::Borrowed(messages);
    }
    let mut all = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        let Said::Tool(result) = &message.said else {
            all.push(message.clone());
            continue;
        };
        let mut lines: Vec<String> = result.shown.iter().map(|shown| text(shown).into_owned()).collect();
        lines.retain(|line| !line.is_empty());
        lines.extend(result.attached.iter().map(ToString::to_string));
        let shown = Some(lines.join("\n").into()).filter(|_| !lines.is_empty());
        let told = ToolResult { shown, attached: Vec::new(), ..result.clone() };
        all.push(Message { said: Said::Tool(told), ..message.clone() });
        if !result.attached.is_empty() {
            let words = format!("What is attached to the result of call {}:", result.call);
            let said = User { text: words.into(), post: None, attached: result.attached.clone() };
            all.push(Message { said: Said::User(said), ..message.clone() });
        }
    }
    Cow::Owned(all)
}

fn told_turn(agent: &str, turn: &Assistant) -> String {
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

fn told_result(agent: &str, tool: Option<&str>, result: &ToolResult) -> String {
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
