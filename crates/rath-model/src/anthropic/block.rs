//! Parsing content blocks and their deltas.

use rath_core::Delta;
use serde_json::value::RawValue;

use crate::fields::{BorrowedFields, Fields, items_of, text_of};
use crate::turn::{BlockContent, TurnBlock};

/// Parses a block: a whole one, or the start of a streamed one.
pub(super) fn read(mut fields: Fields) -> TurnBlock {
    let kind = fields.text("type").unwrap_or_default();
    let mut words = |key: &str| fields.take_text(key).unwrap_or_default();
    let part = match kind.as_str() {
        "text" => BlockContent::Text { text: words("text") },
        "thinking" => BlockContent::Reasoning { text: words("thinking"), signature: fields.take_text("signature") },
        "redacted_thinking" => BlockContent::Sealed { data: words("data") },
        "tool_use" => BlockContent::Call { id: words("id"), name: words("name"), arguments: take_input(&mut fields) },
        _ if is_of_server(&kind) => BlockContent::Server { kind, input: take_input(&mut fields) },
        _ => BlockContent::Other { kind },
    };
    TurnBlock::new(part, fields)
}

/// Whether the block is of a server tool, a server tool's result, or a tool of a remote MCP server.
fn is_of_server(kind: &str) -> bool {
    kind == "server_tool_use" || kind.starts_with("mcp_tool_") || kind.ends_with("_tool_result")
}

/// Takes the input verbatim. A stream starts with an empty object, which means that no input has arrived yet.
fn take_input(fields: &mut Fields) -> String {
    fields.take("input").map(|input| input.get().to_owned()).unwrap_or_default()
}

/// Starts a streamed block.
pub(super) fn begin(fields: Fields, on_delta: &mut dyn FnMut(Delta)) -> TurnBlock {
    let mut block = read(fields);
    match &mut block.part {
        BlockContent::Text { text } if !text.is_empty() => on_delta(Delta::Text(text.clone())),
        BlockContent::Reasoning { text, .. } if !text.is_empty() => on_delta(Delta::Reasoning(text.clone())),
        BlockContent::Call { id, name, arguments } => {
            if is_empty_object(arguments) {
                arguments.clear();
            }
            on_delta(Delta::Call { id: id.clone(), name: name.clone() });
        }
        BlockContent::Server { input, .. } if is_empty_object(input) => input.clear(),
        _ => {}
    }
    block
}

fn is_empty_object(json: &str) -> bool {
    json.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(*b"{}")
}

/// Adds a delta to a block.
pub(super) fn grow(block: &mut TurnBlock, delta: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
    let kind = delta.text("type").unwrap_or_default();
    match (&*kind, &mut block.part) {
        ("text_delta", BlockContent::Text { text }) => {
            let more = delta.text("text").unwrap_or_default();
            text.push_str(&more);
            on_delta(Delta::Text(more.into_owned()));
        }
        ("thinking_delta", BlockContent::Reasoning { text, .. }) => {
            let more = delta.text("thinking").unwrap_or_default();
            text.push_str(&more);
            on_delta(Delta::Reasoning(more.into_owned()));
        }
        ("signature_delta", BlockContent::Reasoning { signature, .. }) => {
            *signature = delta.text("signature").map(Into::into);
        }
        ("input_json_delta", BlockContent::Call { arguments, .. }) => {
            let more = delta.text("partial_json").unwrap_or_default();
            arguments.push_str(&more);
            on_delta(Delta::Arguments(more.into_owned()));
        }
        ("input_json_delta", BlockContent::Server { input, .. }) => {
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

/// Appends a value to an array.
fn append(fields: &mut Fields, key: &str, value: &RawValue) {
    let mut list = fields.get(key).map(items_of).unwrap_or_default();
    list.push(value);
    let list: Vec<Box<RawValue>> = list.into_iter().map(ToOwned::to_owned).collect();
    fields.put(key, &list);
}

/// Adds a delta of an unknown type: text is appended to text, any other value replaces the old one.
fn grow_unknown(fields: &mut Fields, delta: &BorrowedFields<'_>) {
    for (key, value) in delta.iter().filter(|(key, _)| *key != "type") {
        let current = fields.text(key);
        match (current, text_of(value)) {
            (Some(current), Some(more)) => fields.put(key, &(current + &more)),
            _ => fields.set(key, value.to_owned()),
        }
    }
}
