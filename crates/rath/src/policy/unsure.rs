//! The arguments of a tool that does not say which of them are paths.
//!
//! Rules that deny or ask apply to such a call if any text in its arguments could be a path that they name. More is taken
//! for a path here than is one: a rule that applies without need is seen at once, and the tool can say what its paths
//! are; a rule that is passed by is not seen.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::place::Place;

/// The largest number of texts that are joined with each other, and of places that are looked at. A call with more has
/// paths that cannot be told.
const MOST_TEXTS: usize = 64;
const MOST_PLACES: usize = 50_000;

/// Everything that could be a path. Empty if nothing could, or if there is too much to look at.
pub(super) fn places(arguments: &Value, root: Option<&Path>) -> Vec<Place> {
    let texts = texts(arguments);
    let mut found = BTreeSet::new();
    for text in &texts {
        found.insert((*text).to_owned());
        found.extend(words(text).map(str::to_owned));
        if found.len() > MOST_PLACES {
            return Vec::new();
        }
    }
    // A directory in one argument and a name in another.
    let short: Vec<&str> = texts.into_iter().filter(|text| text.len() < 256 && !text.contains('\n')).collect();
    if short.len() > MOST_TEXTS {
        return Vec::new();
    }
    for directory in &short {
        found.extend(short.iter().map(|name| format!("{directory}/{name}")));
    }
    // Where the tool looks for a path is not known either: it is matched as one that leads out of the workspace is.
    let places = found.iter().map(|text| match Place::of(text, root) {
        Place::Inside(path) | Place::Outside(path) => path,
    });
    let places: BTreeSet<String> = places.filter(|path| !path.is_empty()).collect();
    places.into_iter().map(Place::Outside).collect()
}

/// The first text that looks like a secret. A plain word in a sentence does not.
pub(super) fn secret(arguments: &Value) -> Option<String> {
    let texts = texts(arguments);
    let parts = texts.iter().flat_map(|text| {
        let parts = words(text).filter(|word| word.contains(['/', '.', '_', '-']));
        std::iter::once(*text).chain(parts)
    });
    let mut parts = parts.map(|part| Place::of(part, None));
    parts.find(Place::looks_secret).map(|place| place.names().to_owned())
}

/// The texts in a value, and the keys of objects, which may be paths too. Names of arguments are left out where they are
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

/// The parts of a text between white space and signs that are rare in names.
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
        places(&arguments, root).iter().map(|place| place.names().to_owned()).collect()
    }

    #[test]
    fn texts_are_found_wherever_they_are() {
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
    fn too_much_is_not_known() {
        let many: Vec<String> = (0..100).map(|at| format!("f{at}")).collect();
        assert_eq!(names(json!({ "files": many })), [""; 0]);
    }

    #[test]
    fn secrets_are_found_in_sentences_by_their_whole_names_alone() {
        assert!(secret(&json!({ "line": "cat .env" })).is_some());
        assert!(secret(&json!({ "from": "credentials" })).is_some());
        assert_eq!(secret(&json!({ "text": "it keeps secrets well" })), None);
    }
}
