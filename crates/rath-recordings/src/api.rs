//! Finds the API of a recorded answer, and decodes it.

use rath_core::Delta;
use serde_json::Value;

use crate::exchange::Exchange;
use rath_model::{Fields, HttpResponse, ProviderFailure, ProviderTurn, anthropic, chat, responses, sse};

/// An API that rath has a client for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedApi {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions and its dialects.
    Chat,
    /// OpenAI Responses.
    Responses,
}

impl RecordedApi {
    /// Finds the API of an exchange: by its URL, or else by its body.
    pub fn of(exchange: &Exchange) -> Result<Self, String> {
        let path = exchange.url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let by_path = match path.rsplit_once('/') {
            Some((_, "messages")) => Some(Self::Messages),
            Some((before, "completions")) if before.ends_with("/chat") => Some(Self::Chat),
            Some((_, "responses")) => Some(Self::Responses),
            _ => None,
        };
        by_path.or_else(|| Self::of_body(exchange)).ok_or_else(|| match path {
            "" => "unknown API, judged by the body".into(),
            _ => format!("unknown API: {path}"),
        })
    }

    fn of_body(exchange: &Exchange) -> Option<Self> {
        payloads(exchange).iter().find_map(|payload| {
            let says = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
            match (says("type"), says("object")) {
                ("message" | "message_start", _) => Some(Self::Messages),
                (_, "response") => Some(Self::Responses),
                (kind, _) if kind.starts_with("response.") => Some(Self::Responses),
                (_, "chat.completion" | "chat.completion.chunk") => Some(Self::Chat),
                _ if payload.pointer("/choices/0/delta").is_some() => Some(Self::Chat),
                _ if payload.pointer("/choices/0/message").is_some() => Some(Self::Chat),
                _ => None,
            }
        })
    }

    /// Decodes a streamed answer from these pieces. Returns the result and the deltas.
    pub fn decode<'a>(
        self,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> (Result<ProviderTurn, ProviderFailure>, Vec<Delta>) {
        let mut deltas = Vec::new();
        let mut on_delta = |delta| deltas.push(delta);
        macro_rules! run {
            ($decoder:expr) => {{
                let mut decoder = $decoder;
                pieces.for_each(|piece| decoder.feed(piece, &mut on_delta));
                decoder.finish()
            }};
        }
        let turn = match self {
            Self::Messages => run!(anthropic::Decoder::new()),
            Self::Chat => run!(chat::Decoder::new()),
            Self::Responses => run!(responses::Decoder::new()),
        };
        (turn, deltas)
    }

    /// Decodes an answer that was not streamed.
    pub fn decode_whole(self, reply: &HttpResponse<'_>) -> Result<ProviderTurn, ProviderFailure> {
        match self {
            Self::Messages => anthropic::decode_whole(reply),
            Self::Chat => chat::decode_whole(reply),
            Self::Responses => responses::decode_whole(reply),
        }
    }

    /// Writes a turn as the vendor's JSON.
    pub fn write(self, turn: &ProviderTurn) -> Fields {
        match self {
            Self::Messages => anthropic::write(turn),
            Self::Chat => chat::write(turn),
            Self::Responses => responses::write(turn),
        }
    }
}

impl Exchange {
    /// Whether the answer is an event stream.
    pub fn is_stream(&self) -> bool {
        let kind = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let says = kind.map(|(_, value)| value.starts_with("text/event-stream"));
        let looks = !self.body.trim_ascii_start().starts_with(b"{");
        self.status < 400 && says.unwrap_or(looks)
    }
}

/// The JSON values of an exchange: those of its events, or its body.
pub fn payloads(exchange: &Exchange) -> Vec<Value> {
    if !exchange.is_stream() {
        return serde_json::from_slice(&exchange.body).into_iter().collect();
    }
    let mut payloads = Vec::new();
    let mut each = |event: sse::SseEvent<'_>| payloads.extend(serde_json::from_slice(event.data));
    let mut parser = sse::SseParser::default();
    let _ = parser.feed(&exchange.body, &mut each).and_then(|()| parser.finish(&mut each));
    payloads
}
