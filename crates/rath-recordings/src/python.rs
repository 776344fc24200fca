//! Formats JSON values as Python does, for its error texts, and parses truncated JSON as the Python client does.

use std::fmt::Write as _;

use serde_json::Value;
use serde_json::value::RawValue;

use rath_model::Fields;

fn items_of(value: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// The text of a string. An unpaired surrogate becomes a replacement character.
fn text_of(value: &RawValue) -> String {
    let fields = Fields::parse(&format!("{{\"text\":{}}}", value.get()));
    fields.ok().and_then(|fields| fields.text("text")).unwrap_or_default()
}

/// A JSON value as Python prints it.
pub(super) fn repr(value: &RawValue) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &RawValue, out: &mut String) {
    match value.get() {
        "null" => out.push_str("None"),
        "true" => out.push_str("True"),
        "false" => out.push_str("False"),
        text if text.starts_with('"') => quoted(&text_of(value), out),
        text if text.starts_with('[') => {
            out.push('[');
            for (at, item) in items_of(value).into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write(item, out);
            }
            out.push(']');
        }
        text if text.starts_with('{') => {
            out.push('{');
            for (at, (key, item)) in Fields::parse(value.get()).unwrap_or_default().iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                quoted(key, out);
                out.push_str(": ");
                write(item, out);
            }
            out.push('}');
        }
        number => out.push_str(&float(number).unwrap_or_else(|| number.to_owned())),
    }
}

/// A number with a fraction or an exponent: very small and very large ones have an exponent of at least two digits.
fn float(number: &str) -> Option<String> {
    let value: f64 = number.contains(['.', 'e', 'E']).then(|| number.parse().ok())??;
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    Some(match exponent {
        -4..16 => format!("{value:?}"),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    })
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if !is_printable(c) => {
                let _ = match c as u32 {
                    code @ ..0x100 => write!(out, "\\x{code:02x}"),
                    code @ ..0x10000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Rust escapes the same characters, except that a combining mark must follow a letter.
fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || ['a', c].iter().collect::<String>().escape_debug().count() == 2
}

/// Parses truncated JSON: complete values count, an unfinished string at the end does not.
pub(super) fn parse_truncated(json: &str) -> Option<Value> {
    let mut ends: Vec<usize> = json.char_indices().map(|(at, _)| at).filter(|at| *at > 0).collect();
    ends.push(json.len());
    ends.into_iter().rev().find_map(|end| closed(&json[..end]))
}

/// Parses the text with its open objects and lists closed.
fn closed(json: &str) -> Option<Value> {
    let mut open = Vec::new();
    let (mut within, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            _ if within => {}
            b'{' => open.push('}'),
            b'[' => open.push(']'),
            b'}' | b']' => drop(open.pop()),
            _ => {}
        }
    }
    let text = json.trim_end().trim_end_matches(',');
    if within {
        return None;
    }
    let whole: String = text.chars().chain(open.into_iter().rev()).collect();
    serde_json::from_str(&whole).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_python_does() {
        let json = r#"{"a":[1,1.50,0.00007159,1e16,true,null,"it's","\"it's\"","é\n\u200b\u0007"],"b":{}}"#;
        let raw = RawValue::from_string(json.into()).unwrap();
        assert_eq!(
            repr(&raw),
            r#"{'a': [1, 1.5, 7.159e-05, 1e+16, True, None, "it's", '"it\'s"', 'é\n\u200b\x07'], 'b': {}}"#
        );
    }

    #[test]
    fn complete_values_of_truncated_json_are_kept() {
        assert_eq!(parse_truncated(r#"{"a": "x", "b": "y"#), Some(json!({"a": "x"})));
        assert_eq!(parse_truncated(r#"{"a": [1, 2"#), Some(json!({"a": [1, 2]})));
        assert_eq!(parse_truncated(r#"{"a": {"b": true"#), Some(json!({"a": {"b": true}})));
        assert_eq!(parse_truncated(r#"{"#), Some(json!({})));
    }
}
