//! What the three clients share: they send one request and read the answer while it arrives.

use rath_core::{Blob, Delta, Encoded, ModelInput};

use crate::failure::{FailureCause, ProviderFailure};
use crate::http::{Http, PartialResponse, TransportError};
use crate::http_response::HttpResponse;
use crate::request_input::RequestInput;
use crate::secret_filter::SecretFilter;
use crate::stream::ReadMore;
use crate::turn::{BlockContent, ProviderTurn};

/// A decoder of one API.
pub(crate) trait Decode: Default + Send {
    fn feed(&mut self, bytes: &[u8], on_delta: &mut dyn FnMut(Delta));
    fn read_more(&self) -> ReadMore;
    fn finish(self) -> Result<ProviderTurn, ProviderFailure>;
    fn whole(response: &HttpResponse<'_>) -> Result<ProviderTurn, ProviderFailure>;
}

/// Encodes the request for an agent's input. Reads the blobs of the messages first.
pub(crate) async fn encode(
    shown: &ModelInput<'_>,
    model: &str,
    encoder: impl FnOnce(&RequestInput<'_>) -> serde_json::Result<Vec<u8>>,
) -> Result<Encoded, rath_core::Failure> {
    let unreadable = |error| rath_core::Failure::permanent(format!("the agent's input cannot be read: {error}"));
    let messages = shown.whole_messages().await.map_err(unreadable)?;
    let files = shown.attached(&messages).await.map_err(unreadable)?;
    let request_input = RequestInput::of(model, shown, &messages, &files);
    let not_encoded = |error| rath_core::Failure::permanent(format!("the request cannot be encoded: {error}"));
    Ok(Encoded::new(encoder(&request_input).map_err(not_encoded)?))
}

/// Sends the request and reads the answer. Returns the turn and the raw response body.
pub(crate) async fn ask<D: Decode>(
    http: &Http,
    path: &str,
    request: &Encoded,
    on_delta: &(dyn Fn(Delta) + Send + Sync),
) -> Result<(ProviderTurn, Blob), rath_core::Failure> {
    let mut decoder = D::default();
    let body = request.body();
    let secrets = http.secrets();
    let mut secret_filter = SecretFilter::new(&secrets, on_delta);
    let mut each = |response: &PartialResponse, piece: &[u8]| {
        if !response.is_stream(piece) {
            return ReadMore::Yes;
        }
        decoder.feed(piece, &mut |delta| secret_filter.push(delta));
        decoder.read_more()
    };
    let mut response = http.post(path, body, &mut each).await;
    secret_filter.flush();
    if secrets.iter().any(|secret| secret.is_in(&response.body)) {
        // The provider echoed the key. Remove it from the body and decode the redacted body.
        response.body = secrets.iter().fold(response.body, |body, secret| secret.redact_bytes(&body));
        decoder = D::default();
        decoder.feed(&response.body, &mut |_| {});
    }
    let answer = response.read(decoder);
    // A key that is split over several events or escaped is not found in the raw bytes, but is found in the decoded
    // text.
    let contains_key = |text: &str| secrets.iter().any(|secret| secret.is_in(text.as_bytes()));
    let is_clean = match &answer {
        Ok(turn) => !turn.blocks.iter().any(|block| strings_of(&block.part).iter().any(|text| contains_key(text))),
        Err(failure) => !failure.partial.as_deref().is_some_and(contains_key),
    };
    if !is_clean {
        let why = "the provider's answer contains the API key; the answer was not stored; replace the key and check the base URL";
        return Err(rath_core::Failure { status: response.status, ..rath_core::Failure::permanent(why) });
    }
    if let Ok(turn) = answer.as_ref()
        && !response.is_stream(&response.body)
    {
        turn.blocks.iter().for_each(|block| send_deltas(&block.part, on_delta));
    }
    match answer {
        Ok(turn) => Ok((turn, response.into_blob())),
        Err(failure) => {
            let hide = |text| secrets.iter().fold(text, |text, secret| secret.redact(text));
            let raw = (!response.body.is_empty()).then(|| Box::new(response.into_blob()));
            Err(rath_core::Failure { why: hide(failure.why), partial: failure.partial.map(hide), raw, ..failure })
        }
    }
}

/// Sends a request whose answer is not a turn. Returns the response body.
pub(crate) async fn ask_whole(http: &Http, path: &str, body: &[u8]) -> Result<Vec<u8>, rath_core::Failure> {
    let response = http.post(path, body, &mut |_, _| ReadMore::Yes).await;
    let failure = match (&response.error, response.status) {
        (None, Some(200..300)) => return Ok(response.body),
        (Some(error), _) => error.failure(),
        (None, _) => ProviderFailure::refused(&response.as_http_response()).into(),
    };
    let why = http.secrets().iter().fold(failure.why, |why, secret| secret.redact(why));
    Err(rath_core::Failure { why, ..failure })
}

impl PartialResponse {
    fn as_http_response(&self) -> HttpResponse<'_> {
        HttpResponse { status: self.status.unwrap_or_default(), headers: &self.headers, body: &self.body }
    }

    /// Whether the body is an event stream. Without a telling content type, the first character decides.
    fn is_stream(&self, piece: &[u8]) -> bool {
        let begin = if self.body.is_empty() { piece } else { &self.body };
        let kind = self.as_http_response().header("content-type").unwrap_or_default().to_ascii_lowercase();
        let is_good = self.status.is_some_and(|status| (200..300).contains(&status));
        let looks_whole = matches!(begin.trim_ascii_start().first(), Some(b'{' | b'[' | b'<'));
        is_good && (kind.contains("event-stream") || !(kind.contains("json") || looks_whole))
    }

    /// The body as a blob, with its media type.
    fn into_blob(self) -> Blob {
        let is_json = self.as_http_response().header("content-type").is_some_and(|kind| kind.contains("json"));
        let media_type = match () {
            () if self.is_stream(&self.body) => "text/event-stream",
            () if is_json || self.body.trim_ascii_start().starts_with(b"{") => "application/json",
            () => "application/octet-stream",
        };
        Blob::new(self.body, media_type)
    }

    fn read<D: Decode>(&self, decoder: D) -> Result<ProviderTurn, rath_core::Failure> {
        let error = self.error.as_ref().map(TransportError::failure);
        let response = self.as_http_response();
        match (response.status, error) {
            (0, error) => Err(error.unwrap_or_else(|| rath_core::Failure::transient("no response"))),
            (300..400, _) => {
                let to = response.header("location").unwrap_or("another address");
                let why = format!("the provider redirects to {to}; set that as the base URL, or check the current one");
                Err(rath_core::Failure { status: self.status, ..rath_core::Failure::permanent(why) })
            }
            (200..300, _) if self.body.trim_ascii_start().starts_with(b"<") => {
                let why = "the response is a web page, not an answer; check the base URL";
                Err(rath_core::Failure { status: self.status, ..rath_core::Failure::permanent(why) })
            }
            (200..300, Some(error)) if !self.is_stream(&self.body) => Err(error),
            (200..300, error) if self.is_stream(&self.body) => decoder.finish().map_err(|failure| {
                let was_truncated = matches!(failure.cause, FailureCause::Truncated | FailureCause::Unreadable);
                let failure = rath_core::Failure::from(failure);
                match error.filter(|_| was_truncated) {
                    Some(error) => rath_core::Failure { partial: failure.partial, ..error },
                    None => failure,
                }
            }),
            _ => D::whole(&response).map_err(Into::into),
        }
    }
}

/// All strings in a block.
fn strings_of(part: &BlockContent) -> Vec<&str> {
    match part {
        BlockContent::Text { text } | BlockContent::Refusal { text } | BlockContent::Reasoning { text, .. } => {
            vec![text]
        }
        BlockContent::Call { id, name, arguments } => vec![id, name, arguments],
        BlockContent::Sealed { data } => vec![data],
        BlockContent::Server { kind, input } => vec![kind, input],
        BlockContent::Other { kind } => vec![kind],
    }
}

/// Sends the deltas of a block that arrived as a whole.
fn send_deltas(part: &BlockContent, on_delta: &(dyn Fn(Delta) + Send + Sync)) {
    match part {
        BlockContent::Text { text } | BlockContent::Refusal { text } => on_delta(Delta::Text(text.clone())),
        BlockContent::Reasoning { text, .. } if !text.is_empty() => on_delta(Delta::Reasoning(text.clone())),
        BlockContent::Call { id, name, arguments } => {
            on_delta(Delta::Call { id: id.clone(), name: name.clone() });
            on_delta(Delta::Arguments(arguments.clone()));
        }
        _ => {}
    }
}
