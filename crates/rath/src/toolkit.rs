//! What the code needs that `#[tool]` and `#[derive(Workflow)]` write.

use std::future::Ready;
use std::ops::Deref;
use std::sync::Arc;

use rath_core::{Call, Missing, Outline, Result, Session, ToolSpec, Workflow};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Something that the call is equipped with, as a parameter of a `#[tool]` function. It is shared by all calls.
#[derive(Debug)]
pub struct State<T>(Arc<T>);

impl<T: Send + Sync + 'static> State<T> {
    /// Of what `call` is equipped with, the value of this type.
    pub fn of(call: &Call) -> Result<Self, Missing> {
        call.get().map(Self)
    }

    /// The value, to keep.
    pub fn into_inner(self) -> Arc<T> {
        self.0
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a tool can take as an argument.
#[diagnostic::on_unimplemented(
    message = "a tool cannot take `{Self}` as an argument",
    note = "derive both `JsonSchema` and `Deserialize` on it, or take `State<T>` if the model is not to give it"
)]
pub trait Argument: DeserializeOwned + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> Argument for T {}

/// Compiles for what a tool can take as an argument.
pub fn is_an_argument<T: Argument>() {}

/// The spec of a tool that takes `T` as its arguments, and says nothing else.
pub fn spec<T: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    ToolSpec::new(name, description, schema::<T>())
}

/// The schema of a tool's arguments: in one piece, and nothing in it that models have no use for.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
        schema.remove("$schema");
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    schema
}

/// Reads a model's arguments. What is wrong with them is said so that a model can put it right.
pub fn arguments<T: DeserializeOwned>(spec: &ToolSpec, text: &str) -> Result<T, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let advice = |why: String| format!("the arguments of `{}` cannot be used: {why}\n{}", spec.name, takes(spec));
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => {}
        Ok(other) => return Err(advice(format!("they are {}, and an object is needed", kind(&other)))),
        Err(error) => return Err(advice(format!("they are not JSON: {error}"))),
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let why = error.inner().to_string();
        let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
        advice(if path == "." { why.into() } else { format!("`{path}`: {why}") })
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The arguments of a tool, in a line.
fn takes(spec: &ToolSpec) -> String {
    let Some(properties) = spec.schema["properties"].as_object().filter(|all| !all.is_empty()) else {
        return format!("`{}` takes no arguments: send {{}}", spec.name);
    };
    let required: Vec<&str> =
        spec.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let optional = properties.keys().map(String::as_str).filter(|name| !required.contains(name));
    let all = required.iter().map(|name| (*name, "required")).chain(optional.map(|name| (name, "optional")));
    let all: Vec<String> = all
        .map(|(name, need)| match type_of(&properties[name]) {
            Some(kind) => format!("{name} ({kind}, {need})"),
            None => format!("{name} ({need})"),
        })
        .collect();
    format!("`{}` takes: {}", spec.name, all.join(", "))
}

/// The type that a schema names, without the `null` of what is optional.
fn type_of(schema: &Value) -> Option<String> {
    match &schema["type"] {
        Value::String(kind) => Some(kind.clone()),
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
            Some(kinds.join(" or "))
        }
        _ => None,
    }
}

/// A part of a workflow, of which the compiler finds out what it is: the more references a method wants, the sooner
/// it is tried.
#[derive(Debug)]
pub struct Part<'a, T>(pub &'a T);

/// A part that is a workflow.
pub trait PartIsAWorkflow {
    /// Puts it into an outline.
    fn put(&self, name: &str, outline: Outline) -> Outline;
}

impl<W: Workflow> PartIsAWorkflow for &&Part<'_, W> {
    fn put(&self, name: &str, outline: Outline) -> Outline {
        outline.child(name, self.0.outline())
    }
}

/// A part that is a list of workflows.
pub trait PartIsAList {
    /// Puts all of them into an outline.
    fn put(&self, name: &str, outline: Outline) -> Outline;
}

impl<W: Workflow> PartIsAList for &Part<'_, Vec<W>> {
    fn put(&self, name: &str, outline: Outline) -> Outline {
        put_all(name, self.0, outline)
    }
}

impl<W: Workflow, const N: usize> PartIsAList for &Part<'_, [W; N]> {
    fn put(&self, name: &str, outline: Outline) -> Outline {
        put_all(name, self.0, outline)
    }
}

fn put_all<W: Workflow>(name: &str, parts: &[W], outline: Outline) -> Outline {
    let parts = parts.iter().enumerate();
    parts.fold(outline, |outline, (at, part)| outline.child(format!("{name}.{at}"), part.outline()))
}

/// A part that is something else.
pub trait PartIsAnything {
    /// Leaves the outline as it is.
    fn put(&self, name: &str, outline: Outline) -> Outline;
}

impl<T> PartIsAnything for Part<'_, T> {
    fn put(&self, _: &str, outline: Outline) -> Outline {
        outline
    }
}

/// What `#[derive(Workflow)]` wants of a struct. Its own `run` comes first; without one the compiler comes here, and
/// says what is missing.
pub trait WithoutRun {
    /// Cannot be called.
    fn run(&self, session: Session) -> Ready<Result<Session>>
    where
        Self: HasRun;
}

impl<T> WithoutRun for T {
    fn run(&self, session: Session) -> Ready<Result<Session>>
    where
        Self: HasRun,
    {
        std::future::ready(Ok(session))
    }
}

/// Nothing has this: it is there for its message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `run`",
    label = "`#[derive(Workflow)]` needs `async fn run(&self, session: Session) -> Result<Session>`",
    note = "write it in an impl block of `{Self}`"
)]
pub trait HasRun {}
