//! A JSON Schema as a validator.

use std::fmt;
use std::sync::Arc;

use rath_core::{ErrorKind, Result, Session};
use serde_json::Value;

use super::{Validation, Validator};
use crate::json_schema::JsonSchema;

/// Accepts the work if the session's [output](Session::output) matches a JSON Schema. Without an output, the last answer is
/// checked, which must be JSON. Fails if the schema is invalid or refers to another document.
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::{gate, validator};
/// # pollster::block_on(async {
/// let rows = validator::schema(serde_json::json!({"type": "array", "minItems": 1}))?;
/// let agent = Agent::new("rows").model(Scripted::new("scripted").say("[]"));
/// let mut session = InMemory::new().create(Actor::person("ada"));
/// session.user("List the rows.")?;
/// let error = gate("checked", agent).validator(rows).forward(session).await.unwrap_err();
/// assert_eq!(error.code(), "rejected");
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn schema(schema: Value) -> Result<SchemaCheck> {
    let invalid = |why| ErrorKind::Workflow(format!("the JSON schema cannot be used: {why}").into());
    let compiled = JsonSchema::compile(&schema).map_err(invalid)?;
    let title = schema.get("title").and_then(Value::as_str).map(|title| format!("JSON schema {title}"));
    Ok(SchemaCheck { name: title.unwrap_or_else(|| "JSON schema".into()), schema: Arc::new(compiled) })
}

/// See [`schema`].
#[derive(Clone)]
pub struct SchemaCheck {
    name: String,
    schema: Arc<JsonSchema>,
}

impl SchemaCheck {
    async fn check(&self, session: &Session) -> Result<Validation> {
        let value = match session.output::<Value>().await? {
            Some(value) => value,
            None => {
                let Some(text) = session.text().await? else { return Ok(Validation::reject("there is no answer")) };
                match serde_json::from_str(&text) {
                    Ok(value) => value,
                    Err(why) => return Ok(Validation::reject(format!("the answer is not JSON: {why}"))),
                }
            }
        };
        Ok(match self.schema.check(&value) {
            Ok(()) => Validation::accept(),
            Err(why) => Validation::reject(why),
        })
    }
}

impl Validator for SchemaCheck {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn validate(&self, session: Session) -> Result<(Session, Validation)> {
        match self.check(&session).await {
            Ok(validation) => Ok((session, validation)),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}

impl fmt::Debug for SchemaCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemaCheck({})", self.name)
    }
}
