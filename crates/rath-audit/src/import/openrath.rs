//! Session files of OpenRath (schema version 1): a header, a chunk for each thing said, a trailer.
//!
//! Its writer appends and may be started again on the same file; its loader then refuses what it finds. Read here is
//! whatever the lines say, and each place that is not as the format wants it is noted with what was done about it.

use std::collections::BTreeMap;

use rath_core::body::Repair;
use serde_json::{Map, Value};

use super::lines::{Repairs, field, not_text, objects, text_of};
use super::{Parsed, Said, ToolCall, Unreadable, What};

/// The name of the format.
pub const FORMAT: &str = "openrath";

/// The version of its files that is read.
const SCHEMA: u64 = 1;

type Object = Map<String, Value>;

/// Reads a session file.
pub fn read(bytes: &[u8]) -> Result<Parsed, Unreadable> {
    let mut repairs = Repairs::default();
    let objects = objects(bytes, Some("{\"record_type\":"), &mut repairs);
    let is_record = |object: &Object| {
        matches!(object.get("record_type").and_then(Value::as_str), Some("header" | "chunk" | "trailer"))
    };
    if !objects.iter().any(|(_, object)| is_record(object)) {
        return Err(Unreadable { line: 1, why: "there is no header and no chunk: not a session of OpenRath".into() });
    }
    let mut file = File { repairs, ..File::default() };
    for (line, object) in objects {
        match object.get("record_type").and_then(Value::as_str) {
            Some("header") => file.header(line, object)?,
            Some("chunk") => file.chunk(line, &object),
            Some("trailer") => file.trailer(line, object),
            other => {
                let what = format!("a record of type {:?}, which OpenRath does not have", other.unwrap_or("none"));
                file.repairs.add(line, what, "left out; it is in the source");
            }
        }
    }
    Ok(file.finish())
}

#[derive(Default)]
struct File {
    header: Option<(u64, Object)>,
    trailer: Option<(u64, Object)>,
    /// Whether chunks stand behind it.
    goes_on: bool,
    /// What was said, by its place.
    said: BTreeMap<Place, (Said, Value)>,
    repairs: Repairs,
}

/// Where a chunk stands: its index, and how many without one stand between it and the one with that index. Those before
/// any index have none.
type Place = (Option<u64>, u64);

impl File {
    fn header(&mut self, line: u64, object: Object) -> Result<(), Unreadable> {
        let mut read_as = |what: String| self.repairs.add(line, what, format!("read as version {SCHEMA}"));
        match object.get("schema_version") {
            None | Some(Value::Null) => read_as("the header has no schema version".into()),
            Some(version) => match text_of(version).parse() {
                Ok(SCHEMA) if version.is_number() => {}
                Ok::<u64, _>(SCHEMA) | Err(_) => {
                    read_as(format!("the header's schema version is no number: {version}"))
                }
                Ok(version) => {
                    let why = format!("the file has schema version {version}; this version of rath reads {SCHEMA}");
                    return Err(Unreadable { line, why });
                }
            },
        }
        match &self.header {
            None => {
                if !self.said.is_empty() {
                    self.repairs.add(line, "chunks stand before the header", "taken as they stand");
                }
                let names = ["id", "created_at", "lineage_operator", "lineage_kind"];
                self.repairs.not_text(line, "the header's", not_text(&object, &names));
                match object.get("parent_session_ids") {
                    None | Some(Value::Null) => {}
                    Some(Value::Array(parents)) if parents.iter().all(Value::is_string) => {}
                    Some(Value::Array(_)) => self.repairs.not_text(line, "of the header's", ["parent_session_ids"]),
                    Some(_) => {
                        let what = "the header's \"parent_session_ids\" is no list";
                        self.repairs.add(line, what, "left out; it is in the source");
                    }
                }
                self.header = Some((line, object));
            }
            Some((_, first)) if first.get("id") == object.get("id") => {
                self.repairs.add(line, "a second header: the writer was started again", "passed over");
            }
            Some((first, _)) => {
                let why = format!("another session begins here than in line {first}: one file is one session");
                return Err(Unreadable { line, why });
            }
        }
        Ok(())
    }

    fn chunk(&mut self, line: u64, object: &Object) {
        let last = self.said.last_key_value().map(|(last, _)| *last);
        let place = match object.get("index").and_then(Value::as_u64) {
            Some(index) => (Some(index), 0),
            None => {
                self.repairs.add(line, "the chunk has no index", "taken where it stands");
                last.map_or((None, 1), |(index, many)| (index, many + 1))
            }
        };
        let index = place.0.unwrap_or_default();
        let payload = object.get("payload").cloned().unwrap_or_default();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some(what) = said(kind, &payload) else {
            let what = format!("a chunk of kind {kind:?}, or a payload that does not fit it");
            self.repairs.add(line, what, "left out; it is in the source");
            return;
        };
        if let Value::Object(payload) = &payload {
            self.repairs.not_text(line, "the chunk's", not_text(payload, &["content", "tool_call_id"]));
            self.repairs.calls(line, payload);
        }
        if self.trailer.is_some() && !self.goes_on {
            self.goes_on = true;
            self.repairs.add(line, "a chunk stands behind the trailer", "taken where it stands");
        }
        let content = serde_json::json!([kind, payload]);
        match (self.said.get(&place), last) {
            (Some((_, before)), _) if *before == content => {
                self.repairs.add(line, format!("chunk {index} once more, with the same words"), "passed over");
                return;
            }
            (Some(_), _) => {
                let gone: Vec<u64> = self.said.split_off(&place).into_values().map(|(said, _)| said.line).collect();
                let (first, last) = (gone.iter().min().unwrap_or(&line), gone.iter().max().unwrap_or(&line));
                let which = match first == last {
                    true => format!("line {first} stays"),
                    false => format!("lines {first} to {last} stay"),
                };
                let how = format!("the later words hold; {which} in the source");
                self.repairs.add(line, format!("chunk {index} once more, with other words"), how);
            }
            (None, Some(last @ (Some(before), _))) if last > place => {
                let what = format!("chunk {index} stands behind chunk {before}");
                self.repairs.add(line, what, "taken in the order of the indexes");
            }
            (None, _) => {}
        }
        self.said.insert(place, (Said { line, time: None, what }, content));
    }

    /// Indexes that no chunk has.
    fn gaps(&mut self) {
        let mut next = 0;
        for ((index, many), (said, _)) in &self.said {
            // One without an index may be the one that is missing.
            let index = &index.filter(|_| *many == 0).unwrap_or(next);
            if *index > next {
                let missing =
                    if index - next == 1 { format!("{next} is") } else { format!("{next} to {} are", index - 1) };
                self.repairs.add(said.line, format!("chunk {index} comes next: {missing} missing"), "went on without");
            }
            next = index.saturating_add(1);
        }
    }

    fn trailer(&mut self, line: u64, object: Object) {
        if self.trailer.is_some() {
            self.repairs.add(line, "a second trailer", "the later one holds");
        }
        self.goes_on = false;
        self.trailer = Some((line, object));
    }

    fn finish(mut self) -> Parsed {
        self.gaps();
        if self.header.is_none() {
            self.repairs.add(0, "there is no header", "taken without an id and without parents");
        }
        match &self.trailer {
            None => {
                self.repairs.add(0, "there is no trailer: the writer did not come to its end", "took what is there")
            }
            Some((line, trailer)) => {
                let count = trailer.get("final_chunk_count").and_then(Value::as_u64);
                if count.is_some_and(|count| count != self.said.len() as u64) {
                    let what = format!(
                        "the trailer counts {} chunks, the file has {}",
                        count.unwrap_or_default(),
                        self.said.len()
                    );
                    self.repairs.add(*line, what, "took what is there");
                }
            }
        }
        let header = self.header.map(|(_, header)| header).unwrap_or_default();
        let list = header.get("parent_session_ids").and_then(Value::as_array).cloned().unwrap_or_default();
        let lineage = ["lineage_operator", "lineage_kind"];
        let repairs: Vec<Repair> = self.repairs.done();
        Parsed {
            from: FORMAT,
            original: field(&header, "id"),
            created_at: field(&header, "created_at"),
            lineage: lineage.iter().filter_map(|name| field(&header, name)).collect(),
            parents: list.iter().map(text_of).collect(),
            trailer: self.trailer.map(|(_, trailer)| Value::Object(trailer).to_string()),
            said: self.said.into_values().map(|(said, _)| said).collect(),
            repairs,
        }
    }
}

/// What a chunk says.
fn said(kind: &str, payload: &Value) -> Option<What> {
    let payload = payload.as_object()?;
    let content = field(payload, "content");
    Some(match kind {
        "system" => What::System(content?),
        "user" => What::User(content?),
        "assistant" => What::Assistant { text: content.unwrap_or_default(), calls: calls(payload.get("tool_calls"))? },
        "tool_result" => What::Result { call: field(payload, "tool_call_id")?, text: content.unwrap_or_default() },
        _ => return None,
    })
}

/// Calls as OpenAI's chat API has them; `None` when they are something else.
pub(super) fn calls(value: Option<&Value>) -> Option<Vec<ToolCall>> {
    let list = match value {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(value) => value.as_array()?,
    };
    list.iter()
        .map(|call| {
            let function = call.get("function")?.as_object()?;
            Some(ToolCall {
                id: field(call.as_object()?, "id")?,
                name: field(function, "name")?,
                arguments: field(function, "arguments").unwrap_or_default(),
            })
        })
        .collect()
}
