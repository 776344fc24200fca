//! Version 1 of this API's requests. Frozen: see [`super`].

use std::borrow::Cow;

use rath_core::ToolSpec;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::as_text;
use super::attached::{File, Holds};
use super::lines::{Called, Line, Spoke, Spoken};
use super::schema::{Limits, answer_schema, schema};
use crate::talk::Talk;

/// What turns of this API are marked with.
pub(crate) const API: &str = "openai-responses";

/// The request for what is shown.
pub(crate) fn encode(talk: &Talk<'_>) -> serde_json::Result<Vec<u8>> {
    encode_with(talk, None)
}

/// The same for later versions, with a choice of tools.
pub(crate) fn encode_with(talk: &Talk<'_>, tool_choice: Option<Value>) -> serde_json::Result<Vec<u8>> {
    talk.write(&Request { tool_choice, ..Request::of(talk) })
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
    fn of(talk: &Talk<'a>) -> Self {
        let Talk { model, prompt, parameters, .. } = *talk;
        let mut instructions = Cow::Borrowed(prompt);
        let mut input = Vec::with_capacity(talk.messages.len());
        for line in talk.lines(API) {
            match line {
                Line::System(text) if input.is_empty() => add(&mut instructions, text),
                Line::System(content) => input.push(Item::Message { role: "developer", content }),
                Line::User(content) => input.push(Item::Message { role: "user", content }),
                Line::Files(files) => {
                    input.push(Item::Files { role: "user", content: files.into_iter().map(attach).collect() });
                }
                Line::Turn(turn) => say(turn, &mut input),
            }
        }
        Self {
            model,
            max_output_tokens: parameters.max_tokens,
            temperature: parameters.temperature,
            reasoning: parameters.effort.as_deref().map(|effort| Reasoning { effort }),
            instructions,
            tools: talk.tools.iter().map(Tool::of).collect(),
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

/// Models that do not reason refuse to be asked for their reasoning.
fn reasons(model: &str) -> bool {
    !["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|old| model.starts_with(old))
}

fn add<'a>(held: &mut Cow<'a, str>, more: Cow<'a, str>) {
    match held.is_empty() {
        true => *held = more,
        false => {
            held.to_mut().push_str("\n\n");
            held.to_mut().push_str(&more);
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
    let File { name, media_type, holds } = file;
    match holds {
        Holds::Picture(data) => Part::Image { image_url: File::data_url(media_type, &data) },
        Holds::Pdf(data) => Part::File { filename: name, file_data: File::data_url(media_type, &data) },
        Holds::Text(text) => Part::Text { text: File::titled(&name, &text) },
    }
}

fn say<'a>(turn: Spoken<'a>, input: &mut Vec<Item<'a>>) {
    let verbatim = turn.sent.and_then(|json| serde_json::from_str::<Vec<&RawValue>>(json).ok());
    match verbatim {
        Some(items) => input.extend(items.into_iter().map(Item::Verbatim)),
        None => rebuild(&turn, input),
    }
    for Called { id, result, failed, .. } in turn.calls {
        // There is no field for it.
        let output = if failed { format!("Failed: {result}").into() } else { result };
        input.push(Item::Ours(Ours::FunctionCallOutput { call_id: id, output }));
    }
}

fn rebuild<'a>(turn: &Spoken<'a>, input: &mut Vec<Item<'a>>) {
    for part in &turn.parts {
        match part {
            Spoke::Text(text) => input.push(Item::Message { role: "assistant", content: text.clone() }),
            Spoke::Call(at) => input.extend(turn.calls.get(*at).map(call)),
        }
    }
}

fn call<'a>(call: &Called<'a>) -> Item<'a> {
    let arguments = match &call.arguments {
        Cow::Borrowed(written) => as_text(written),
        Cow::Owned(written) => Cow::Owned(as_text(written).into_owned()),
    };
    Item::Ours(Ours::FunctionCall { call_id: call.id.clone(), name: call.name, arguments })
}
