//! The client of the OpenAI Responses API.

use super::back::back;
use super::decode::Decoder;
use super::{API, ENCODER, encode};
use crate::http::Http;
use crate::request_input::RequestInput;
use crate::settings::{model, settings};
use crate::turn::ProviderTurn;

/// A client of OpenAI Responses. Needs a tokio runtime.
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
    /// A client for this model at OpenAI.
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
    |_: &Responses, request_input: &RequestInput<'_>| encode(request_input),
    |client: &Responses| crate::chat::schema_support_of_openai(&client.model),
    |_: &Responses, turn: &ProviderTurn| (API, back(turn))
);
