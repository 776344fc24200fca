//! From a turn back to the vendor's JSON.

use serde_json::value::{RawValue, to_raw_value};

use crate::fields::Fields;
use crate::turn::{Block, Part, Turn};

/// The turn as the vendor's message.
pub fn write(turn: &Turn) -> Fields {
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

/// The blocks of the turn, ready to be sent back.
pub fn content(turn: &Turn) -> Vec<Fields> {
    turn.blocks.iter().map(block).collect()
}

fn block(block: &Block) -> Fields {
    let mut fields = block.rest.clone();
    match &block.part {
        Part::Text { text } => fields.put("text", text),
        Part::Reasoning { text, signature } => {
            fields.put("thinking", text);
            if let Some(signature) = signature {
                fields.put("signature", signature);
            }
        }
        Part::Sealed { data } => fields.put("data", data),
        Part::Call { id, name, arguments } => {
            fields.put("id", id);
            fields.put("name", name);
            fields.set("input", input(arguments));
        }
        Part::Server { input: given, .. } if fields.get("input").is_some() => fields.set("input", input(given)),
        Part::Server { .. } | Part::Refusal { .. } | Part::Other { .. } => {}
    }
    fields
}

/// The input as JSON. Where the model wrote none it is an empty object; what is no JSON is sent as plain words.
fn input(written: &str) -> Box<RawValue> {
    let written = if written.is_empty() { "{}" } else { written };
    let json = RawValue::from_string(written.to_owned()).or_else(|_| to_raw_value(written));
    json.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
