//! A one-line description of a tool call.

use serde_json::Value;

use crate::commands::log::clip;

/// The maximum length in characters.
const MAX_LENGTH: usize = 160;

/// The command, path or pattern of a call; for other tools, the arguments.
pub(crate) fn headline(tool: &str, arguments: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(arguments) else { return clip(arguments, MAX_LENGTH) };
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let described = match tool {
        "shell" => text("command").map(str::to_owned).or_else(|| {
            let job = |key: &str| text(key).map(|job| format!("{key} {job}"));
            job("poll").or_else(|| job("kill"))
        }),
        "read" => text("path").map(|path| match (number("offset"), number("limit")) {
            (None, None) => path.to_owned(),
            (offset, limit) => {
                let first = offset.unwrap_or(1);
                let last =
                    limit.map(|limit| first.saturating_add(limit).saturating_sub(1).to_string()).unwrap_or_default();
                format!("{path}:{first}-{last}")
            }
        }),
        "write" | "edit" => text("path").map(str::to_owned),
        "ls" => Some(text("path").unwrap_or(".").to_owned()),
        "glob" | "grep" => text("pattern").map(|pattern| match text("path").or_else(|| text("glob")) {
            Some(place) => format!("{pattern} in {place}"),
            None => pattern.to_owned(),
        }),
        "apply_patch" => text("patch").map(patched),
        "todo" => value.get("items").and_then(Value::as_array).map(|items| format!("{} items", items.len())),
        "ask_human" => text("question").map(str::to_owned),
        _ => None,
    };
    clip(&described.unwrap_or_else(|| arguments.to_owned()), MAX_LENGTH)
}

/// The files that a patch names.
fn patched(patch: &str) -> String {
    let named = |line: &str| {
        let file = ["*** Update File: ", "*** Add File: ", "*** Delete File: "];
        file.iter().find_map(|begin| line.strip_prefix(begin)).map(str::to_owned)
    };
    patch.lines().filter_map(named).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_described_by_its_main_argument() {
        for (tool, arguments, expected) in [
            ("shell", r#"{"command":"cargo test"}"#, "cargo test"),
            ("shell", r#"{"poll":"job-1"}"#, "poll job-1"),
            ("read", r#"{"path":"a.rs"}"#, "a.rs"),
            ("read", r#"{"path":"a.rs","offset":10,"limit":5}"#, "a.rs:10-14"),
            (
                "read",
                r#"{"path":"a","offset":18446744073709551615,"limit":2}"#,
                "a:18446744073709551615-18446744073709551614",
            ),
            ("ls", "{}", "."),
            ("grep", r#"{"pattern":"x","path":"src"}"#, "x in src"),
            ("apply_patch", r#"{"patch":"*** Begin Patch\n*** Add File: a\n+x\n*** Update File: b\n"}"#, "a, b"),
            ("todo", r#"{"items":[1,2]}"#, "2 items"),
            ("weather", r#"{"city":"Oslo"}"#, r#"{"city":"Oslo"}"#),
            ("shell", "not json", "not json"),
            ("shell", r#"{"command":7}"#, r#"{"command":7}"#),
        ] {
            assert_eq!(headline(tool, arguments), expected);
        }
    }
}
