//! Writes turns as the vendor's JSON.

use serde_json::value::{RawValue, to_raw_value};

use crate::fields::Fields;
use crate::turn::{BlockContent, ProviderTurn, TurnBlock};

/// The turn as the vendor's message object.
pub fn write(turn: &ProviderTurn) -> Fields {
    let mut message = turn.rest.answer.clone();
    turn.put_names(&mut message);
    message.put("content", &content(turn));
    if let Some(stop) = &turn.stop {
        message.put("stop_reason", &stop.word);
    }
    if !turn.used.raw.is_empty() {
        message.put("usage", &turn.used.raw);
    }
    message
}

/// The content blocks of the turn as they are sent back.
pub fn content(turn: &ProviderTurn) -> Vec<Fields> {
    turn.blocks.iter().map(block).collect()
}

fn block(block: &TurnBlock) -> Fields {
    let mut fields = block.rest.clone();
    match &block.part {
        BlockContent::Text { text } => fields.put("text", text),
        BlockContent::Reasoning { text, signature } => {
            fields.put("thinking", text);
            if let Some(signature) = signature {
                fields.put("signature", signature);
            }
        }
        BlockContent::Sealed { data } => fields.put("data", data),
        BlockContent::Call { id, name, arguments } => {
            fields.put("id", id);
            fields.put("name", name);
            fields.set("input", input(arguments));
        }
        BlockContent::Server { input: given, .. } if fields.get("input").is_some() => fields.set("input", input(given)),
        BlockContent::Server { .. } | BlockContent::Refusal { .. } | BlockContent::Other { .. } => {}
    }
    fields
}

/// The input as JSON: an empty object if the model wrote nothing, a string if it is not valid JSON.
fn input(written: &str) -> Box<RawValue> {
    let written = if written.is_empty() { "{}" } else { written };
    let json = RawValue::from_string(written.to_owned()).or_else(|_| to_raw_value(written));
    json.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
