//! Fingerprints of steps: what must be equal when a resumed run enters a step again.
//!
//! The fingerprint of an agent's configuration ignores descriptions of tools and schemas, and fields that only concern
//! how the runtime makes a call. So a description can be reworded, and a tool can declare more about itself, without
//! making recorded runs diverge.

use serde_json::{Map, Value};

/// The fields of a tool that are part of the fingerprint.
const TOOL_FIELDS: &[&str] = &["name", "schema", "version", "agent"];

/// Keywords of JSON Schema whose values are prose.
const PROSE: &[&str] = &["title", "description", "$comment", "examples"];
/// Keywords whose values are objects of named schemas.
const SCHEMA_MAPS: &[&str] = &["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
/// Keywords whose values are a schema or a list of schemas.
const SCHEMAS: &[&str] = &[
    "items",
    "prefixItems",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];

/// The part of an agent's configuration that is compared when a run is resumed.
pub(crate) fn of_config(mut config: Value) -> Value {
    if let Some(tools) = config.get_mut("tools").and_then(Value::as_array_mut) {
        tools.iter_mut().for_each(of_tool);
    }
    if let Some(schema) = config.pointer_mut("/parameters/answer_schema") {
        without_prose(schema);
    }
    config
}

fn of_tool(tool: &mut Value) {
    let Value::Object(fields) = tool else { return };
    fields.retain(|name, value| TOOL_FIELDS.contains(&name.as_str()) && !value.is_null());
    if let Some(schema) = fields.get_mut("schema") {
        without_prose(schema);
    }
    if let Some(agent) = fields.get_mut("agent") {
        *agent = of_config(agent.take());
    }
}

/// Removes prose from a schema. The values of `const`, `enum` and `default` stay.
fn without_prose(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(without_prose),
        Value::Object(fields) => {
            fields.retain(|name, _| !PROSE.contains(&name.as_str()));
            for name in SCHEMA_MAPS {
                let named = fields.get_mut(*name).and_then(Value::as_object_mut);
                named.into_iter().flatten().for_each(|(_, schema)| without_prose(schema));
            }
            for name in SCHEMAS {
                fields.get_mut(*name).into_iter().for_each(without_prose);
            }
            join_constants(fields);
        }
        _ => {}
    }
}

/// Converts a `oneOf` of constants to a sorted `enum`. Schema generators write one or the other, depending on whether
/// the constants have descriptions.
fn join_constants(fields: &mut Map<String, Value>) {
    let Some(choices) = fields.get("oneOf").and_then(Value::as_array) else {
        if let Some(Value::Array(values)) = fields.get_mut("enum") {
            values.sort_by_cached_key(Value::to_string);
        }
        return;
    };
    let (mut values, mut kinds) = (Vec::new(), Vec::new());
    for choice in choices {
        let Some(choice) = choice.as_object() else { return };
        if choice.keys().any(|name| !["type", "const", "enum"].contains(&name.as_str())) {
            return;
        }
        match (choice.get("const"), choice.get("enum").and_then(Value::as_array)) {
            (Some(value), None) => values.push(value.clone()),
            (None, Some(more)) => values.extend(more.iter().cloned()),
            _ => return,
        }
        kinds.push(choice.get("type").cloned());
    }
    kinds.dedup();
    let [kind] = kinds.as_slice() else { return };
    if fields.contains_key("enum") || fields.get("type").is_some_and(|own| Some(own) != kind.as_ref()) {
        return;
    }
    fields.remove("oneOf");
    if let Some(kind) = kind {
        fields.insert("type".into(), kind.clone());
    }
    values.sort_by_cached_key(Value::to_string);
    fields.insert("enum".into(), values.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(tool: Value) -> Value {
        json!({"agent": "a", "model": "m", "prompt": "Be brief.", "view": "whole@1", "parameters": {}, "tools": [tool]})
    }

    fn tool(description: &str, schema: Value) -> Value {
        json!({"name": "look", "description": description, "schema": schema, "effect": "pure", "touches": "nothing"})
    }

    #[test]
    fn prose_and_runtime_fields_of_tools_are_ignored() {
        let then = json!({"type": "object", "title": "Arguments", "properties": {
            "description": {"type": "string", "description": "What is seen."},
            "to": {"type": "string", "enum": ["b", "a"]},
            "at": {"anyOf": [{"type": "integer", "description": "A line."}, {"type": "null"}]}}});
        let now = json!({"type": "object", "properties": {
            "description": {"type": "string", "description": "The thing to look at."},
            "to": {"oneOf": [{"type": "string", "const": "a", "description": "Left."},
                {"type": "string", "enum": ["b"]}], "description": "Where."},
            "at": {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "At"}}});
        let mut reworded = tool("Looks around.", now);
        reworded["paths"] = json!(["to"]);
        reworded["timeout"] = json!({"secs": 1, "nanos": 0});
        assert_eq!(of_config(config(tool("Looks.", then.clone()))), of_config(config(reworded)));
        // A property with the name of a keyword is part of the fingerprint, and so are the values of a schema.
        for change in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "object", "properties": {"description": {"type": "integer"}}}),
        ] {
            assert_ne!(of_config(config(tool("Looks.", then.clone()))), of_config(config(tool("Looks.", change))));
        }
        let constant = |value: &str| json!({"const": {"description": value}});
        assert_ne!(of_config(config(tool("", constant("a")))), of_config(config(tool("", constant("b")))));
    }

    #[test]
    fn names_versions_prompts_and_sub_agents_are_part_of_the_fingerprint() {
        let plain = of_config(config(tool("", json!({}))));
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut changed = config(tool("", json!({})));
            change(&mut changed);
            of_config(changed)
        };
        assert_eq!(plain, changed(&|_| ()));
        assert_ne!(plain, changed(&|config| config["tools"][0]["name"] = "peek".into()));
        assert_ne!(plain, changed(&|config| config["tools"][0]["version"] = "2".into()));
        assert_ne!(plain, changed(&|config| config["prompt"] = "Be long.".into()));
        let agent = |prompt: &str, description: &str| {
            let mut inner = config(tool(description, json!({})));
            inner["prompt"] = prompt.into();
            changed(&|config| config["tools"][0]["agent"] = inner.clone())
        };
        assert_eq!(agent("Help.", "one"), agent("Help.", "another"));
        assert_ne!(agent("Help.", "one"), agent("Do not.", "one"));
    }

    #[test]
    fn descriptions_in_an_answer_schema_are_ignored() {
        let answer = |description: &str, kind: &str| {
            let schema = json!({"type": "object", "properties": {"n": {"type": kind, "description": description}}});
            of_config(json!({"parameters": {"answer_schema": schema}}))
        };
        assert_eq!(answer("How many.", "integer"), answer("The number.", "integer"));
        assert_ne!(answer("How many.", "integer"), answer("How many.", "string"));
    }
}
