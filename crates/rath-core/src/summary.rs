//! One-line summaries of records.

use crate::blob::Content;
use crate::body;
use crate::files::Changes;
use crate::record::Record;
use serde_json::Value;

/// Summarizes `record` in one line, without its time and point.
pub fn of(record: &Record) -> String {
    let kind = record.kind();
    let Some(bytes) = record.body_bytes() else { return format!("{kind}: (erased)") };
    let text = match body::read(kind, bytes) {
        Ok(Some(body)) => body.summary(record.session()),
        // A kind without a body type, or a free-form body from before its kind had one: show the JSON.
        Ok(None) | Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    };
    match one_line(&text) {
        text if text.is_empty() => kind.to_string(),
        text => format!("{kind}: {text}"),
    }
}

/// Lists the differences between two JSON values, one line for each path.
pub(crate) fn differences(then: &Value, now: &Value, path: &str, into: &mut Vec<String>) {
    let name = |value: &Value| value.get("name").and_then(Value::as_str).map(str::to_owned);
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (then, now) {
        (then, now) if then == now => {}
        (Value::Object(then), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<_> = then.keys().chain(now.keys()).collect();
            for key in keys {
                let (then, now) = (then.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null));
                differences(then, now, &below(key), into);
            }
        }
        (Value::Array(then), Value::Array(now)) if then.iter().chain(now).all(|value| name(value).is_some()) => {
            for gone in then.iter().filter(|value| !now.iter().any(|other| name(other) == name(value))) {
                into.push(format!("{path}: {} was removed", name(gone).unwrap_or_default()));
            }
            for value in now {
                match then.iter().find(|other| name(other) == name(value)) {
                    Some(other) => differences(other, value, &below(&name(value).unwrap_or_default()), into),
                    None => into.push(format!("{path}: {} was added", name(value).unwrap_or_default())),
                }
            }
        }
        (then, now) => {
            let short = |value: &Value| {
                let text = one_line(&value.to_string());
                if text.chars().count() > 200 {
                    format!("{}…", text.chars().take(200).collect::<String>())
                } else {
                    text
                }
            };
            into.push(format!("{path}: {} was recorded, now it is {}", short(then), short(now)));
        }
    }
}

/// Joins `text` to one line: every run of whitespace becomes one space.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

pub(crate) fn join(first: &str, then: &str) -> String {
    match (first, then) {
        ("", only) | (only, "") => only.to_owned(),
        (first, then) => format!("{first} {then}"),
    }
}

/// A tool call in one line: for `exec` the command line, for other tools the name and arguments.
pub(crate) fn call(tool: &str, content: Option<&Content>) -> String {
    match tool {
        "exec" => format!("$ {}", arguments(content)),
        _ => join(tool, &arguments(content)),
    }
}

/// The command line in the arguments of `exec`, or the arguments unchanged.
fn arguments(content: Option<&Content>) -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        argv: Option<Vec<String>>,
        shell: Option<String>,
    }
    let Some(content) = content else { return String::new() };
    let Content::Text(text) = content else { return content.to_string() };
    match serde_json::from_str::<Line>(text) {
        Ok(Line { shell: Some(shell), .. }) => shell,
        Ok(Line { argv: Some(argv), .. }) => argv.join(" "),
        _ => text.clone(),
    }
}

/// The changed files: up to three paths, otherwise the number of paths.
pub(crate) fn changed(changes: &Changes) -> String {
    match (changes.total, &changes.paths[..]) {
        (0, _) => String::new(),
        (1..=3, paths) if changes.is_complete() => {
            let paths: Vec<_> = paths.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect();
            format!("[{}]", paths.join(", "))
        }
        (total, _) => format!("[{total} paths]"),
    }
}
