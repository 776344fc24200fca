//! Content blocks: how they begin, and how they grow.

use rath_core::Delta;
use serde_json::value::RawValue;

use crate::fields::{Fields, Seen, items_of, text_of};
use crate::turn::{Block, Part};

/// Reads a block, whole or as it begins.
pub(super) fn read(mut fields: Fields) -> Block {
    let kind = fields.text("type").unwrap_or_default();
    let mut words = |key: &str| fields.take_text(key).unwrap_or_default();
    let part = match kind.as_str() {
        "text" => Part::Text { text: words("text") },
        "thinking" => Part::Reasoning { text: words("thinking"), signature: fields.take_text("signature") },
        "redacted_thinking" => Part::Sealed { data: words("data") },
        "tool_use" => Part::Call { id: words("id"), name: words("name"), arguments: take_input(&mut fields) },
        _ if is_of_server(&kind) => Part::Server { kind, input: take_input(&mut fields) },
        _ => Part::Other { kind },
    };
    Block::new(part, fields)
}

/// Server tools, their results, and tools of remote MCP servers.
fn is_of_server(kind: &str) -> bool {
    kind == "server_tool_use" || kind.starts_with("mcp_tool_") || kind.ends_with("_tool_result")
}

/// The input as it was written. What a stream begins with, an empty object, is none yet.
fn take_input(fields: &mut Fields) -> String {
    fields.take("input").map(|input| input.get().to_owned()).unwrap_or_default()
}

/// A block begins in a stream.
pub(super) fn begin(fields: Fields, heard: &mut dyn FnMut(Delta)) -> Block {
    let mut block = read(fields);
    match &mut block.part {
        Part::Text { text } if !text.is_empty() => heard(Delta::Text(text.clone())),
        Part::Reasoning { text, .. } if !text.is_empty() => heard(Delta::Reasoning(text.clone())),
        Part::Call { id, name, arguments } => {
            if is_empty_object(arguments) {
                arguments.clear();
            }
            heard(Delta::Call { id: id.clone(), name: name.clone() });
        }
        Part::Server { input, .. } if is_empty_object(input) => input.clear(),
        _ => {}
    }
    block
}

fn is_empty_object(json: &str) -> bool {
    json.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(*b"{}")
}

/// A block grows.
pub(super) fn grow(block: &mut Block, delta: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
    let kind = delta.text("type").unwrap_or_default();
    match (&*kind, &mut block.part) {
        ("text_delta", Part::Text { text }) => {
            let more = delta.text("text").unwrap_or_default();
            text.push_str(&more);
            heard(Delta::Text(more.into_owned()));
        }
        ("thinking_delta", Part::Reasoning { text, .. }) => {
            let more = delta.text("thinking").unwrap_or_default();
            text.push_str(&more);
            heard(Delta::Reasoning(more.into_owned()));
        }
        ("signature_delta", Part::Reasoning { signature, .. }) => {
            *signature = delta.text("signature").map(Into::into);
        }
        ("input_json_delta", Part::Call { arguments, .. }) => {
            let more = delta.text("partial_json").unwrap_or_default();
            arguments.push_str(&more);
            heard(Delta::Arguments(more.into_owned()));
        }
        ("input_json_delta", Part::Server { input, .. }) => {
            input.push_str(&delta.text("partial_json").unwrap_or_default());
        }
        ("citations_delta", _) => {
            if let Some(citation) = delta.get("citation") {
                append(&mut block.rest, "citations", citation);
            }
        }
        _ => grow_unknown(&mut block.rest, delta),
    }
}

/// Puts a value at the end of an array.
fn append(fields: &mut Fields, key: &str, value: &RawValue) {
    let mut list = fields.get(key).map(items_of).unwrap_or_default();
    list.push(value);
    let list: Vec<Box<RawValue>> = list.into_iter().map(ToOwned::to_owned).collect();
    fields.put(key, &list);
}

/// A delta of a kind that is not known: words are added to words, anything else takes the place of what was there.
fn grow_unknown(fields: &mut Fields, delta: &Seen<'_>) {
    for (key, value) in delta.iter().filter(|(key, _)| *key != "type") {
        let held = fields.text(key);
        match (held, text_of(value)) {
            (Some(held), Some(more)) => fields.put(key, &(held + &more)),
            _ => fields.set(key, value.to_owned()),
        }
    }
}
