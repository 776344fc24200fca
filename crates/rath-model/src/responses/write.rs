//! Writes turns as the vendor's JSON.

use crate::fields::Fields;
use crate::turn::{BlockContent, ItemPosition, ProviderTurn, TurnBlock};

/// The turn as the vendor's response object.
pub fn write(turn: &ProviderTurn) -> Fields {
    let mut response = turn.rest.answer.clone();
    turn.put_names(&mut response);
    response.put("output", &items(turn));
    if !turn.used.raw.is_empty() {
        response.put("usage", &turn.used.raw);
    }
    response
}

/// The items of the turn as they are sent back.
pub fn items(turn: &ProviderTurn) -> Vec<Fields> {
    let mut items: Vec<Fields> = Vec::new();
    let mut open: Option<(Fields, Vec<Fields>)> = None;
    for block in &turn.blocks {
        let fields = written(block);
        match (&block.within, &mut open) {
            (ItemPosition::SameItem, Some((_, parts))) => parts.push(fields),
            (ItemPosition::FirstInItem(item), _) => items.extend(open.replace((item.clone(), vec![fields])).map(close)),
            (ItemPosition::Standalone | ItemPosition::SameItem, _) => {
                items.extend(open.take().map(close));
                items.push(fields);
            }
        }
    }
    items.extend(open.map(close));
    items
}

fn close((mut item, parts): (Fields, Vec<Fields>)) -> Fields {
    item.put("content", &parts);
    item
}

fn written(block: &TurnBlock) -> Fields {
    let mut fields = block.rest.clone();
    match &block.part {
        BlockContent::Text { text } => fields.put("text", text),
        BlockContent::Refusal { text } => fields.put("refusal", text),
        BlockContent::Call { id, name, arguments } => {
            let is_custom = fields.text("type").as_deref() == Some("custom_tool_call");
            fields.put("call_id", id);
            fields.put("name", name);
            fields.put(if is_custom { "input" } else { "arguments" }, arguments);
        }
        BlockContent::Reasoning { .. }
        | BlockContent::Sealed { .. }
        | BlockContent::Server { .. }
        | BlockContent::Other { .. } => {}
    }
    fields
}
