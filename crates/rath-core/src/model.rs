//! What a model is: it is shown a part of a session and answers with a turn.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::Blob;
use crate::body::{AsSent, Block};
use crate::id::Digest;
use crate::shown::Shown;
use crate::store::BoxFuture;
use crate::usage::Usage;

/// Answers.
pub trait Model: Send + Sync + 'static {
    /// Which model it is.
    fn name(&self) -> &str;

    /// Which pure function makes the request: name and version. What a version makes never changes.
    fn encoder(&self) -> &str;

    /// Makes the request of what is shown. Nothing leaves the machine: the digest is on the record before that.
    fn encode<'a>(&'a self, shown: &'a Shown<'a>) -> BoxFuture<'a, Result<Encoded, Failure>>;

    /// Sends the request. `heard` is told each part of the answer as it comes.
    fn send<'a>(
        &'a self,
        shown: &'a Shown<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Answer, Failure>>;

    /// How many tokens the request has. Who cannot count estimates, and says so.
    fn count<'a>(&'a self, shown: &'a Shown<'a>, request: &'a Encoded) -> BoxFuture<'a, Result<TokenCount, Failure>> {
        let _ = shown;
        Box::pin(async move { Ok(TokenCount::estimate(request)) })
    }
}

/// How many tokens a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// By the provider's own count.
    Counted(u64),
    /// By the length of the request, a token for every four bytes of it. Prose in English comes out too high by a few
    /// percent, text in other scripts too low, and pictures far too high.
    Estimated(u64),
}

impl TokenCount {
    /// What the length of a request lets one expect.
    pub fn estimate(request: &Encoded) -> Self {
        Self::Estimated(request.bytes.as_ref().map_or(0, |bytes| bytes.len().div_ceil(4) as u64))
    }

    /// The number, whichever way it was come by.
    pub fn tokens(self) -> u64 {
        match self {
            Self::Counted(tokens) | Self::Estimated(tokens) => tokens,
        }
    }
}

/// A model, its type forgotten.
pub type BoxModel = Arc<dyn Model>;

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its bytes, where the encoder made some.
    pub bytes: Option<Arc<Vec<u8>>>,
    /// Who made it, where one model speaks for several.
    pub by: Option<MadeBy>,
}

/// The one of several models that made a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeBy {
    /// Its name.
    pub model: String,
    /// Its encoder.
    pub encoder: String,
}

impl Encoded {
    /// The request that is these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        // Shared as they are: a request may be long, and moving it costs as much as hashing it.
        let bytes = Arc::new(bytes.into());
        Self { digest: Digest::of(&bytes), bytes: Some(bytes), by: None }
    }

    /// Its bytes; none where the encoder made none.
    pub fn body(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| bytes)
    }
}

/// What the model is asked for besides the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// At most this many tokens in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How much it should think, in the provider's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The answer is JSON of this schema. Objects in it are sent closed, with all their fields required, which is what
    /// providers ask for: a field that may be missing is one that may be `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// Whether the model may or must call a tool. Unless set, the provider decides: it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

impl Parameters {
    /// Nothing is asked for besides.
    pub const NONE: Self =
        Self { max_tokens: None, temperature: None, effort: None, answer_schema: None, tool_choice: None };
}

/// Whether a model may or must call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// It may.
    Auto,
    /// It may not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Tool(String),
}

impl ToolChoice {
    /// Whether the model must call a tool.
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Tool(_))
    }
}

/// A part of an answer, as it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Words.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// A call begins.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of the arguments of the call that began last.
    Arguments(String),
}

/// A turn of a model.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its parts, in order.
    pub blocks: Vec<Block>,
    /// Why it ended, in the provider's words.
    pub stop: Option<String>,
    /// The model that answered, as it calls itself.
    pub model: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// The prices that its cost was worked out with; none where they are not known.
    pub prices: Option<String>,
    /// The turn as its API wants it back, where the blocks do not say all of it.
    pub sent: Option<AsSent>,
    /// The response as it came, where there is one.
    pub raw: Option<Blob>,
}

/// Why no response came from a model. A response with an error has a [status](Failure::status) instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// Another reason, or a response came.
    #[default]
    Other,
    /// The request cannot be sent: a key or header with impossible characters, a bad proxy.
    Setup,
    /// The address is not a URL.
    Address,
    /// The host cannot be reached, or the connection broke.
    Unreachable,
    /// No secure connection: a certificate that is not accepted, mostly.
    Tls,
    /// There was no answer in time.
    TimedOut,
}

/// A model did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// What happened.
    pub why: String,
    /// What kind of failure it is, if no response came.
    pub kind: FailureKind,
    /// Whether the same request may succeed later.
    pub retry: bool,
    /// How long to wait before that, where the provider says so.
    pub after: Option<Duration>,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What had been heard of the answer before it broke off.
    pub partial: Option<String>,
    /// The response as far as it came, where anything did.
    pub raw: Option<Box<Blob>>,
}

impl Failure {
    /// A failure that repeating will not mend.
    pub fn for_good(why: impl Into<String>) -> Self {
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

    /// A failure that may be over soon.
    pub fn for_now(why: impl Into<String>) -> Self {
        Self { retry: true, ..Self::for_good(why) }
    }
}
