//! Version 1: schemas of tools and of answers, as they are written into requests. Frozen: see [`super`].

use rath_core::ToolSpec;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The schema of a tool's arguments, with sorted keys: the same bytes however the program was built.
pub(crate) fn schema(tool: &ToolSpec) -> Box<RawValue> {
    in_order(&tool.schema)
}

fn in_order(schema: &impl Serialize) -> Box<RawValue> {
    let written = serde_jcs::to_string(schema).and_then(RawValue::from_string);
    written.unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Whether an API accepts limits of numbers, texts and lists in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    Taken,
    Refused,
}

/// The schema of an answer in the form that providers require: objects are closed, and all their fields are required.
pub(crate) fn answer_schema(schema: &Value, limits: Limits) -> Box<RawValue> {
    let mut schema = schema.clone();
    close(&mut schema, limits);
    if let Value::Object(fields) = &mut schema {
        fields.remove("$schema");
    }
    in_order(&schema)
}

/// Keywords that some APIs reject.
const LIMITS: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
];
/// Keywords whose values are objects of schemas.
const NAMED: &[&str] = &["properties", "$defs", "definitions"];
/// Keywords whose values are one schema or several.
const WITHIN: &[&str] = &["items", "prefixItems", "anyOf", "oneOf", "allOf"];

fn close(schema: &mut Value, limits: Limits) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| close(schema, limits)),
        Value::Object(fields) => {
            if limits == Limits::Refused {
                fields.retain(|key, _| !LIMITS.contains(&key.as_str()));
            }
            // Formats of numbers (`uint32`) are from the Rust schema generator; providers do not know them.
            if fields.get("type").is_some_and(|kind| kind.to_string().contains("integer") || kind == "number") {
                fields.remove("format");
            }
            for key in NAMED {
                let named = fields.get_mut(*key).and_then(Value::as_object_mut);
                named.into_iter().flatten().for_each(|(_, schema)| close(schema, limits));
            }
            for key in WITHIN {
                fields.get_mut(*key).into_iter().for_each(|schema| close(schema, limits));
            }
            if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
                let names: Vec<Value> = properties.keys().map(|name| name.as_str().into()).collect();
                fields.insert("required".into(), names.into());
                fields.insert("additionalProperties".into(), false.into());
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_an_answer_are_closed() {
        let schema = json!({"$schema": "x", "type": "object", "required": ["b"], "properties": {
            "b": {"type": "integer", "format": "uint32", "minimum": 0},
            "a": {"type": ["array", "null"], "items": {"$ref": "#/$defs/A"}},
            "minimum": {"type": "string", "format": "date"},
        }, "$defs": {"A": {"type": "object", "properties": {"properties": {"type": "string"}}}}});
        let a = r##""a":{"items":{"$ref":"#/$defs/A"},"type":["array","null"]}"##;
        let close = r#""additionalProperties":false"#;
        let defs = format!(
            r#""$defs":{{"A":{{{close},"properties":{{"properties":{{"type":"string"}}}},"required":["properties"],"type":"object"}}}}"#
        );
        let rest = r#""minimum":{"format":"date","type":"string"}},"required":["a","b","minimum"],"type":"object"}"#;
        let wanted = |b: &str| format!(r#"{{{defs},{close},"properties":{{{a},"b":{b},{rest}"#);
        let taken = answer_schema(&schema, Limits::Taken);
        assert_eq!(taken.get(), wanted(r#"{"minimum":0,"type":"integer"}"#));
        assert_eq!(answer_schema(&schema, Limits::Refused).get(), wanted(r#"{"type":"integer"}"#));
    }
}
