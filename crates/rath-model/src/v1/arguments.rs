//! Version 1: arguments of calls, as the APIs accept them back. Frozen: see [`super`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// The arguments as an object. Missing arguments become an empty object. Anything that is not an object is wrapped into
/// one, verbatim: the model sees what it wrote, and the API does not reject it.
pub(crate) fn as_object(written: &str) -> Cow<'_, RawValue> {
    #[derive(Serialize)]
    struct Kept<'a> {
        arguments: &'a str,
    }
    let trimmed = match written.trim() {
        "" | "null" => "{}",
        trimmed => trimmed,
    };
    let object = Some(trimmed).filter(|json| json.starts_with('{')).map(serde_json::from_str::<&RawValue>);
    match object {
        Some(Ok(object)) => Cow::Borrowed(object),
        _ => Cow::Owned(to_raw_value(&Kept { arguments: written }).unwrap_or_else(|_| RawValue::NULL.to_owned())),
    }
}

/// The arguments as the text of an object.
pub(crate) fn as_text(written: &str) -> Cow<'_, str> {
    match as_object(written) {
        Cow::Borrowed(object) if object.get().len() == written.len() => Cow::Borrowed(written),
        object => Cow::Owned(object.get().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        let object = |written| as_object(written).get().to_owned();
        assert_eq!(object(r#"{"a": 1.50}"#), r#"{"a": 1.50}"#);
        assert_eq!([object(""), object("  "), object("null")], ["{}", "{}", "{}"]);
        assert_eq!(object(r#"{"a": "#), r#"{"arguments":"{\"a\": "}"#);
        assert_eq!(object("[1]"), r#"{"arguments":"[1]"}"#);
        assert_eq!(as_text(r#" {"a":1}"#), r#"{"a":1}"#);
    }
}
