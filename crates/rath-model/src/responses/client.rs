//! The client.

use super::back::back;
use super::decode::Decoder;
use super::{API, ENCODER, encode};
use crate::http::Http;
use crate::settings::{model, settings};
use crate::talk::Talk;
use crate::turn::Turn;

/// A model that is asked over OpenAI Responses. Needs a tokio runtime.
///
/// ```
/// use rath_model::Responses;
///
/// let model = Responses::new("gpt-5").key("the key");
/// ```
#[derive(Clone, Debug)]
pub struct Responses {
    model: String,
    http: Http,
}

impl Responses {
    /// The model of this name, at OpenAI.
    pub fn new(model: impl Into<String>) -> Self {
        let http = Http::new("https://api.openai.com/v1", ("authorization", "Bearer "));
        Self { model: model.into(), http }
    }
}

settings!(Responses, models at "/models");
model!(
    Responses,
    Decoder,
    "/responses",
    |_| ENCODER,
    |_: &Responses, talk: &Talk<'_>| encode(talk),
    |_: &Responses, turn: &Turn| (API, back(turn))
);
