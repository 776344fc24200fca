//! From a turn back to the vendor's JSON.

use crate::fields::Fields;
use crate::turn::{Block, Part, Turn, Within};

/// The turn as the vendor's response.
pub fn write(turn: &Turn) -> Fields {
    let mut response = turn.rest.answer.clone();
    turn.put_names(&mut response);
    response.put("output", &items(turn));
    if !turn.used.raw.is_empty() {
        response.put("usage", &turn.used.raw);
    }
    response
}

/// The items of the turn, ready to be sent back.
pub fn items(turn: &Turn) -> Vec<Fields> {
    let mut items: Vec<Fields> = Vec::new();
    let mut open: Option<(Fields, Vec<Fields>)> = None;
    for block in &turn.blocks {
        let fields = written(block);
        match (&block.within, &mut open) {
            (Within::Same, Some((_, parts))) => parts.push(fields),
            (Within::Item(item), _) => items.extend(open.replace((item.clone(), vec![fields])).map(close)),
            (Within::Nothing | Within::Same, _) => {
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

fn written(block: &Block) -> Fields {
    let mut fields = block.rest.clone();
    match &block.part {
        Part::Text { text } => fields.put("text", text),
        Part::Refusal { text } => fields.put("refusal", text),
        Part::Call { id, name, arguments } => {
            let is_custom = fields.text("type").as_deref() == Some("custom_tool_call");
            fields.put("call_id", id);
            fields.put("name", name);
            fields.put(if is_custom { "input" } else { "arguments" }, arguments);
        }
        Part::Reasoning { .. } | Part::Sealed { .. } | Part::Server { .. } | Part::Other { .. } => {}
    }
    fields
}
