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
use crate::chat::Dialect;
use crate::request_input::RequestInput;

/// Encodes a request.
pub(crate) fn encode(request_input: &RequestInput<'_>, dialect: Dialect) -> serde_json::Result<Vec<u8>> {
    encode_with(request_input, dialect, None)
}

/// Encodes a request with a tool choice, for later versions.
pub(crate) fn encode_with(
    request_input: &RequestInput<'_>,
    dialect: Dialect,
    tool_choice: Option<Value>,
) -> serde_json::Result<Vec<u8>> {
    request_input.write(&Request { tool_choice, ..Request::of(request_input, dialect) })
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Format>,
    messages: Vec<MessageJson<'a>>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { json_schema: Schema },
}

#[derive(Serialize)]
struct Schema {
    name: &'static str,
    strict: bool,
    schema: Box<RawValue>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum MessageJson<'a> {
    Verbatim(&'a RawValue),
    Ours(Message<'a>),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Url },
    File { file: Document<'a> },
}

#[derive(Serialize)]
struct Url {
    url: String,
}

#[derive(Serialize)]
struct Document<'a> {
    filename: Cow<'a, str>,
    file_data: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Arguments<'a>,
}

#[derive(Serialize)]
struct Arguments<'a> {
    name: &'a str,
    arguments: Cow<'a, str>,
}

impl<'a> Request<'a> {
    fn of(request_input: &RequestInput<'a>, dialect: Dialect) -> Self {
        let RequestInput { model, prompt, parameters, .. } = *request_input;
        let mut messages = Messages(Vec::with_capacity(request_input.messages.len() + 1));
        if !prompt.trim().is_empty() {
            messages.say("system", prompt.into());
        }
        for item in request_input.conversation(dialect.api()) {
            match item {
                ConversationItem::System(text) if takes_system_anywhere(dialect) || messages.only_system() => {
                    messages.say("system", text);
                }
                ConversationItem::System(text) => {
                    messages.say("user", format!("Standing instructions:\n\n{text}").into())
                }
                ConversationItem::User(text) => messages.say("user", text),
                ConversationItem::Files(files) => messages.attach(files.into_iter().map(attach)),
                ConversationItem::Turn(turn) => messages.turn(turn),
            }
        }
        let limit = parameters.max_tokens;
        Self {
            model,
            max_completion_tokens: limit.filter(|_| has_new_limit(dialect)),
            max_tokens: limit.filter(|_| !has_new_limit(dialect)),
            temperature: parameters.temperature,
            reasoning_effort: parameters.effort.as_deref(),
            tools: request_input.tools.iter().map(Tool::of).collect(),
            tool_choice: None,
            response_format: parameters.answer_schema.as_ref().map(|schema| Format::JsonSchema {
                json_schema: Schema { name: "answer", strict: true, schema: answer_schema(schema, Limits::Taken) },
            }),
            messages: messages.0,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
        }
    }
}

/// OpenAI renamed the token limit, and its newer models reject the old name.
fn has_new_limit(dialect: Dialect) -> bool {
    dialect == Dialect::OpenAi
}

/// Whether system messages may be anywhere. The templates of many local models accept them only at the start.
fn takes_system_anywhere(dialect: Dialect) -> bool {
    matches!(dialect, Dialect::OpenAi | Dialect::OpenRouter | Dialect::DeepSeek)
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let function = Function { name: &tool.name, description: &tool.description, parameters: schema(tool) };
        Self { r#type: "function", function }
    }
}

impl<'a> Message<'a> {
    fn new(role: &'static str, content: Option<Content<'a>>) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

struct Messages<'a>(Vec<MessageJson<'a>>);

impl<'a> Messages<'a> {
    fn only_system(&self) -> bool {
        self.0.iter().all(|said| matches!(said, MessageJson::Ours(message) if message.role == "system"))
    }

    /// Adds text. Many templates require alternating roles: consecutive messages of one role are joined.
    fn say(&mut self, role: &'static str, text: Cow<'a, str>) {
        if text.trim().is_empty() {
            return;
        }
        if let Some(MessageJson::Ours(Message { role: last, content: Some(existing), .. })) = self.0.last_mut()
            && *last == role
        {
            match existing {
                Content::Text(existing) => add(existing, &text),
                Content::Parts(parts) => parts.push(Part::Text { text }),
            }
            return;
        }
        self.0.push(MessageJson::Ours(Message::new(role, Some(Content::Text(text)))));
    }

    /// Adds files to the user's message, or starts a message for them.
    fn attach(&mut self, files: impl Iterator<Item = Part<'a>>) {
        let said = match self.0.pop() {
            Some(MessageJson::Ours(Message { role: "user", content, .. })) => content,
            other => {
                self.0.extend(other);
                None
            }
        };
        let mut parts = match said {
            Some(Content::Text(text)) => vec![Part::Text { text }],
            Some(Content::Parts(parts)) => parts,
            None => Vec::new(),
        };
        parts.extend(files);
        self.0.push(MessageJson::Ours(Message::new("user", Some(Content::Parts(parts)))));
    }

    fn turn(&mut self, turn: AssistantTurn<'a>) {
        let verbatim = turn.sent.and_then(|json| serde_json::from_str::<&RawValue>(json).ok());
        match verbatim {
            Some(message) => self.0.push(MessageJson::Verbatim(message)),
            None if turn.parts.is_empty() => {}
            None => self.0.push(MessageJson::Ours(rebuilt(&turn))),
        }
        for ToolExchange { id, result, failed, .. } in turn.calls {
            // The API has no field for a failed call.
            let content = if failed { format!("Failed: {result}").into() } else { result };
            let message = Message { tool_call_id: Some(id), ..Message::new("tool", Some(Content::Text(content))) };
            self.0.push(MessageJson::Ours(message));
        }
    }
}

fn add(existing: &mut Cow<'_, str>, text: &str) {
    let existing = existing.to_mut();
    existing.push_str("\n\n");
    existing.push_str(text);
}

fn attach(file: File<'_>) -> Part<'_> {
    let File { name, media_type, content } = file;
    match content {
        FileContent::Picture(data) => Part::ImageUrl { image_url: Url { url: File::data_url(media_type, &data) } },
        FileContent::Pdf(data) => {
            Part::File { file: Document { filename: name, file_data: File::data_url(media_type, &data) } }
        }
        FileContent::Text(text) => Part::Text { text: File::titled(&name, &text).into() },
    }
}

fn rebuilt<'a>(turn: &AssistantTurn<'a>) -> Message<'a> {
    let mut message = Message::new("assistant", None);
    for part in &turn.parts {
        match (part, &mut message.content) {
            (TurnPart::Text(text), Some(Content::Text(existing))) => add(existing, text),
            (TurnPart::Text(text), _) => message.content = Some(Content::Text(text.clone())),
            (TurnPart::Call(at), _) => message.tool_calls.extend(turn.calls.get(*at).map(call)),
        }
    }
    message
}

fn call<'a>(call: &ToolExchange<'a>) -> Call<'a> {
    let arguments = match &call.arguments {
        Cow::Borrowed(written) => as_text(written),
        Cow::Owned(written) => Cow::Owned(as_text(written).into_owned()),
    };
    Call { id: call.id.clone(), r#type: "function", function: Arguments { name: call.name, arguments } }
}
