//! Version 1 of this API's requests. Frozen: see [`super`].

use std::borrow::Cow;

use rath_core::ToolSpec;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::as_text;
use super::attached::{File, FileContent};
use super::conversation::{AssistantTurn, ConversationItem, ToolExchange, TurnPart};
use super::schema::{Limits, answer_schema, schema};
use crate::request_input::RequestInput;

/// The name that turns of this API are stored with.
pub(crate) const API: &str = "openai-responses";

/// Encodes a request.
pub(crate) fn encode(request_input: &RequestInput<'_>) -> serde_json::Result<Vec<u8>> {
    encode_with(request_input, None)
}

/// Encodes a request with a tool choice, for later versions.
pub(crate) fn encode_with(request_input: &RequestInput<'_>, tool_choice: Option<Value>) -> serde_json::Result<Vec<u8>> {
    request_input.write(&Request { tool_choice, ..Request::of(request_input) })
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Text {
    format: Format,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { name: &'static str, strict: bool, schema: Box<RawValue> },
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Box<RawValue>,
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Verbatim(&'a RawValue),
    Message { role: &'static str, content: Cow<'a, str> },
    Files { role: &'static str, content: Vec<Part<'a>> },
    Ours(Ours<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Part<'a> {
    #[serde(rename = "input_text")]
    Text { text: String },
    #[serde(rename = "input_image")]
    Image { image_url: String },
    #[serde(rename = "input_file")]
    File { filename: Cow<'a, str>, file_data: String },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Ours<'a> {
    FunctionCall { call_id: Cow<'a, str>, name: &'a str, arguments: Cow<'a, str> },
    FunctionCallOutput { call_id: Cow<'a, str>, output: Cow<'a, str> },
}

impl<'a> Request<'a> {
    fn of(request_input: &RequestInput<'a>) -> Self {
        let RequestInput { model, prompt, parameters, .. } = *request_input;
        let mut instructions = Cow::Borrowed(prompt);
        let mut input = Vec::with_capacity(request_input.messages.len());
        for item in request_input.conversation(API) {
            match item {
                ConversationItem::System(text) if input.is_empty() => add(&mut instructions, text),
                ConversationItem::System(content) => input.push(Item::Message { role: "developer", content }),
                ConversationItem::User(content) => input.push(Item::Message { role: "user", content }),
                ConversationItem::Files(files) => {
                    input.push(Item::Files { role: "user", content: files.into_iter().map(attach).collect() });
                }
                ConversationItem::Turn(turn) => say(turn, &mut input),
            }
        }
        Self {
            model,
            max_output_tokens: parameters.max_tokens,
            temperature: parameters.temperature,
            reasoning: parameters.effort.as_deref().map(|effort| Reasoning { effort }),
            instructions,
            tools: request_input.tools.iter().map(Tool::of).collect(),
            tool_choice: None,
            text: parameters.answer_schema.as_ref().map(|schema| Text {
                format: Format::JsonSchema {
                    name: "answer",
                    strict: true,
                    schema: answer_schema(schema, Limits::Taken),
                },
            }),
            input,
            include: if reasons(model) { &["reasoning.encrypted_content"] } else { &[] },
            store: false,
            stream: true,
        }
    }
}

/// Whether the model reasons. Models that do not reject a request for reasoning.
fn reasons(model: &str) -> bool {
    !["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|old| model.starts_with(old))
}

fn add<'a>(existing: &mut Cow<'a, str>, more: Cow<'a, str>) {
    match existing.is_empty() {
        true => *existing = more,
        false => {
            existing.to_mut().push_str("\n\n");
            existing.to_mut().push_str(&more);
        }
    }
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, .. } = tool;
        Self { r#type: "function", name, description, parameters: schema(tool), strict: false }
    }
}

fn attach(file: File<'_>) -> Part<'_> {
    let File { name, media_type, content } = file;
    match content {
        FileContent::Picture(data) => Part::Image { image_url: File::data_url(media_type, &data) },
        FileContent::Pdf(data) => Part::File { filename: name, file_data: File::data_url(media_type, &data) },
        FileContent::Text(text) => Part::Text { text: File::titled(&name, &text) },
    }
}

fn say<'a>(turn: AssistantTurn<'a>, input: &mut Vec<Item<'a>>) {
    let verbatim = turn.sent.and_then(|json| serde_json::from_str::<Vec<&RawValue>>(json).ok());
    match verbatim {
        Some(items) => input.extend(items.into_iter().map(Item::Verbatim)),
        None => rebuild(&turn, input),
    }
    for ToolExchange { id, result, failed, .. } in turn.calls {
        // The API has no field for a failed call.
        let output = if failed { format!("Failed: {result}").into() } else { result };
        input.push(Item::Ours(Ours::FunctionCallOutput { call_id: id, output }));
    }
}

fn rebuild<'a>(turn: &AssistantTurn<'a>, input: &mut Vec<Item<'a>>) {
    for part in &turn.parts {
        match part {
            TurnPart::Text(text) => input.push(Item::Message { role: "assistant", content: text.clone() }),
            TurnPart::Call(at) => input.extend(turn.calls.get(*at).map(call)),
        }
    }
}

fn call<'a>(call: &ToolExchange<'a>) -> Item<'a> {
    let arguments = match &call.arguments {
        Cow::Borrowed(written) => as_text(written),
        Cow::Owned(written) => Cow::Owned(as_text(written).into_owned()),
    };
    Item::Ours(Ours::FunctionCall { call_id: call.id.clone(), name: call.name, arguments })
}
