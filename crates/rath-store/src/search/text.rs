//! The searchable texts of a record: those in its body, and those in the blobs that it refers to.

use rath_core::{BlobRef, Kind, Record};
use serde::Deserialize as _;
use serde_json::Value;

/// The most bytes of one text that are read.
pub(crate) const MAX_TEXT: usize = 1024 * 1024;

/// The most bytes of all texts of a record that are read.
const MAX_RECORD: usize = 4 * MAX_TEXT;

/// A text of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The field of the body, or the stream of an output (`stdout`, `stderr`).
    pub field: String,
    /// The text.
    pub text: String,
    /// Whether only the beginning of the text was read.
    pub cut: bool,
}

/// Fields of known kinds that are not searched: identifiers, and text that is repeated in another field.
const SKIPPED: &[&str] = &[
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

/// Reads the beginning of a blob: at most the given number of bytes, and whether it has more. `None` if the blob cannot
/// be read.
pub(crate) type ReadBlob<'a> = dyn FnMut(&BlobRef, usize) -> Option<(Vec<u8>, bool)> + 'a;

/// The texts of a record, in the order of its fields; none if its body was erased. The second value is whether a blob
/// could not be read.
pub(crate) fn of(record: &Record, blobs: &mut ReadBlob<'_>) -> (Vec<Passage>, bool) {
    let mut reading = Reading {
        blobs,
        known: !matches!(record.kind(), Kind::Other(_)),
        passages: Vec::new(),
        remaining: MAX_RECORD,
        lost: false,
    };
    match record.body_bytes().map(serde_json::from_slice::<Value>) {
        Some(Ok(body)) => reading.value("", &body),
        // A body that is not JSON, written by another program.
        Some(Err(_)) => reading.text("", &String::from_utf8_lossy(record.body_bytes().unwrap_or_default()), false),
        None => {}
    }
    (reading.passages, reading.lost)
}

struct Reading<'a, 'b> {
    blobs: &'a mut ReadBlob<'b>,
    known: bool,
    passages: Vec<Passage>,
    /// How many more bytes may be read.
    remaining: usize,
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
                    // In a change of files, `before` and `after` are objects with digests. In other kinds they are
                    // text.
                    let is_node = matches!(name.as_str(), "before" | "after") && value.is_object();
                    let skipped = self.known && (SKIPPED.contains(&name.as_str()) || name == "stream" || is_node);
                    if !skipped {
                        let name_in_passage = if matches!(name.as_str(), "text" | "blob") { stream } else { None };
                        self.value(name_in_passage.unwrap_or(name), value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Reads the string values of a call's arguments, which are JSON text.
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
        let skipped = ["image/", "audio/", "video/", "font/"].iter().any(|kind| media_type.starts_with(kind));
        if skipped
            || matches!(media_type, rath_core::files::TREE | "application/pdf" | "application/zip")
            || self.remaining == 0
        {
            return;
        }
        let Some((bytes, mut cut)) = (self.blobs)(blob, MAX_TEXT) else {
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
        // The cut may have split a character.
        let text = if cut { text.trim_end_matches('\u{fffd}') } else { &text };
        cut |= text.len() > self.remaining;
        self.text(field, text, cut);
    }

    fn text(&mut self, field: &str, text: &str, cut: bool) {
        if text.is_empty() || is_identifier(text) || self.remaining == 0 {
            return;
        }
        let length = text.floor_char_boundary(text.len().min(MAX_TEXT).min(self.remaining));
        self.remaining -= length;
        let cut = cut || length < text.len();
        self.passages.push(Passage { field: field.to_owned(), text: text[..length].to_owned(), cut });
    }
}

/// Whether a text is a digest or a session id, which are not searched.
fn is_identifier(text: &str) -> bool {
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
    fn identifiers_are_not_indexed() {
        assert!(is_identifier(&"a1".repeat(32)));
        assert!(is_identifier("01a1e1bc-9575-7083-8e1d-7744d87f2e67"));
        assert!(!is_identifier("a word of thirty-six characters, yes"));
    }
}
