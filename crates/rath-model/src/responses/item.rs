//! Parses output items: messages, calls, reasoning, and results of the vendor's tools.

use serde_json::value::RawValue;

use crate::fields::{BorrowedFields, Fields, items_of};
use crate::turn::{BlockContent, ItemPosition, TurnBlock};

/// The blocks of an item.
pub(super) fn read(mut item: Fields) -> Vec<TurnBlock> {
    let kind = item.text("type").unwrap_or_default();
    let part = match kind.as_str() {
        "message" => return message(item),
        "reasoning" => reasoning(&item),
        "function_call" => call(&mut item, "arguments"),
        "custom_tool_call" => call(&mut item, "input"),
        _ if is_of_server(&kind) => BlockContent::Server { kind, input: String::new() },
        _ => BlockContent::Other { kind },
    };
    vec![TurnBlock::new(part, item)]
}

/// Whether the item is of a tool that the vendor runs. Shell, computer and patch calls are for the client to run.
fn is_of_server(kind: &str) -> bool {
    let ours = ["computer_call", "shell_call", "local_shell_call", "apply_patch_call"];
    (kind.ends_with("_call") && !ours.contains(&kind)) || kind == "mcp_list_tools"
}

/// The blocks of a message, one for each part. The first contains the item's fields.
fn message(mut item: Fields) -> Vec<TurnBlock> {
    let content: Vec<Fields> = item.read("content").unwrap_or_default();
    if content.is_empty() {
        return vec![TurnBlock::new(BlockContent::Other { kind: "message".into() }, item)];
    }
    item.take("content");
    let mut item = Some(item);
    let blocks = content.into_iter().map(part).map(|mut block| {
        block.within = item.take().map_or(ItemPosition::SameItem, ItemPosition::FirstInItem);
        block
    });
    blocks.collect()
}

fn part(mut fields: Fields) -> TurnBlock {
    let kind = fields.text("type").unwrap_or_default();
    let part = match kind.as_str() {
        "output_text" => BlockContent::Text { text: fields.take_text("text").unwrap_or_default() },
        "refusal" => BlockContent::Refusal { text: fields.take_text("refusal").unwrap_or_default() },
        _ => BlockContent::Other { kind },
    };
    TurnBlock::new(part, fields)
}

fn call(item: &mut Fields, arguments: &str) -> BlockContent {
    let mut words = |key: &str| item.take_text(key).unwrap_or_default();
    BlockContent::Call { id: words("call_id"), name: words("name"), arguments: words(arguments) }
}

/// Reasoning keeps all its fields: the vendor accepts it back only unchanged.
fn reasoning(item: &Fields) -> BlockContent {
    let words = ["content", "summary"].map(|key| item.get(key).map(texts).unwrap_or_default());
    let text = words.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    match (text.is_empty(), item.text("encrypted_content")) {
        (true, Some(data)) => BlockContent::Sealed { data },
        (_, signature) => BlockContent::Reasoning { text, signature },
    }
}

fn texts(list: &RawValue) -> String {
    let texts = items_of(list).into_iter().filter_map(|part| BorrowedFields::of_value(part).text("text"));
    texts.collect::<Vec<_>>().join("\n\n")
}
