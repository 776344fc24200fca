//! [`Model`]: encodes a request from a session and returns the model's turn.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::Blob;
use crate::body::{Block, NativeTurn};
use crate::id::Digest;
use crate::model_input::ModelInput;
use crate::store::BoxFuture;
use crate::usage::Usage;

/// A language model.
pub trait Model: Send + Sync + 'static {
    /// The model's name.
    fn name(&self) -> &str;

    /// The name and version of the pure function that encodes requests. What one version encodes must never change.
    fn encoder(&self) -> &str;

    /// Encodes the request. Must not send anything: the request's digest is recorded before it is sent.
    fn encode<'a>(&'a self, input: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>>;

    /// Sends the request. Calls `on_delta` with each part of the answer as it arrives.
    fn send<'a>(
        &'a self,
        input: &'a ModelInput<'a>,
        request: &'a Encoded,
        on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>>;

    /// Whether requests may carry a schema of the answer. Without it, an agent with a typed output makes the model
    /// answer with a tool call.
    fn answer_schema_support(&self) -> AnswerSchemaSupport {
        AnswerSchemaSupport::Never
    }

    /// A key that is equal for requests that share the rate limit of a provider: those with the same address and API
    /// key. If the provider asks one of them to wait, all of them wait. `attempt` is the number of the attempt, from 1.
    /// `None` if the model has no rate limit.
    fn rate_limit_key(&self, attempt: u32) -> Option<Digest> {
        let _ = attempt;
        None
    }

    /// Counts the tokens of the request. The default returns an estimate from its length.
    fn count<'a>(
        &'a self,
        input: &'a ModelInput<'a>,
        request: &'a Encoded,
    ) -> BoxFuture<'a, Result<TokenCount, Failure>> {
        let _ = input;
        Box::pin(async move { Ok(TokenCount::estimate(request)) })
    }
}

/// When the API of a model takes a JSON schema of the answer ([`Parameters::answer_schema`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerSchemaSupport {
    /// Never: a schema is refused or ignored.
    #[default]
    Never,
    /// In requests without tools. With tools, the schema would be refused or would prevent tool calls.
    WithoutTools,
    /// In every request, with or without tools.
    Always,
}

/// The number of tokens in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// Counted by the provider.
    Counted(u64),
    /// Estimated as one token per four bytes of the request. The estimate is a few percent too high for English prose,
    /// too low for text in other scripts, and far too high for images.
    Estimated(u64),
}

impl TokenCount {
    /// An estimate from the length of a request.
    pub fn estimate(request: &Encoded) -> Self {
        Self::Estimated(request.bytes.as_ref().map_or(0, |bytes| bytes.len().div_ceil(4) as u64))
    }

    /// The number, counted or estimated.
    pub fn tokens(self) -> u64 {
        match self {
            Self::Counted(tokens) | Self::Estimated(tokens) => tokens,
        }
    }
}

/// A shared model of any type.
pub type BoxModel = Arc<dyn Model>;

/// An encoded request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The SHA-256 digest of the bytes.
    pub digest: Digest,
    /// The bytes; `None` if the encoder produced none.
    pub bytes: Option<Arc<Vec<u8>>>,
    /// The model and encoder that made the request, if the [`Model`] chooses among several.
    pub by: Option<EncodedBy>,
}

/// The one of several models that encoded a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBy {
    /// The model's name.
    pub model: String,
    /// The model's encoder.
    pub encoder: String,
}

impl Encoded {
    /// A request of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        // The vector is not converted to `Arc<[u8]>`: copying a long request costs as much as hashing it.
        let bytes = Arc::new(bytes.into());
        Self { digest: Digest::of(&bytes), bytes: Some(bytes), by: None }
    }

    /// The bytes; empty if the encoder produced none.
    pub fn body(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| bytes)
    }
}

/// Parameters of a request in addition to its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The maximum number of tokens in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The reasoning effort, as the provider names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The JSON schema of the answer. Objects in it are sent without additional properties and with all fields
    /// required, as providers demand: write an optional field as one that may be `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// Whether the model may or must call a tool. If unset, the provider's default applies: it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

impl Parameters {
    /// No parameters.
    pub const NONE: Self =
        Self { max_tokens: None, temperature: None, effort: None, answer_schema: None, tool_choice: None };
}

/// Whether a model may or must call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model may call a tool.
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call some tool.
    Required,
    /// The model must call the tool of this name.
    Tool(String),
}

impl ToolChoice {
    /// Whether the model must call a tool.
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Tool(_))
    }
}

/// A part of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// A piece of text.
    Text(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// The start of a tool call.
    Call {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// A piece of the arguments of the call that started last.
    Arguments(String),
}

/// A model's turn.
#[derive(Clone, Debug, Default)]
pub struct ModelAnswer {
    /// The blocks of the turn, in order.
    pub blocks: Vec<Block>,
    /// Why the model stopped, as the provider names it.
    pub stop: Option<String>,
    /// The name of the model that answered, as given in the response.
    pub model: Option<String>,
    /// The tokens and the cost of the request.
    pub usage: Usage,
    /// The source of the prices that the cost was computed with; `None` if they are unknown.
    pub prices: Option<String>,
    /// The turn in the format of its API, if the blocks do not contain everything that the API wants back.
    pub sent: Option<NativeTurn>,
    /// The raw response, if there is one.
    pub raw: Option<Blob>,
}

/// Why there was no response. A response with an error has a [status](Failure::status) instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// Another reason, or there was a response.
    #[default]
    Other,
    /// The request cannot be sent, because of invalid characters in a key or header, or an invalid proxy.
    Setup,
    /// The address is not a URL.
    Address,
    /// The host cannot be reached, or the connection was lost.
    Unreachable,
    /// The TLS connection failed, usually because a certificate was not accepted.
    Tls,
    /// The request timed out.
    TimedOut,
}

/// A failed model request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// What happened.
    pub why: String,
    /// The kind of failure, if there was no response.
    pub kind: FailureKind,
    /// Whether the same request may succeed later.
    pub retry: bool,
    /// How long to wait before a retry, if the provider gives a time.
    pub after: Option<Duration>,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The text that had arrived before the response broke off.
    pub partial: Option<String>,
    /// The raw response as far as it arrived.
    pub raw: Option<Box<Blob>>,
}

impl Failure {
    /// A failure for which a retry does not help.
    pub fn permanent(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            kind: FailureKind::Other,
            retry: false,
            after: None,
            status: None,
            partial: None,
            raw: None,
        }
    }

    /// A failure for which a retry may succeed.
    pub fn transient(why: impl Into<String>) -> Self {
        Self { retry: true, ..Self::permanent(why) }
    }
}
