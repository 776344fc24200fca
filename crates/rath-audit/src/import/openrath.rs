//! Reads session files of OpenRath (schema version 1): a header, a chunk for each message, a trailer.
//!
//! The OpenRath writer appends, and may be started again on the same file, which its own loader rejects. This reader
//! accepts whatever the lines contain, and adds a repair for each deviation from the format.

use std::collections::BTreeMap;

use rath_core::body::Repair;
use serde_json::{Map, Value};

use super::lines::{Repairs, field, not_text, objects, text_of};
use super::{ImportedCall, ImportedContent, ImportedMessage, ParseError, ParsedConversation};

/// The name of the format.
pub const FORMAT: &str = "openrath";

/// The schema version that this reader supports.
const SCHEMA: u64 = 1;

type Object = Map<String, Value>;

/// Parses a session file.
pub fn read(bytes: &[u8]) -> Result<ParsedConversation, ParseError> {
    let mut repairs = Repairs::default();
    let objects = objects(bytes, Some("{\"record_type\":"), &mut repairs);
    let is_record = |object: &Object| {
        matches!(object.get("record_type").and_then(Value::as_str), Some("header" | "chunk" | "trailer"))
    };
    if !objects.iter().any(|(_, object)| is_record(object)) {
        return Err(ParseError { line: 1, why: "no header and no chunk: not an OpenRath session file".into() });
    }
    let mut file = File { repairs, ..File::default() };
    for (line, object) in objects {
        match object.get("record_type").and_then(Value::as_str) {
            Some("header") => file.header(line, object)?,
            Some("chunk") => file.chunk(line, &object),
            Some("trailer") => file.trailer(line, object),
            other => {
                let what = format!("a record of the unknown type {:?}", other.unwrap_or("none"));
                file.repairs.add(line, what, "omitted; it is in the source file");
            }
        }
    }
    Ok(file.finish())
}

#[derive(Default)]
struct File {
    header: Option<(u64, Object)>,
    trailer: Option<(u64, Object)>,
    /// Whether chunks follow the trailer.
    chunks_follow: bool,
    /// The messages by position, each with its content for comparison.
    messages: BTreeMap<Position, (ImportedMessage, Value)>,
    repairs: Repairs,
}

/// The position of a chunk: its index, and how many chunks without an index are between it and the last chunk with one.
/// Chunks before the first index have no index.
type Position = (Option<u64>, u64);

impl File {
    fn header(&mut self, line: u64, object: Object) -> Result<(), ParseError> {
        let mut read_as = |what: String| self.repairs.add(line, what, format!("read as version {SCHEMA}"));
        match object.get("schema_version") {
            None | Some(Value::Null) => read_as("the header has no schema version".into()),
            Some(version) => match text_of(version).parse() {
                Ok(SCHEMA) if version.is_number() => {}
                Ok::<u64, _>(SCHEMA) | Err(_) => {
                    read_as(format!("the header's schema version is not a number: {version}"))
                }
                Ok(version) => {
                    let why = format!("the file has schema version {version}; this version of rath reads {SCHEMA}");
                    return Err(ParseError { line, why });
                }
            },
        }
        match &self.header {
            None => {
                if !self.messages.is_empty() {
                    self.repairs.add(line, "there are chunks before the header", "read in their order");
                }
                let names = ["id", "created_at", "lineage_operator", "lineage_kind"];
                self.repairs.not_text(line, "the header's", not_text(&object, &names));
                match object.get("parent_session_ids") {
                    None | Some(Value::Null) => {}
                    Some(Value::Array(parents)) if parents.iter().all(Value::is_string) => {}
                    Some(Value::Array(_)) => self.repairs.not_text(line, "of the header's", ["parent_session_ids"]),
                    Some(_) => {
                        let what = "the header's \"parent_session_ids\" is not a list";
                        self.repairs.add(line, what, "omitted; it is in the source file");
                    }
                }
                self.header = Some((line, object));
            }
            Some((_, first)) if first.get("id") == object.get("id") => {
                self.repairs.add(line, "a second header: the writer was started again", "skipped");
            }
            Some((first, _)) => {
                let why = format!("another session starts here than in line {first}: a file must contain one session");
                return Err(ParseError { line, why });
            }
        }
        Ok(())
    }

    fn chunk(&mut self, line: u64, object: &Object) {
        let last = self.messages.last_key_value().map(|(last, _)| *last);
        let position = match object.get("index").and_then(Value::as_u64) {
            Some(index) => (Some(index), 0),
            None => {
                self.repairs.add(line, "the chunk has no index", "read in its position");
                last.map_or((None, 1), |(index, many)| (index, many + 1))
            }
        };
        let index = position.0.unwrap_or_default();
        let payload = object.get("payload").cloned().unwrap_or_default();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some(content) = content_of(kind, &payload) else {
            let what = format!("a chunk of kind {kind:?}, or a payload that does not fit it");
            self.repairs.add(line, what, "omitted; it is in the source file");
            return;
        };
        if let Value::Object(payload) = &payload {
            self.repairs.not_text(line, "the chunk's", not_text(payload, &["content", "tool_call_id"]));
            self.repairs.calls(line, payload);
        }
        if self.trailer.is_some() && !self.chunks_follow {
            self.chunks_follow = true;
            self.repairs.add(line, "a chunk follows the trailer", "read in its position");
        }
        let comparable = serde_json::json!([kind, payload]);
        match (self.messages.get(&position), last) {
            (Some((_, before)), _) if *before == comparable => {
                self.repairs.add(line, format!("chunk {index} again, with the same content"), "skipped");
                return;
            }
            (Some(_), _) => {
                let replaced: Vec<u64> =
                    self.messages.split_off(&position).into_values().map(|(said, _)| said.line).collect();
                let (first, last) = (replaced.iter().min().unwrap_or(&line), replaced.iter().max().unwrap_or(&line));
                let which = match first == last {
                    true => format!("line {first} is"),
                    false => format!("lines {first} to {last} are"),
                };
                let how = format!("used the later content; {which} only in the source file");
                self.repairs.add(line, format!("chunk {index} again, with different content"), how);
            }
            (None, Some(last @ (Some(before), _))) if last > position => {
                let what = format!("chunk {index} follows chunk {before}");
                self.repairs.add(line, what, "read in the order of the indexes");
            }
            (None, _) => {}
        }
        self.messages.insert(position, (ImportedMessage { line, time: None, content }, comparable));
    }

    /// Adds repairs for missing indexes.
    fn gaps(&mut self) {
        let mut next = 0;
        for ((index, many), (said, _)) in &self.messages {
            // A chunk without an index may be the missing one.
            let index = &index.filter(|_| *many == 0).unwrap_or(next);
            if *index > next {
                let missing =
                    if index - next == 1 { format!("{next} is") } else { format!("{next} to {} are", index - 1) };
                self.repairs.add(
                    said.line,
                    format!("chunk {index} comes next: {missing} missing"),
                    "continued without",
                );
            }
            next = index.saturating_add(1);
        }
    }

    fn trailer(&mut self, line: u64, object: Object) {
        if self.trailer.is_some() {
            self.repairs.add(line, "a second trailer", "used the later one");
        }
        self.chunks_follow = false;
        self.trailer = Some((line, object));
    }

    fn finish(mut self) -> ParsedConversation {
        self.gaps();
        if self.header.is_none() {
            self.repairs.add(0, "there is no header", "imported without an id and without parents");
        }
        match &self.trailer {
            None => self.repairs.add(0, "there is no trailer: the writer did not finish", "read what is there"),
            Some((line, trailer)) => {
                let count = trailer.get("final_chunk_count").and_then(Value::as_u64);
                if count.is_some_and(|count| count != self.messages.len() as u64) {
                    let what = format!(
                        "the trailer counts {} chunks, the file has {}",
                        count.unwrap_or_default(),
                        self.messages.len()
                    );
                    self.repairs.add(*line, what, "read what is there");
                }
            }
        }
        let header = self.header.map(|(_, header)| header).unwrap_or_default();
        let list = header.get("parent_session_ids").and_then(Value::as_array).cloned().unwrap_or_default();
        let lineage = ["lineage_operator", "lineage_kind"];
        let repairs: Vec<Repair> = self.repairs.done();
        ParsedConversation {
            from: FORMAT,
            original: field(&header, "id"),
            created_at: field(&header, "created_at"),
            lineage: lineage.iter().filter_map(|name| field(&header, name)).collect(),
            parents: list.iter().map(text_of).collect(),
            trailer: self.trailer.map(|(_, trailer)| Value::Object(trailer).to_string()),
            messages: self.messages.into_values().map(|(said, _)| said).collect(),
            repairs,
        }
    }
}

/// The content of a chunk.
fn content_of(kind: &str, payload: &Value) -> Option<ImportedContent> {
    let payload = payload.as_object()?;
    let content = field(payload, "content");
    Some(match kind {
        "system" => ImportedContent::System(content?),
        "user" => ImportedContent::User(content?),
        "assistant" => {
            ImportedContent::Assistant { text: content.unwrap_or_default(), calls: calls(payload.get("tool_calls"))? }
        }
        "tool_result" => {
            ImportedContent::Result { call: field(payload, "tool_call_id")?, text: content.unwrap_or_default() }
        }
        _ => return None,
    })
}

/// Parses calls in the form of OpenAI's chat API; `None` if they have another form.
pub(super) fn calls(value: Option<&Value>) -> Option<Vec<ImportedCall>> {
    let list = match value {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(value) => value.as_array()?,
    };
    list.iter()
        .map(|call| {
            let function = call.get("function")?.as_object()?;
            Some(ImportedCall {
                id: field(call.as_object()?, "id")?,
                name: field(function, "name")?,
                arguments: field(function, "arguments").unwrap_or_default(),
            })
        })
        .collect()
}
