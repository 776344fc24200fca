//! Lines of JSON that may be damaged.

use rath_core::body::Repair;
use serde_json::{Map, Value};

/// Repairs that are listed one by one; the others are counted.
const LISTED: usize = 1000;

/// What was repaired in a file.
#[derive(Default)]
pub(super) struct Repairs {
    list: Vec<Repair>,
    more: u64,
}

impl Repairs {
    pub(super) fn add(&mut self, line: u64, what: impl Into<String>, how: impl Into<String>) {
        match self.list.len() < LISTED {
            true => self.list.push(Repair { line, what: what.into(), how: how.into() }),
            false => self.more += 1,
        }
    }

    /// Notes fields that should be text, and are taken as the JSON that they are.
    pub(super) fn not_text<'a>(&mut self, line: u64, whose: &str, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            self.add(line, format!("{whose} {name:?} is not text"), "its JSON is taken for its text");
        }
    }

    /// The same of the calls in a payload.
    pub(super) fn calls(&mut self, line: u64, payload: &Map<String, Value>) {
        let calls = payload.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for call in calls.filter_map(Value::as_object) {
            self.not_text(line, "a call's", not_text(call, &["id"]));
            if let Some(function) = call.get("function").and_then(Value::as_object) {
                self.not_text(line, "a call's", not_text(function, &["name", "arguments"]));
            }
        }
    }

    /// They, in the order of the lines; what is said of the whole file comes last.
    pub(super) fn done(mut self) -> Vec<Repair> {
        self.list.sort_by_key(|repair| (repair.line == 0, repair.line));
        if self.more > 0 {
            let what = format!("{} more such places", self.more);
            self.list.push(Repair { line: 0, what, how: "done likewise".into() });
        }
        self.list
    }
}

/// The objects in a file, each with its line. Lines end at line feeds and nowhere else. What is no object is left out, and
/// that is noted. A line that was cut, and went on with a new one that begins with `mark`, is read from there.
pub(super) fn objects(bytes: &[u8], mark: Option<&str>, repairs: &mut Repairs) -> Vec<(u64, Map<String, Value>)> {
    let mut bytes = bytes;
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        repairs.add(1, "the file begins with a byte order mark", "passed over");
        bytes = rest;
    }
    let mut found = Vec::new();
    let whole = bytes.ends_with(b"\n");
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let (number, last) = (at as u64 + 1, at + 1 == lines.len());
        if line.trim_ascii().is_empty() {
            continue;
        }
        let read = object(line, number, repairs);
        let behind = || mark.and_then(|mark| memchr::memmem::rfind(line, mark.as_bytes())).filter(|at| *at > 0);
        let read = match (read, behind) {
            (Err(why), behind) => match behind().map(|at| object(&line[at..], number, repairs)) {
                Some(Ok(object)) => {
                    let what = "a line that was cut off and a whole one stand in one line";
                    repairs.add(number, what, "read the whole one; the other is in the source");
                    Ok(object)
                }
                _ => Err(why),
            },
            (read, _) => read,
        };
        match read {
            Ok(object) => {
                if last && !whole {
                    repairs.add(number, "the last line has no end", "it is whole, and was read");
                }
                found.push((number, object));
            }
            Err(why) if last && !whole => {
                repairs.add(number, format!("the last line is cut off: {why}"), "left out; it is in the source");
            }
            Err(why) => repairs.add(number, why, "left out; it is in the source"),
        }
    }
    found
}

fn object(line: &[u8], number: u64, repairs: &mut Repairs) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    for (separator, name) in [('\u{85}', "U+0085"), ('\u{2028}', "U+2028"), ('\u{2029}', "U+2029")] {
        if text.contains(separator) {
            let what = format!("the text has {name}, where some readers end the line");
            repairs.add(number, what, "read as a part of the text");
        }
    }
    let read = match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => match without_halves(text).map(|mended| serde_json::from_str(&mended)) {
            Some(Ok(value)) => {
                repairs.add(number, "the text has half a character", "U+FFFD stands in its place");
                Ok(value)
            }
            _ => Err(error),
        },
    };
    match read {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is not a JSON object".into()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

/// The text with U+FFFD for escapes of half a character, which Python writes and JSON does not have; `None` without any.
fn without_halves(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let escape = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let (mut mended, mut from, mut at, mut found) = (String::new(), 0, 0, false);
    while at < bytes.len() {
        match (bytes[at], escape(at)) {
            (_, Some(0xd800..=0xdbff)) if matches!(escape(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            (_, Some(0xd800..=0xdfff)) => {
                mended.push_str(text.get(from..at)?);
                mended.push_str("\\ufffd");
                (at, found) = (at + 6, true);
                from = at;
            }
            (b'\\', None) => at += 2,
            (_, Some(_)) => at += 6,
            _ => at += 1,
        }
    }
    mended.push_str(text.get(from..)?);
    found.then_some(mended)
}

/// A field as text: a string as it is, anything else as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Those of some fields that have a value which is not text.
pub(super) fn not_text<'a>(object: &Map<String, Value>, names: &[&'a str]) -> Vec<&'a str> {
    let is_other = |name: &&&str| object.get(**name).is_some_and(|value| !value.is_null() && !value.is_string());
    names.iter().filter(is_other).copied().collect()
}

/// A field as text, where it is there and not null.
pub(super) fn field(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name).filter(|value| !value.is_null()).map(text_of)
}
