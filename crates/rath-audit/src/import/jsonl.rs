//! Plain conversations: a JSON object a line, with `role` and `content` as OpenAI's chat API has them.

use serde_json::{Map, Value};

use super::lines::{Repairs, field, not_text, objects};
use super::openrath::calls;
use super::{Parsed, Said, Unreadable, What};

/// The name of the format.
pub const FORMAT: &str = "jsonl";

/// Reads a conversation.
pub fn read(bytes: &[u8]) -> Result<Parsed, Unreadable> {
    let mut repairs = Repairs::default();
    let mut conversation = Vec::new();
    for (line, object) in objects(bytes, None, &mut repairs) {
        match said(line, &object, &mut repairs) {
            Ok(what) => {
                let time = ["timestamp", "created_at", "time"].iter().find_map(|name| field(&object, name));
                conversation.push(Said { line, time, what });
            }
            // The first line shows whether this is such a file at all.
            Err(why) if conversation.is_empty() => return Err(Unreadable { line, why }),
            Err(why) => repairs.add(line, why, "left out; it is in the source"),
        }
    }
    if conversation.is_empty() {
        return Err(Unreadable { line: 1, why: "no line says anything".into() });
    }
    Ok(Parsed { from: FORMAT, said: conversation, repairs: repairs.done(), ..Parsed::default() })
}

fn said(line: u64, object: &Map<String, Value>, repairs: &mut Repairs) -> Result<What, String> {
    let Some(role) = object.get("role").and_then(Value::as_str) else { return Err("it has no role".into()) };
    let text = content(line, object.get("content"), repairs)?;
    Ok(match role {
        "system" | "developer" => What::System(text.ok_or("it has no content")?),
        "user" => What::User(text.ok_or("it has no content")?),
        "assistant" => {
            let calls = calls(object.get("tool_calls")).ok_or("its tool_calls cannot be read")?;
            repairs.calls(line, object);
            if text.is_none() && calls.is_empty() {
                return Err("it has neither content nor tool_calls".into());
            }
            What::Assistant { text: text.unwrap_or_default(), calls }
        }
        "tool" => {
            let call = field(object, "tool_call_id").ok_or("it has no tool_call_id")?;
            repairs.not_text(line, "its", not_text(object, &["tool_call_id"]));
            What::Result { call, text: text.unwrap_or_default() }
        }
        other => return Err(format!("its role is {other:?}")),
    })
}

/// The text of a content: a string, or the text parts of a list.
fn content(line: u64, content: Option<&Value>, repairs: &mut Repairs) -> Result<Option<String>, String> {
    let parts = match content {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err("its content is neither text nor a list".into()),
    };
    let mut texts = Vec::new();
    for part in parts {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("none");
        let text = match kind {
            "text" | "input_text" | "output_text" => part.get("text"),
            "refusal" => part.get("refusal"),
            _ => None,
        };
        match text.and_then(Value::as_str) {
            Some(text) => texts.push(text),
            None => {
                repairs.add(line, format!("a part of type {kind:?} is not text"), "left out; it is in the source");
            }
        }
    }
    Ok(Some(texts.join("\n")))
}
