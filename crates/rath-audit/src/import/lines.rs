//! Parses files of JSON lines that may be damaged.

use rath_core::body::Repair;
use serde_json::{Map, Value};

/// The number of repairs that are listed individually; more are only counted.
const LISTED: usize = 1000;

/// The repairs made while reading a file.
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

    /// Adds a repair for each of these fields, which should be text: their JSON was used as text.
    pub(super) fn not_text<'a>(&mut self, line: u64, whose: &str, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            self.add(line, format!("{whose} {name:?} is not text"), "its JSON is used as text");
        }
    }

    /// Adds such repairs for the calls in a payload.
    pub(super) fn calls(&mut self, line: u64, payload: &Map<String, Value>) {
        let calls = payload.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for call in calls.filter_map(Value::as_object) {
            self.not_text(line, "a call's", not_text(call, &["id"]));
            if let Some(function) = call.get("function").and_then(Value::as_object) {
                self.not_text(line, "a call's", not_text(function, &["name", "arguments"]));
            }
        }
    }

    /// The repairs, sorted by line; those about the whole file come last.
    pub(super) fn done(mut self) -> Vec<Repair> {
        self.list.sort_by_key(|repair| (repair.line == 0, repair.line));
        if self.more > 0 {
            let what = format!("{} more repairs", self.more);
            self.list.push(Repair { line: 0, what, how: "not listed individually".into() });
        }
        self.list
    }
}

/// The JSON objects in a file, each with its line number. Only line feeds end a line. Lines that are not objects are
/// omitted, with a repair. If a truncated line continues with a new object that starts with `mark`, that object is
/// read.
pub(super) fn objects(bytes: &[u8], mark: Option<&str>, repairs: &mut Repairs) -> Vec<(u64, Map<String, Value>)> {
    let mut bytes = bytes;
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        repairs.add(1, "the file starts with a byte order mark", "skipped");
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
                    let what = "the line has a truncated object followed by a complete one";
                    repairs.add(number, what, "read the complete one; the other is in the source file");
                    Ok(object)
                }
                _ => Err(why),
            },
            (read, _) => read,
        };
        match read {
            Ok(object) => {
                if last && !whole {
                    repairs.add(number, "the last line has no line feed", "read; it is complete");
                }
                found.push((number, object));
            }
            Err(why) if last && !whole => {
                repairs.add(number, format!("the last line is truncated: {why}"), "omitted; it is in the source file");
            }
            Err(why) => repairs.add(number, why, "omitted; it is in the source file"),
        }
    }
    found
}

fn object(line: &[u8], number: u64, repairs: &mut Repairs) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    for (separator, name) in [('\u{85}', "U+0085"), ('\u{2028}', "U+2028"), ('\u{2029}', "U+2029")] {
        if text.contains(separator) {
            let what = format!("the text has {name}, where some readers end the line");
            repairs.add(number, what, "read as part of the text");
        }
    }
    let read = match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => match without_unpaired_surrogates(text).map(|repaired| serde_json::from_str(&repaired)) {
            Some(Ok(value)) => {
                repairs.add(number, "the text has an unpaired surrogate", "replaced by U+FFFD");
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

/// Replaces escapes of unpaired surrogates, which Python writes and JSON does not allow, by U+FFFD; `None` if there are
/// none.
fn without_unpaired_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let escape = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let (mut repaired, mut from, mut at, mut found) = (String::new(), 0, 0, false);
    while at < bytes.len() {
        match (bytes[at], escape(at)) {
            (_, Some(0xd800..=0xdbff)) if matches!(escape(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            (_, Some(0xd800..=0xdfff)) => {
                repaired.push_str(text.get(from..at)?);
                repaired.push_str("\\ufffd");
                (at, found) = (at + 6, true);
                from = at;
            }
            (b'\\', None) => at += 2,
            (_, Some(_)) => at += 6,
            _ => at += 1,
        }
    }
    repaired.push_str(text.get(from..)?);
    found.then_some(repaired)
}

/// A value as text: a string as it is, anything else as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Those of these fields that have a value which is not text.
pub(super) fn not_text<'a>(object: &Map<String, Value>, names: &[&'a str]) -> Vec<&'a str> {
    let is_other = |name: &&&str| object.get(**name).is_some_and(|value| !value.is_null() && !value.is_string());
    names.iter().filter(is_other).copied().collect()
}

/// A field as text; `None` if it is missing or null.
pub(super) fn field(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name).filter(|value| !value.is_null()).map(text_of)
}
