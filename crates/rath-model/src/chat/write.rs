//! From a turn back to the vendor's JSON.

use crate::fields::Fields;
use crate::turn::{Block, Part, Turn};

/// The turn as the vendor's completion.
pub fn write(turn: &Turn) -> Fields {
    let mut completion = turn.rest.answer.clone();
    turn.put_names(&mut completion);
    if completion.text("object").as_deref() == Some("chat.completion.chunk") {
        completion.put("object", "chat.completion");
    }
    let mut choice = turn.rest.choice.clone();
    if let Some(stop) = &turn.stop {
        choice.put("finish_reason", &stop.word);
    }
    choice.put("message", &message(turn));
    completion.put("choices", &[choice]);
    if !turn.used.raw.is_empty() {
        completion.put("usage", &turn.used.raw);
    }
    completion
}

/// The message of the turn, ready to be sent back.
pub fn message(turn: &Turn) -> Fields {
    let mut message = turn.rest.message.clone();
    let is_list = message.get("content").is_some_and(|content| content.get().starts_with('['));
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match &block.part {
            Part::Text { text } if !is_list => message.put("content", text),
            Part::Refusal { text } => message.put("refusal", text),
            Part::Reasoning { text, .. } => {
                if let Some((key, _)) = block.rest.iter().next() {
                    message.put(key, text);
                }
            }
            Part::Call { id, name, arguments } => calls.push(call(block, id, name, arguments)),
            _ => {}
        }
    }
    if !calls.is_empty() {
        message.put("tool_calls", &calls);
    }
    message
}

fn call(block: &Block, id: &str, name: &str, arguments: &str) -> Fields {
    let mut call = block.rest.clone();
    call.put("id", id);
    let (held, key) = match call.get("custom") {
        Some(_) => ("custom", "input"),
        None => ("function", "arguments"),
    };
    let mut inner = call.object(held);
    inner.put("name", name);
    inner.put(key, arguments);
    call.put(held, &inner);
    call
}
