//! Writes turns as the vendor's JSON.

use serde_json::value::RawValue;

use crate::fields::Fields;
use crate::turn::{BlockContent, ProviderTurn, TurnBlock};

/// The turn as the vendor's completion object.
pub fn write(turn: &ProviderTurn) -> Fields {
    let mut completion = turn.rest.answer.clone();
    turn.put_names(&mut completion);
    if completion.text("object").as_deref() == Some("chat.completion.chunk") {
        completion.put("object", "chat.completion");
    }
    let is_empty = turn.rest.choice.is_empty() && turn.rest.message.is_empty() && turn.blocks.is_empty();
    let first = (!is_empty).then(|| choice(turn));
    let choices: Vec<Fields> = first.into_iter().chain(turn.rest.others.iter().cloned()).collect();
    completion.put("choices", &choices);
    if !turn.used.raw.is_empty() {
        completion.put("usage", &turn.used.raw);
    }
    completion
}

/// The turn as one of the completion's choices.
pub(super) fn choice(turn: &ProviderTurn) -> Fields {
    let mut choice = turn.rest.choice.clone();
    if let Some(stop) = &turn.stop {
        choice.put("finish_reason", &stop.word);
    }
    choice.put("message", &written(turn));
    choice
}

/// The message of the turn as it is sent back: without the indexes that calls have in a stream.
pub fn message(turn: &ProviderTurn) -> Fields {
    let mut message = written(turn);
    let calls: Option<Vec<Fields>> = message.read("tool_calls");
    if let Some(mut calls) = calls.filter(|calls| !calls.is_empty()) {
        calls.iter_mut().for_each(|call| drop(call.remove("index")));
        message.put("tool_calls", &calls);
    }
    message
}

fn written(turn: &ProviderTurn) -> Fields {
    let mut message = turn.rest.message.clone();
    let is_list = message.get("content").is_some_and(|content| content.get().starts_with('['));
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match &block.part {
            BlockContent::Text { text } if !is_list => message.put("content", text),
            BlockContent::Refusal { text } => message.put("refusal", text),
            BlockContent::Reasoning { text, .. } => {
                if let Some((key, _)) = block.rest.iter().next() {
                    message.put(key, text);
                }
            }
            BlockContent::Call { id, name, arguments } => calls.push(call(block, id, name, arguments)),
            _ => {}
        }
    }
    if !calls.is_empty() {
        message.put("tool_calls", &calls);
    }
    message
}

fn call(block: &TurnBlock, id: &str, name: &str, arguments: &str) -> Fields {
    let mut call = block.rest.clone();
    call.put("id", id);
    let (inner_key, key) = match call.get("custom") {
        Some(_) => ("custom", "input"),
        None => ("function", "arguments"),
    };
    let mut inner = call.object(inner_key);
    inner.put("name", name);
    let is_object = inner.get(key).is_some_and(|value| value.get() == "{}");
    match RawValue::from_string(arguments.to_owned()) {
        Ok(object) if is_object => inner.set(key, object),
        _ => inner.put(key, arguments),
    }
    call.put(inner_key, &inner);
    call
}
