//! [`PathArguments`]: which arguments of a tool are file paths.

use std::fmt;

use serde_json::{Map, Value};

/// Which arguments of a tool are file paths. Policy rules about paths are matched against them.
///
/// ```
/// use rath_core::PathArguments;
///
/// let moves = PathArguments::named("from, to");
/// let edits = PathArguments::named("edits[].path");
/// let none = PathArguments::named("");
/// # let _ = (moves, edits, none);
/// ```
#[derive(Clone, Default)]
pub enum PathArguments {
    /// Unknown: any text in the arguments may be a path. Rules that deny or ask match if any text could match them;
    /// rules that allow a path never match.
    #[default]
    Unknown,
    /// The arguments with these names. A name may lead into objects and lists: `edits[].path`.
    Named(Vec<String>),
    /// The paths that this function returns, for paths inside a text such as a patch.
    Found(fn(&Value) -> Vec<String>),
}

impl PathArguments {
    /// The arguments with these names, separated by commas. Each is a text or a list of texts. An empty `names` means
    /// that no argument is a path.
    pub fn named(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self::Named(names.map(str::to_owned).collect())
    }

    /// The paths in the arguments of a call. A missing argument means the workspace itself, `.`.
    ///
    /// `None` if the paths are unknown: for [`Unknown`](Self::Unknown), if a named argument is neither a text nor a
    /// list of texts, or if there is an argument that `schema` does not have (it may be a misspelled name of a path
    /// argument).
    pub fn in_call(&self, schema: &Value, arguments: &Value) -> Option<Vec<String>> {
        let names = match self {
            Self::Unknown => return None,
            Self::Named(names) if names.is_empty() => return Some(Vec::new()),
            Self::Named(names) => Some(names),
            Self::Found(_) => None,
        };
        let known = schema.get("properties").and_then(Value::as_object);
        let empty = Map::new();
        let given = match arguments {
            Value::Object(given) => given,
            Value::Null => &empty,
            _ => return None,
        };
        if known.is_some_and(|known| given.keys().any(|key| !known.contains_key(key))) {
            return None;
        }
        let names = match (self, names) {
            (Self::Found(find), _) => return Some(find(arguments)),
            (_, names) => names?,
        };
        let mut paths = Vec::new();
        for name in names {
            let mut steps = name.split('.').map(|step| step.trim_end_matches("[]"));
            let first = steps.next()?;
            if known.is_some_and(|known| !known.contains_key(first)) {
                return None;
            }
            let rest: Vec<&str> = steps.collect();
            match given.get(first) {
                None | Some(Value::Null) => paths.push(".".into()),
                Some(value) => collect(value, &rest, &mut paths)?,
            }
        }
        Some(paths)
    }
}

/// Adds the texts that `steps` lead to. `None` if they lead to anything else.
fn collect(value: &Value, steps: &[&str], paths: &mut Vec<String>) -> Option<()> {
    match (value, steps) {
        (Value::Array(items), _) => items.iter().try_for_each(|item| collect(item, steps, paths)),
        (Value::String(path), []) => {
            paths.push(path.clone());
            Some(())
        }
        (Value::Object(fields), [step, rest @ ..]) => collect(fields.get(*step)?, rest, paths),
        _ => None,
    }
}

impl PartialEq for PathArguments {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, Self::Unknown) => true,
            (Self::Named(ours), Self::Named(theirs)) => ours == theirs,
            (Self::Found(ours), Self::Found(theirs)) => std::ptr::fn_addr_eq(*ours, *theirs),
            _ => false,
        }
    }
}

impl fmt::Debug for PathArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("Unknown"),
            Self::Named(names) => f.debug_tuple("Named").field(names).finish(),
            Self::Found(_) => f.write_str("Found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(names: &str, arguments: Value) -> Option<Vec<String>> {
        let properties = json!({ "from": {}, "to": {}, "edits": {}, "text": {} });
        PathArguments::named(names).in_call(&json!({ "type": "object", "properties": properties }), &arguments)
    }

    fn some(paths: &[&str]) -> Option<Vec<String>> {
        Some(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    #[test]
    fn named_arguments_are_texts_and_lists_at_any_depth() {
        assert_eq!(paths("from, to", json!({ "from": "a", "to": "b", "text": "c" })), some(&["a", "b"]));
        assert_eq!(paths("from", json!({ "from": ["a", "b"] })), some(&["a", "b"]));
        let edits = json!({ "edits": [{ "path": "a", "new": "x" }, { "path": "b" }] });
        assert_eq!(paths("edits[].path", edits.clone()), some(&["a", "b"]));
        assert_eq!(paths("edits.path", edits), some(&["a", "b"]));
        assert_eq!(paths("edits[].path", json!({ "edits": [] })), some(&[]));
        assert_eq!(paths("from.in", json!({ "from": { "in": "a" } })), some(&["a"]));
        assert_eq!(paths("", json!({ "from": "a", "strange": 1 })), some(&[]));
    }

    #[test]
    fn a_missing_argument_is_the_workspace() {
        assert_eq!(paths("from, to", json!({ "to": "b" })), some(&[".", "b"]));
        assert_eq!(paths("from", json!({ "from": null })), some(&["."]));
        assert_eq!(paths("from", Value::Null), some(&["."]));
    }

    #[test]
    fn undeterminable_paths_are_unknown() {
        for (names, arguments) in [
            ("from", json!({ "from": 1 })),
            ("from", json!({ "from": { "dir": "a" } })),
            ("from", json!(["a"])),
            ("edits[].path", json!({ "edits": [{ "file": "a" }] })),
            ("edits[].path", json!({ "edits": ["a"] })),
            // Perhaps another name of `from`.
            ("from", json!({ "source": "a" })),
            // The tool has no such argument.
            ("form", json!({ "from": "a" })),
        ] {
            assert_eq!(paths(names, arguments.clone()), None, "{names} in {arguments}");
        }
        assert_eq!(PathArguments::Unknown.in_call(&json!({}), &json!({ "path": "a" })), None);
    }
}
