//! The client of the Anthropic Messages API.

use rath_core::AnswerSchemaSupport;

use super::back::back;
use super::count::count;
use super::decode::Decoder;
use super::{API, ENCODER, encode};
use crate::http::Http;
use crate::request_input::RequestInput;
use crate::settings::{model, settings};
use crate::turn::ProviderTurn;

/// A client of Anthropic Messages. Needs a tokio runtime.
///
/// ```
/// use rath_model::Anthropic;
///
/// let model = Anthropic::new("claude-sonnet-4-5").key("the key");
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    model: String,
    http: Http,
}

impl Anthropic {
    /// A client for this model at Anthropic.
    pub fn new(model: impl Into<String>) -> Self {
        let http = Http::new("https://api.anthropic.com", ("x-api-key", ""));
        Self { model: model.into(), http }.header("anthropic-version", "2023-06-01")
    }
}

/// The models before Claude Opus 4.1 and Sonnet 4.5 take no schema of the answer.
fn schema_support(model: &str) -> AnswerSchemaSupport {
    let old = ["claude-2", "claude-3", "claude-instant", "-4-0", "-4-20250514"];
    match old.iter().any(|old| model.contains(old)) {
        true => AnswerSchemaSupport::Never,
        false => AnswerSchemaSupport::Always,
    }
}

settings!(Anthropic, models at "/v1/models");
model!(
    Anthropic,
    Decoder,
    "/v1/messages",
    |_| ENCODER,
    |_: &Anthropic, request_input: &RequestInput<'_>| encode(request_input),
    |client: &Anthropic| schema_support(&client.model),
    |_: &Anthropic, turn: &ProviderTurn| (API, back(turn)),
    count
);
