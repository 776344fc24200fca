//! Output items: a message of several parts, a call, reasoning, what a tool of the vendor did.

use serde_json::value::RawValue;

use crate::fields::{Fields, Seen, items_of};
use crate::turn::{Block, Part, Within};

/// The parts that an item has.
pub(super) fn read(mut item: Fields) -> Vec<Block> {
    let kind = item.text("type").unwrap_or_default();
    let part = match kind.as_str() {
        "message" => return message(item),
        "reasoning" => reasoning(&item),
        "function_call" => call(&mut item, "arguments"),
        "custom_tool_call" => call(&mut item, "input"),
        _ if is_of_server(&kind) => Part::Server { kind, input: String::new() },
        _ => Part::Other { kind },
    };
    vec![Block::new(part, item)]
}

/// What the vendor's own tools do. Calls of a shell, a computer or a patch are for us to carry out.
fn is_of_server(kind: &str) -> bool {
    let ours = ["computer_call", "shell_call", "local_shell_call", "apply_patch_call"];
    (kind.ends_with("_call") && !ours.contains(&kind)) || kind == "mcp_list_tools"
}

/// A message: a block for each of its parts, the first with the item around them.
fn message(mut item: Fields) -> Vec<Block> {
    let content: Vec<Fields> = item.read("content").unwrap_or_default();
    if content.is_empty() {
        return vec![Block::new(Part::Other { kind: "message".into() }, item)];
    }
    item.take("content");
    let mut item = Some(item);
    let blocks = content.into_iter().map(part).map(|mut block| {
        block.within = item.take().map_or(Within::Same, Within::Item);
        block
    });
    blocks.collect()
}

fn part(mut fields: Fields) -> Block {
    let kind = fields.text("type").unwrap_or_default();
    let part = match kind.as_str() {
        "output_text" => Part::Text { text: fields.take_text("text").unwrap_or_default() },
        "refusal" => Part::Refusal { text: fields.take_text("refusal").unwrap_or_default() },
        _ => Part::Other { kind },
    };
    Block::new(part, fields)
}

fn call(item: &mut Fields, arguments: &str) -> Part {
    let mut words = |key: &str| item.take_text(key).unwrap_or_default();
    Part::Call { id: words("call_id"), name: words("name"), arguments: words(arguments) }
}

/// Reasoning keeps all its fields: it goes back as it came, or the vendor refuses it.
fn reasoning(item: &Fields) -> Part {
    let words = ["content", "summary"].map(|key| item.get(key).map(texts).unwrap_or_default());
    let text = words.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    match (text.is_empty(), item.text("encrypted_content")) {
        (true, Some(data)) => Part::Sealed { data },
        (_, signature) => Part::Reasoning { text, signature },
    }
}

fn texts(list: &RawValue) -> String {
    let texts = items_of(list).into_iter().filter_map(|part| Seen::of_value(part).text("text"));
    texts.collect::<Vec<_>>().join("\n\n")
}
