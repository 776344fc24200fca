//! Checking JSON values against a JSON Schema.

use std::error::Error;

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// The address of the schema while it is compiled.
const ADDRESS: &str = "rath:///schema";

/// The most violations that a message lists.
const LISTED: usize = 5;

/// A compiled JSON Schema, of draft 2020-12 unless the schema names another draft.
pub(crate) struct JsonSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl JsonSchema {
    /// Compiles a schema. A reference to another document is an error.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.use_loader(Box::new(NoLoader));
        compiler.add_resource(ADDRESS, schema.clone()).map_err(|why| why.to_string())?;
        let index = compiler.compile(ADDRESS, &mut schemas).map_err(|why| format!("{why:#}"))?;
        Ok(Self { schemas, index })
    }

    /// Checks a value. The error lists the violations, each with the path of the value in it.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Err(error) = self.schemas.validate(value, self.index) else { return Ok(()) };
        let mut violations = Vec::new();
        list(&error, &mut violations);
        let more = violations.len().saturating_sub(LISTED);
        violations.truncate(LISTED);
        if more > 0 {
            violations.push(format!("and {more} more"));
        }
        Err(violations.join("; "))
    }
}

/// Lists the innermost violations.
fn list(error: &ValidationError<'_, '_>, violations: &mut Vec<String>) {
    if error.causes.is_empty() {
        let at = error.instance_location.to_string();
        violations.push(match at.as_str() {
            "" => error.kind.to_string(),
            at => format!("{at}: {}", error.kind),
        });
    }
    error.causes.iter().for_each(|cause| list(cause, violations));
}

/// Loads no documents, so that a schema cannot read files.
struct NoLoader;

impl UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        Err(format!("the schema refers to {url}, which is not loaded: include the definition in the schema").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_are_listed_with_their_paths() {
        let schema = json!({
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "ages": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
        });
        let schema = JsonSchema::compile(&schema).unwrap();
        assert_eq!(schema.check(&json!({"name": "Ada", "ages": [36]})), Ok(()));
        let why = schema.check(&json!({"ages": [36, -1]})).unwrap_err();
        assert!(why.contains("/ages/1: ") && why.contains("name"), "{why}");
    }

    #[test]
    fn other_documents_are_not_loaded() {
        let why = JsonSchema::compile(&json!({"$ref": "file:///etc/passwd"})).err().unwrap();
        assert!(why.contains("is not loaded"), "{why}");
        assert!(JsonSchema::compile(&json!({"type": "number and string"})).is_err());
    }
}
