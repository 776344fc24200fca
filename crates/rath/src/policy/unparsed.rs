//! Possible paths in the arguments of a tool whose specification does not say which arguments are paths.
//!
//! A rule that denies or asks applies to such a call if any text in its arguments could be a path that the rule names.
//! This finds too many paths rather than too few. A rule that applies without need is noticed at once, and the tool can
//! declare its paths; a rule that is bypassed is not noticed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::path_ref::PathRef;

/// The largest numbers of texts that are joined with each other, and of candidate paths. For a call with more, the
/// paths are unknown.
const MOST_TEXTS: usize = 64;
const MOST_PLACES: usize = 50_000;

/// Every text that could be a path. Empty if there is none, or if there are too many.
pub(super) fn path_refs(arguments: &Value, root: Option<&Path>) -> Vec<PathRef> {
    let texts = texts(arguments);
    let mut found = BTreeSet::new();
    for text in &texts {
        found.insert((*text).to_owned());
        found.extend(words(text).map(str::to_owned));
        if found.len() > MOST_PLACES {
            return Vec::new();
        }
    }
    // The directory may be in one argument and the file name in another.
    let short: Vec<&str> = texts.into_iter().filter(|text| text.len() < 256 && !text.contains('\n')).collect();
    if short.len() > MOST_TEXTS {
        return Vec::new();
    }
    for directory in &short {
        found.extend(short.iter().map(|name| format!("{directory}/{name}")));
    }
    // The tool may resolve paths against any directory, so they are matched like paths outside the workspace.
    let path_refs = found.iter().map(|text| match PathRef::of(text, root) {
        PathRef::Inside(path) | PathRef::Outside(path) => path,
    });
    let path_refs: BTreeSet<String> = path_refs.filter(|path| !path.is_empty()).collect();
    path_refs.into_iter().map(PathRef::Outside).collect()
}

/// The first text that looks like a secret. A plain word within a sentence is not one.
pub(super) fn secret(arguments: &Value) -> Option<String> {
    let texts = texts(arguments);
    let parts = texts.iter().flat_map(|text| {
        let parts = words(text).filter(|word| word.contains(['/', '.', '_', '-']));
        std::iter::once(*text).chain(parts)
    });
    let mut parts = parts.map(|part| PathRef::of(part, None));
    parts.find(PathRef::looks_secret).map(|path_ref| path_ref.names().to_owned())
}

/// The strings in a value, and the keys of objects, which may be paths too. Argument names are left out if they are
/// plain words.
fn texts(arguments: &Value) -> BTreeSet<&str> {
    let mut texts = BTreeSet::new();
    let mut open = Vec::new();
    match arguments {
        Value::Object(fields) => {
            let is_plain = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            texts.extend(fields.keys().map(String::as_str).filter(|key| !is_plain(key)));
            open.extend(fields.values());
        }
        other => open.push(other),
    }
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => {
                texts.insert(text.as_str());
            }
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                texts.extend(fields.keys().map(String::as_str));
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    texts
}

/// The parts of a text between white space and punctuation that is rare in file names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || c.is_control() || "\"'`,;:=()<>|&{}[]!?*$\\".contains(c);
    text.split(is_end).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(arguments: Value) -> Vec<String> {
        let root = Some(Path::new("/home/ada/shop"));
        path_refs(&arguments, root).iter().map(|path_ref| path_ref.names().to_owned()).collect()
    }

    #[test]
    fn paths_are_found_at_any_depth_of_the_arguments() {
        for arguments in [
            json!({ "file": "private/a" }),
            json!({ "x": { "y": [1, { "z": "private/a" }] } }),
            json!({ "files": { "private/a": "content" } }),
            json!({ "private/a": 1 }),
            json!({ "run": "cp private/a b" }),
            json!({ "url": "file:///home/ada/shop/private/a" }),
            json!({ "file": "/home/ada/shop/x/../private/a" }),
            json!({ "dir": "private", "name": "a" }),
            json!({ "json": r#"{"path":"private/a"}"# }),
        ] {
            assert!(names(arguments.clone()).iter().any(|name| name.ends_with("private/a")), "{arguments}");
        }
        assert_eq!(names(json!({})), [""; 0]);
        assert_eq!(names(json!({ "private": 7 })), [""; 0]);
    }

    #[test]
    fn with_too_many_texts_the_paths_are_unknown() {
        let many: Vec<String> = (0..100).map(|at| format!("f{at}")).collect();
        assert_eq!(names(json!({ "files": many })), [""; 0]);
    }

    #[test]
    fn in_a_sentence_only_whole_file_names_are_secrets() {
        assert!(secret(&json!({ "line": "cat .env" })).is_some());
        assert!(secret(&json!({ "from": "credentials" })).is_some());
        assert_eq!(secret(&json!({ "text": "it keeps secrets well" })), None);
    }
}
