//! Typed output of an agent: the model answers with JSON of a type, which is checked and recorded.
//!
//! If the model's API takes a schema of the answer, the answer is the last turn in words. Otherwise the model calls a
//! tool whose arguments are the answer. A call that is accepted is followed by a turn with the answer in words, so that
//! readers of the session find it in the same place. An answer that does not have the type is a turn like any other: a
//! message to the model follows that says what is wrong. So the records alone decide what comes next, and a resumed run
//! continues there.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Assistant, Block, Effect, ModelResponded, ToolResult, User};
use rath_core::{
    AnswerSchemaSupport, Content, Error, ErrorKind, Kind, Parameters, Result, Session, ToolChoice, ToolSpec,
};
use rath_model::{StopKind, StopReason};
use schemars::JsonSchema as HasSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Agent;
use super::drive::StepContext;
use crate::json_schema::JsonSchema;

/// How often the model may correct an answer, unless set.
pub(super) const RETRIES: u32 = 2;

/// The name of the tool that models without schemas answer with.
const TOOL: &str = "final_answer";

const TOOL_DESCRIPTION: &str =
    "Gives your final answer, which ends your work. Call it once, when you have finished the task.";

/// The type of an agent's output.
pub(super) struct OutputType {
    /// The schema that providers get. It describes an object.
    schema: Value,
    check: Box<Check>,
}

/// Checks an answer. Returns the value as JSON text, or what is wrong.
type Check = dyn Fn(&str) -> std::result::Result<String, String> + Send + Sync;

/// What the driver does after a turn without calls.
pub(super) enum Checked {
    /// The step is done, with this value if the agent has a typed output.
    Done(Option<Content>),
    /// The model was told what is wrong, and answers again.
    Again,
}

/// How an agent asks for its output. Part of its configuration.
pub(super) struct AnswerTool {
    pub(super) name: String,
    /// Whether the agent has no other tools, so that each turn must call this one.
    pub(super) is_only: bool,
}

impl OutputType {
    pub(super) fn of<T: HasSchema + DeserializeOwned + Serialize + 'static>() -> Arc<Self> {
        let exact = schemars::schema_for!(T).to_value();
        // A schema with a pattern that the validator cannot read is checked by deserializing alone.
        let exact_schema = JsonSchema::compile(&exact).ok();
        let (schema, is_wrapped) = as_object(exact);
        let check = move |text: &str| {
            let json = unfenced(text.trim());
            let wrapped = if is_wrapped { serde_json::from_str::<Wrapped<'_>>(json).ok() } else { None };
            let json = wrapped.map_or(json, |wrapped| wrapped.value.get());
            let value: T = parse(json)?;
            if let (Some(schema), Ok(parsed)) = (&exact_schema, serde_json::from_str::<Value>(json)) {
                schema.check(&parsed)?;
            }
            let text = serde_json::to_string(&value).map_err(|why| why.to_string())?;
            // Readers of the session get the value from this text.
            parse::<T>(&text).map(|_| text)
        };
        Arc::new(Self { schema, check: Box::new(check) })
    }

    /// An output that a JSON Schema describes. Fails with the reason if the schema cannot be used.
    pub(super) fn of_schema(exact: Value) -> std::result::Result<Arc<Self>, String> {
        let exact_schema = JsonSchema::compile(&exact)?;
        let (schema, is_wrapped) = as_object(exact);
        let check = move |text: &str| {
            let json = unfenced(text.trim());
            let wrapped = if is_wrapped { serde_json::from_str::<Wrapped<'_>>(json).ok() } else { None };
            let value: Value = parse(wrapped.map_or(json, |wrapped| wrapped.value.get()))?;
            exact_schema.check(&value)?;
            Ok(value.to_string())
        };
        Ok(Arc::new(Self { schema, check: Box::new(check) }))
    }

    /// Adds to a request's parameters and tools what makes a model answer with the type. Returns the tool to answer
    /// with, if the model's API takes no schema.
    pub(super) fn configure(
        &self,
        support: AnswerSchemaSupport,
        parameters: &mut Parameters,
        tools: &mut Vec<ToolSpec>,
    ) -> Option<AnswerTool> {
        let takes_schema = match support {
            AnswerSchemaSupport::Always => true,
            AnswerSchemaSupport::WithoutTools => tools.is_empty(),
            AnswerSchemaSupport::Never => false,
        };
        if takes_schema {
            parameters.answer_schema = Some(self.schema.clone());
            return None;
        }
        let is_only = tools.is_empty();
        let is_free = |name: &String| tools.iter().all(|tool| tool.name != *name);
        let numbered = (2..).map(|number| format!("{TOOL}_{number}"));
        let name = std::iter::once(TOOL.to_owned()).chain(numbered).find(is_free).unwrap_or_default();
        if is_only {
            parameters.tool_choice = Some(ToolChoice::Tool(name.clone()));
        }
        tools.push(ToolSpec { effect: Effect::Pure, ..ToolSpec::new(&name, TOOL_DESCRIPTION, self.schema.clone()) });
        Some(AnswerTool { name, is_only })
    }
}

/// An answer whose type is not an object, in the object that providers demand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
}

fn parse<T: DeserializeOwned>(json: &str) -> std::result::Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        match error.path().to_string().as_str() {
            "." => error.inner().to_string(),
            path => format!("{path}: {}", error.inner()),
        }
    })?;
    deserializer.end().map_err(|why| why.to_string())?;
    Ok(value)
}

/// The text without the fence that some models put around JSON.
fn unfenced(text: &str) -> &str {
    let inner =
        text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).and_then(|text| text.strip_suffix("```"));
    inner.unwrap_or(text).trim()
}

/// The schema of an object, as providers demand, and whether the value is its field `value`.
fn as_object(schema: Value) -> (Value, bool) {
    let Value::Object(mut schema) = schema else { return (wrapped(Map::new()), true) };
    schema.remove("$schema");
    let is_object = schema.get("type").is_some_and(|kind| kind == "object") && schema.get("oneOf").is_none();
    let (mut schema, is_wrapped) = match is_object {
        true => (Value::Object(schema), false),
        false => (wrapped(schema), true),
    };
    without_one_of(&mut schema);
    (schema, is_wrapped)
}

fn wrapped(mut value: Map<String, Value>) -> Value {
    let definitions = value.remove("$defs");
    let mut value = Value::Object(value);
    // References to the whole schema refer to the value now.
    redirect(&mut value);
    let mut schema = json!({"type": "object", "properties": {"value": value}, "required": ["value"]});
    if let Some(mut definitions) = definitions {
        redirect(&mut definitions);
        schema["$defs"] = definitions;
    }
    schema
}

fn redirect(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(redirect),
        Value::Object(fields) => {
            if let Some(target) = fields.get_mut("$ref").filter(|target| *target == "#") {
                *target = "#/properties/value".into();
            }
            fields.values_mut().for_each(redirect);
        }
        _ => {}
    }
}

/// Replaces `oneOf`, which providers refuse, with `anyOf`. Alternatives of Rust types exclude each other.
fn without_one_of(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(without_one_of),
        Value::Object(fields) => {
            // A property may be called `oneOf`: then its value is a schema, not a list.
            if fields.get("oneOf").is_some_and(Value::is_array)
                && let Some(choices) = fields.remove("oneOf")
            {
                fields.insert("anyOf".into(), choices);
            }
            fields.values_mut().for_each(without_one_of);
        }
        _ => {}
    }
}

impl Agent {
    /// Makes the agent answer with a value of this type, which is recorded with its step: [`Session::output`] and
    /// [`Session::value`] read it, also from a resumed or reopened session.
    ///
    /// The model gets the type's JSON schema if its API takes one. Otherwise it answers by calling a tool; if the agent
    /// has other tools, that call is forced only after an answer in words. The answer must deserialize as `T` and match
    /// its schema. If not, the model is told what is wrong and answers again: see
    /// [`output_retries`](Self::output_retries). After that the step fails with the code `bad-output`. An answer that
    /// was cut off at the token limit fails with the code `cut-off`, a refusal with the code `refused`.
    ///
    /// ```
    /// use rath::prelude::*;
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Deserialize, JsonSchema, Serialize)]
    /// struct Weather {
    ///     degrees: i64,
    ///     rain: bool,
    /// }
    ///
    /// # pollster::block_on(async {
    /// let model = Scripted::new("scripted").say(r#"{"degrees": 21, "rain": false}"#);
    /// let agent = Agent::new("weather").model(model).output::<Weather>();
    /// let mut session = InMemory::new().create(Actor::person("ada"));
    /// session.user("How is the weather?")?;
    /// let session = agent.forward(session).await?;
    /// let weather: Weather = session.output().await?.unwrap();
    /// assert_eq!((weather.degrees, weather.rain), (21, false));
    /// # Ok::<(), rath::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn output<T: HasSchema + DeserializeOwned + Serialize + 'static>(self) -> Self {
        self.change(|agent| agent.output = Some(OutputType::of::<T>()))
    }

    /// Makes the agent answer with JSON that matches a schema. Use [`output`](Self::output) if there is a type. Fails if the
    /// schema is invalid or refers to another document.
    pub fn output_schema(self, schema: Value) -> Result<Self> {
        let invalid = |why| ErrorKind::Workflow(format!("the JSON schema cannot be used: {why}").into());
        let output = OutputType::of_schema(schema).map_err(invalid)?;
        Ok(self.change(|agent| agent.output = Some(output)))
    }

    /// Sets how often the model may correct an answer that does not have the type of [`output`](Self::output).
    /// [default: 2]
    #[must_use]
    pub fn output_retries(self, times: u32) -> Self {
        self.change(|agent| agent.output_retries = times)
    }

    /// Checks the last turn, which has no calls.
    pub(super) async fn check_answer(&self, session: &mut Session, context: &mut StepContext) -> Result<Checked> {
        let Some(output) = &self.output else { return Ok(Checked::Done(None)) };
        if session.state().run().is_some_and(|run| run.hand_off.is_some()) {
            return Ok(Checked::Done(None));
        }
        let last = last_turn(session).await?.unwrap_or_default();
        let text = text_of(session, &last.turn).await?;
        if last.is_accepted {
            return Ok(Checked::Done(Some(text.into())));
        }
        match last.stop {
            Some(StopKind::Refusal | StopKind::Filtered) => {
                return Err(ErrorKind::Refused { agent: self.name.clone(), text: shortened(&text) }.into());
            }
            Some(StopKind::Length) => return Err(self.cut_off()),
            _ => {}
        }
        let why = match (output.check)(&text) {
            Ok(value) => return Ok(Checked::Done(Some(value.into()))),
            Err(why) => why,
        };
        let tool = context.resolved.answer_tool.as_ref();
        let message = match tool {
            Some(tool) if !tool.is_only && !context.asked_for_answer => {
                format!("Give your final answer now: call the tool `{}`.", tool.name)
            }
            _ => {
                self.count_violation(session, context, &text, &why).await?;
                match tool {
                    Some(tool) => format!("That is not the required format. Call the tool `{}`.", tool.name),
                    None => format!(
                        "Your answer does not have the required format: {why}\nAnswer again, with nothing but JSON that \
                         matches this schema:\n{}",
                        output.schema
                    ),
                }
            }
        };
        session.user(message)?;
        context.asked_for_answer = true;
        Ok(Checked::Again)
    }

    /// Checks a call of the tool that gives the answer. The inner error is the result that the model gets.
    pub(super) async fn check_call(
        &self,
        session: &Session,
        context: &StepContext,
        arguments: &str,
    ) -> Result<std::result::Result<String, String>> {
        let Some(output) = &self.output else { return Ok(Err("This agent gives no such answer.".into())) };
        let Err(why) = (output.check)(arguments) else { return Ok(Ok("The answer is accepted.".into())) };
        if last_turn(session).await?.is_some_and(|last| last.stop == Some(StopKind::Length)) {
            return Err(self.cut_off());
        }
        self.count_violation(session, context, arguments, &why).await?;
        Ok(Err(format!("The answer does not have the required format: {why}\nCall the tool again.")))
    }

    /// The answer, if the last turn gave one with a tool call that was accepted, and no message followed.
    pub(super) async fn accepted_answer(&self, session: &Session, context: &StepContext) -> Result<Option<String>> {
        let (Some(output), Some(tool)) = (&self.output, &context.resolved.answer_tool) else { return Ok(None) };
        let mut accepted = Vec::new();
        let mut records = StepRecords::of(session);
        while let Some(record) = records.next().await? {
            match record.kind() {
                Kind::User => return Ok(None),
                Kind::ToolResult => {
                    let result = record.body::<ToolResult>().ok().filter(|result| !result.failed);
                    accepted.extend(result.map(|result| result.call));
                }
                Kind::Assistant => {
                    let Ok(turn) = record.body::<Assistant>() else { return Ok(None) };
                    for block in &turn.blocks {
                        if let Block::ToolUse { id, name, arguments } = block
                            && *name == tool.name
                            && accepted.contains(id)
                            && let Ok(value) = (output.check)(&content(session, arguments).await?)
                        {
                            return Ok(Some(value));
                        }
                    }
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Fails if the model may not correct another answer.
    async fn count_violation(&self, session: &Session, context: &StepContext, text: &str, why: &str) -> Result<()> {
        let (mut violations, mut messages) = (0, 0);
        let mut failed = Vec::new();
        let mut records = StepRecords::of(session);
        while let Some(record) = records.next().await? {
            match record.kind() {
                Kind::User => messages += u32::from(record.body::<User>().is_ok_and(|user| user.post.is_none())),
                Kind::ToolResult => {
                    let result = record.body::<ToolResult>().ok().filter(|result| result.failed);
                    failed.extend(result.map(|result| result.call));
                }
                Kind::Assistant => {
                    let turn = record.body::<Assistant>().unwrap_or_default();
                    let tool = context.resolved.answer_tool.as_ref();
                    let is_answer = |(id, name): (&str, &str)| {
                        tool.is_some_and(|tool| tool.name == name) && failed.iter().any(|call| call == id)
                    };
                    violations += u32::from(turn.calls().any(is_answer));
                    failed.clear();
                }
                _ => {}
            }
        }
        if context.resolved.answer_tool.as_ref().is_some_and(|tool| !tool.is_only) {
            // The first message only asked for the call.
            messages = messages.saturating_sub(1);
        }
        violations += messages;
        if violations < self.output_retries {
            return Ok(());
        }
        let why = format!("{why}\n{}", shortened(text));
        Err(ErrorKind::BadOutput { agent: self.name.clone(), attempts: violations + 1, why }.into())
    }

    fn cut_off(&self) -> Error {
        ErrorKind::CutOff { agent: self.name.clone() }.into()
    }
}

/// Whether the model was asked for its answer in the open step: a message follows that no person posted.
pub(super) async fn is_asked_for_answer(session: &Session) -> Result<bool> {
    let mut records = StepRecords::of(session);
    while let Some(record) = records.next().await? {
        if record.body::<User>().is_ok_and(|user| user.post.is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The records of the open step, newest first.
struct StepRecords<'a> {
    session: &'a Session,
    next: Option<u64>,
    entered: u64,
}

impl<'a> StepRecords<'a> {
    fn of(session: &'a Session) -> Self {
        let entered = session.state().steps.last().map_or(0, |step| step.generation);
        Self { session, next: Some(session.head().seq), entered }
    }

    async fn next(&mut self) -> Result<Option<rath_core::Record>> {
        let Some(seq) = self.next else { return Ok(None) };
        let record = self.session.record_at(seq).await?;
        if record.generation() <= self.entered {
            self.next = None;
            return Ok(None);
        }
        self.next = seq.checked_sub(1);
        Ok(Some(record))
    }
}

/// The last turn in the open step.
#[derive(Default)]
struct LastTurn {
    turn: Assistant,
    /// Whether the driver recorded the turn, after a call with an answer that was accepted.
    is_accepted: bool,
    /// Why the model ended the turn.
    stop: Option<StopKind>,
}

/// The last turn in the open step. An erased turn is empty.
async fn last_turn(session: &Session) -> Result<Option<LastTurn>> {
    let mut records = StepRecords::of(session);
    while let Some(record) = records.next().await? {
        if *record.kind() == Kind::Assistant {
            let turn = record.body().unwrap_or_default();
            let before = records.next().await?.filter(|before| *before.kind() == Kind::ModelResponded);
            let is_accepted = before.is_none();
            let responded = before.and_then(|before| before.body::<ModelResponded>().ok());
            let stop = responded.and_then(|responded| responded.stop).map(|stop| StopReason::of(stop).kind);
            return Ok(Some(LastTurn { turn, is_accepted, stop }));
        }
    }
    Ok(None)
}

/// The text of a turn.
async fn text_of(session: &Session, turn: &Assistant) -> Result<String> {
    let mut text = String::new();
    for block in &turn.blocks {
        if let Block::Text { text: part } = block {
            text.push_str(&content(session, part).await?);
        }
    }
    Ok(text)
}

async fn content(session: &Session, content: &Content) -> Result<String> {
    match content {
        Content::Text(text) => Ok(text.clone()),
        Content::Blob(_) => session.view().await?.content(content).await,
    }
}

/// The first 200 characters.
fn shortened(text: &str) -> String {
    let mut rest = text.chars();
    let shown: String = rest.by_ref().take(200).collect();
    if rest.next().is_some() { format!("{shown}…") } else { shown }
}

impl fmt::Debug for OutputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputType({})", self.schema)
    }
}
