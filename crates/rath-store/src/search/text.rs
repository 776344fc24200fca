//! What people can read of a record: the texts in its body, and in the blobs that it names.

use rath_core::{BlobRef, Kind, Record};
use serde::Deserialize as _;
use serde_json::Value;

/// Of a longer text, this much is read.
pub(crate) const LONGEST: usize = 1024 * 1024;

/// Of all texts of a record together, this much.
const MOST: usize = 4 * LONGEST;

/// A text of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// What it is in the body: the field, or the stream of an output.
    pub field: String,
    /// The text.
    pub text: String,
    /// Whether there is more of it than was read.
    pub cut: bool,
}

/// Fields of the kinds we know that say nothing to a reader: names of things, and what is said again elsewhere.
const UNREAD: &[&str] = &[
    "sent",
    "raw",
    "image",
    "call",
    "calls",
    "id",
    "type",
    "effect",
    "outcome",
    "order",
    "workspace",
    "rules",
    "shown_digest",
    "request",
    "encoder",
    "rule",
    "previous",
    "post",
    "edition",
    "api",
    "media_type",
    "copies",
    "sandbox",
    "prices",
    "about",
    "role",
    "stop",
    "source",
];

/// Reads the beginning of a blob: at most so many bytes, and whether there are more. `None` when it is not there.
pub(crate) type ReadBlob<'a> = dyn FnMut(&BlobRef, usize) -> Option<(Vec<u8>, bool)> + 'a;

/// The texts of a record, in the order of its fields; none when it was erased. The second value says that a blob could
/// not be read.
pub(crate) fn of(record: &Record, blobs: &mut ReadBlob<'_>) -> (Vec<Passage>, bool) {
    let mut reading = Reading {
        blobs,
        known: !matches!(record.kind(), Kind::Other(_)),
        passages: Vec::new(),
        room: MOST,
        lost: false,
    };
    match record.body_bytes().map(serde_json::from_slice::<Value>) {
        Some(Ok(body)) => reading.value("", &body),
        // A body of another program that is no JSON.
        Some(Err(_)) => reading.text("", &String::from_utf8_lossy(record.body_bytes().unwrap_or_default()), false),
        None => {}
    }
    (reading.passages, reading.lost)
}

struct Reading<'a, 'b> {
    blobs: &'a mut ReadBlob<'b>,
    known: bool,
    passages: Vec<Passage>,
    /// Bytes that may still be read.
    room: usize,
    lost: bool,
}

impl Reading<'_, '_> {
    fn value(&mut self, field: &str, value: &Value) {
        match value {
            Value::String(text) if field == "arguments" => self.arguments(text),
            Value::String(text) => self.text(field, text, false),
            Value::Array(items) => items.iter().for_each(|item| self.value(field, item)),
            Value::Object(fields) => {
                if let Ok(blob) = BlobRef::deserialize(value) {
                    return self.blob(field, &blob);
                }
                let stream = fields.get("stream").and_then(Value::as_str);
                for (name, value) in fields {
                    // What a path was and is has a digest; what a thing elsewhere was and is has words.
                    let is_node = matches!(name.as_str(), "before" | "after") && value.is_object();
                    let unread = self.known && (UNREAD.contains(&name.as_str()) || name == "stream" || is_node);
                    if !unread {
                        let said = if matches!(name.as_str(), "text" | "blob") { stream } else { None };
                        self.value(said.unwrap_or(name), value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A model's JSON: its texts as they are meant, not as they are written.
    fn arguments(&mut self, text: &str) {
        match serde_json::from_str::<Value>(text) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => {
                let known = std::mem::replace(&mut self.known, false);
                self.value("arguments", &value);
                self.known = known;
            }
            _ => self.text("arguments", text, false),
        }
    }

    fn blob(&mut self, field: &str, blob: &BlobRef) {
        let media_type = blob.media_type.split(';').next().unwrap_or_default().trim();
        let unread = ["image/", "audio/", "video/", "font/"].iter().any(|kind| media_type.starts_with(kind));
        if unread
            || matches!(media_type, rath_core::files::TREE | "application/pdf" | "application/zip")
            || self.room == 0
        {
            return;
        }
        let Some((bytes, mut cut)) = (self.blobs)(blob, LONGEST) else {
            self.lost = true;
            return;
        };
        if bytes.contains(&0) {
            return;
        }
        if media_type == "application/json"
            && !cut
            && let Ok(value) = serde_json::from_slice::<Value>(&bytes)
        {
            return self.value(field, &value);
        }
        let text = String::from_utf8_lossy(&bytes);
        // What was cut in the middle of a character.
        let text = if cut { text.trim_end_matches('\u{fffd}') } else { &text };
        cut |= text.len() > self.room;
        self.text(field, text, cut);
    }

    fn text(&mut self, field: &str, text: &str, cut: bool) {
        if text.is_empty() || names_something(text) || self.room == 0 {
            return;
        }
        let length = text.floor_char_boundary(text.len().min(LONGEST).min(self.room));
        self.room -= length;
        let cut = cut || length < text.len();
        self.passages.push(Passage { field: field.to_owned(), text: text[..length].to_owned(), cut });
    }
}

/// Whether it is a digest or the name of a session: nobody looks for those as words.
fn names_something(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match text.len() {
        64 => hex(text),
        36 => text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && hex(&text.replace('-', "")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_words() {
        assert!(names_something(&"a1".repeat(32)));
        assert!(names_something("01a1e1bc-9575-7083-8e1d-7744d87f2e67"));
        assert!(!names_something("a word of thirty-six characters, yes"));
    }
}
