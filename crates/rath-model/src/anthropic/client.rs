//! The client.

use super::back::back;
use super::count::count;
use super::decode::Decoder;
use super::{API, ENCODER, encode};
use crate::http::Http;
use crate::settings::{model, settings};
use crate::talk::Talk;
use crate::turn::Turn;

/// A model that is asked over Anthropic Messages. Needs a tokio runtime.
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
    /// The model of this name, at Anthropic.
    pub fn new(model: impl Into<String>) -> Self {
        let http = Http::new("https://api.anthropic.com", ("x-api-key", ""));
        Self { model: model.into(), http }.header("anthropic-version", "2023-06-01")
    }
}

settings!(Anthropic, models at "/v1/models");
model!(
    Anthropic,
    Decoder,
    "/v1/messages",
    |_| ENCODER,
    |_: &Anthropic, talk: &Talk<'_>| encode(talk),
    |_: &Anthropic, turn: &Turn| (API, back(turn)),
    count
);
