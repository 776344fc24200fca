//! Version 1 of this API's requests. Frozen: see [`super`].

use std::borrow::Cow;

use rath_core::{Parameters, ToolSpec};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::as_object;
use super::attached::{File, FileContent};
use super::conversation::{AssistantTurn, ConversationItem, ToolExchange, TurnPart};
use super::schema::{Limits, answer_schema, schema};
use crate::request_input::RequestInput;

/// The name that turns of this API are stored with.
pub(crate) const API: &str = "anthropic-messages";

/// The API requires a token limit. This is the default.
const MAX_TOKENS: u64 = 32_000;
/// The default for Claude 3 models, which have a lower limit.
const MAX_TOKENS_OF_3: u64 = 4096;

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
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Message<'a>>,
    stream: bool,
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Adaptive,
    Disabled,
    Enabled { budget_tokens: u64 },
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { schema: Box<RawValue> },
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Cache>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Verbatim(&'a RawValue),
    Ours(Block<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
    Document {
        source: Source<'a>,
        title: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Cow<'a, RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: Cow<'a, str>,
}

/// Marks a point up to which the provider may cache the request.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Cache {
    Ephemeral,
}

impl<'a> Request<'a> {
    fn of(request_input: &RequestInput<'a>) -> Self {
        let RequestInput { model, prompt, parameters, .. } = *request_input;
        let max_tokens = parameters.max_tokens.unwrap_or_else(|| usual_limit(model));
        let (thinking, effort) = effort(parameters, max_tokens);
        let format = parameters.answer_schema.as_ref();
        let format = format.map(|schema| Format::JsonSchema { schema: answer_schema(schema, Limits::Refused) });
        let has_config = effort.is_some() || format.is_some();
        let thinks = !matches!(thinking, None | Some(Thinking::Disabled));
        let mut system = Vec::new();
        if !prompt.trim().is_empty() {
            system.push(Block::text(prompt.into()));
        }
        let mut messages = Messages(Vec::new());
        for item in request_input.conversation(API) {
            match item {
                ConversationItem::System(text) if messages.0.is_empty() => system.push(Block::text(text)),
                ConversationItem::System(text) => {
                    messages.say(Block::text(format!("Standing instructions:\n\n{text}").into()))
                }
                ConversationItem::User(text) => messages.say(Block::text(text)),
                ConversationItem::Files(files) => {
                    messages.add("user", files.into_iter().map(|file| Part::Ours(attach(file))))
                }
                ConversationItem::Turn(turn) => messages.turn(turn),
            }
        }
        let system: Vec<Block<'_>> = system.into_iter().filter(|block| !block.is_blank()).collect();
        let request = Self {
            model,
            max_tokens,
            // The API accepts no temperature with thinking.
            temperature: parameters.temperature.filter(|_| !thinks),
            thinking,
            output_config: has_config.then_some(OutputConfig { effort, format }),
            tools: request_input.tools.iter().map(Tool::of).collect(),
            tool_choice: None,
            system,
            messages: messages.0,
            stream: true,
        };
        request.cached()
    }

    /// Marks the parts for the cache that stay the same from one request to the next: tools, system, and the
    /// conversation up to each of its last two user messages. The second to last is where the previous request ended.
    fn cached(mut self) -> Self {
        if let Some(tool) = self.tools.last_mut() {
            tool.cache_control = Some(Cache::Ephemeral);
        }
        let said = self.messages.iter_mut().rev().filter(|message| message.role == "user").take(2);
        let ends = said.filter_map(|message| message.content.last_mut());
        let ends = ends.filter_map(|part| match part {
            Part::Ours(block) => Some(block),
            Part::Verbatim(_) => None,
        });
        ends.chain(self.system.last_mut()).for_each(Block::keep);
        self
    }
}

fn usual_limit(model: &str) -> u64 {
    match model.contains("claude-3-") && !model.contains("claude-3-7") {
        true => MAX_TOKENS_OF_3,
        false => MAX_TOKENS,
    }
}

/// The thinking effort: a number of tokens, `none`, or one of the provider's words.
fn effort(parameters: &Parameters, max_tokens: u64) -> (Option<Thinking>, Option<&str>) {
    let Some(effort) = parameters.effort.as_deref() else { return (None, None) };
    match (effort, effort.parse::<u64>()) {
        ("none" | "off", _) => (Some(Thinking::Disabled), None),
        (_, Ok(tokens)) => {
            let budget_tokens = tokens.min(max_tokens.saturating_sub(1)).max(1024);
            (Some(Thinking::Enabled { budget_tokens }), None)
        }
        (effort, Err(_)) => (Some(Thinking::Adaptive), Some(effort)),
    }
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        Self { name: &tool.name, description: &tool.description, input_schema: schema(tool), cache_control: None }
    }
}

impl<'a> Block<'a> {
    fn text(text: Cow<'a, str>) -> Self {
        Self::Text { text, cache_control: None }
    }

    fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text, .. } if text.trim().is_empty())
    }

    fn keep(&mut self) {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => {
                *cache_control = Some(Cache::Ephemeral);
            }
            Self::ToolUse { .. } => {}
        }
    }
}

/// Messages with alternating roles.
struct Messages<'a>(Vec<Message<'a>>);

impl<'a> Messages<'a> {
    fn add(&mut self, role: &'static str, parts: impl IntoIterator<Item = Part<'a>>) {
        let mut parts = parts.into_iter().peekable();
        match self.0.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(parts),
            None if parts.peek().is_none() => {}
            None => self.0.push(Message { role, content: parts.collect() }),
        }
    }

    fn say(&mut self, block: Block<'a>) {
        if !block.is_blank() {
            self.add("user", [Part::Ours(block)]);
        }
    }

    fn turn(&mut self, turn: AssistantTurn<'a>) {
        if self.0.is_empty() {
            // The API requires the first message to be from the user.
            self.say(Block::text("Begin.".into()));
        }
        let verbatim = turn.sent.and_then(|json| serde_json::from_str::<Vec<&RawValue>>(json).ok());
        match verbatim {
            Some(parts) => self.add("assistant", parts.into_iter().map(Part::Verbatim)),
            None => self.add("assistant", rebuilt(&turn).into_iter().map(Part::Ours)),
        }
        self.add("user", turn.calls.into_iter().map(|call| Part::Ours(result(call))));
    }
}

fn attach(file: File<'_>) -> Block<'_> {
    let File { name, media_type, content } = file;
    let source = |kind, media_type, data| Source { r#type: kind, media_type, data };
    match content {
        FileContent::Picture(data) => {
            Block::Image { source: source("base64", media_type, data.into()), cache_control: None }
        }
        FileContent::Pdf(data) => {
            Block::Document { source: source("base64", media_type, data.into()), title: name, cache_control: None }
        }
        FileContent::Text(text) => {
            Block::Document { source: source("text", "text/plain", text), title: name, cache_control: None }
        }
    }
}

fn rebuilt<'a>(turn: &AssistantTurn<'a>) -> Vec<Block<'a>> {
    let block = |part: &TurnPart<'a>| match part {
        TurnPart::Text(text) => Some(Block::text(text.clone())),
        TurnPart::Call(at) => turn.calls.get(*at).map(|call| Block::ToolUse {
            id: call.id.clone(),
            name: call.name,
            input: match &call.arguments {
                Cow::Borrowed(written) => as_object(written),
                Cow::Owned(written) => Cow::Owned(as_object(written).into_owned()),
            },
        }),
    };
    turn.parts.iter().filter_map(block).collect()
}

fn result(call: ToolExchange<'_>) -> Block<'_> {
    let ToolExchange { id, result, failed, .. } = call;
    let content = match result.trim().is_empty() {
        true => "(no output)".into(),
        false => result,
    };
    Block::ToolResult { tool_use_id: id, content, is_error: failed, cache_control: None }
}
