//! Reads plain conversations: one JSON object per line, with `role` and `content` as in OpenAI's chat API.

use serde_json::{Map, Value};

use super::lines::{Repairs, field, not_text, objects};
use super::openrath::calls;
use super::{ImportedContent, ImportedMessage, ParseError, ParsedConversation};

/// The name of the format.
pub const FORMAT: &str = "jsonl";

/// Parses a conversation.
pub fn read(bytes: &[u8]) -> Result<ParsedConversation, ParseError> {
    let mut repairs = Repairs::default();
    let mut conversation = Vec::new();
    for (line, object) in objects(bytes, None, &mut repairs) {
        match content_of(line, &object, &mut repairs) {
            Ok(content) => {
                let time = ["timestamp", "created_at", "time"].iter().find_map(|name| field(&object, name));
                conversation.push(ImportedMessage { line, time, content });
            }
            // An invalid first line means that the file has another format.
            Err(why) if conversation.is_empty() => return Err(ParseError { line, why }),
            Err(why) => repairs.add(line, why, "omitted; it is in the source file"),
        }
    }
    if conversation.is_empty() {
        return Err(ParseError { line: 1, why: "the file has no messages".into() });
    }
    Ok(ParsedConversation {
        from: FORMAT,
        messages: conversation,
        repairs: repairs.done(),
        ..ParsedConversation::default()
    })
}

fn content_of(line: u64, object: &Map<String, Value>, repairs: &mut Repairs) -> Result<ImportedContent, String> {
    let Some(role) = object.get("role").and_then(Value::as_str) else { return Err("it has no role".into()) };
    let text = text_of_content(line, object.get("content"), repairs)?;
    Ok(match role {
        "system" | "developer" => ImportedContent::System(text.ok_or("it has no content")?),
        "user" => ImportedContent::User(text.ok_or("it has no content")?),
        "assistant" => {
            let calls = calls(object.get("tool_calls")).ok_or("its tool_calls cannot be read")?;
            repairs.calls(line, object);
            if text.is_none() && calls.is_empty() {
                return Err("it has neither content nor tool_calls".into());
            }
            ImportedContent::Assistant { text: text.unwrap_or_default(), calls }
        }
        "tool" => {
            let call = field(object, "tool_call_id").ok_or("it has no tool_call_id")?;
            repairs.not_text(line, "its", not_text(object, &["tool_call_id"]));
            ImportedContent::Result { call, text: text.unwrap_or_default() }
        }
        other => return Err(format!("its role is {other:?}")),
    })
}

/// The text of a content: a string, or the text parts of a list.
fn text_of_content(line: u64, content: Option<&Value>, repairs: &mut Repairs) -> Result<Option<String>, String> {
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
                repairs.add(line, format!("a part of type {kind:?} is not text"), "omitted; it is in the source file");
            }
        }
    }
    Ok(Some(texts.join("\n")))
}
