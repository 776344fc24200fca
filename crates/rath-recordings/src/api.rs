//! Which API an answer is of, and whether it is a stream.

use rath_core::Delta;
use serde_json::Value;

use crate::exchange::Exchange;
use rath_model::{Failure, Fields, Reply, Turn, anthropic, chat, responses, sse};

/// An API that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions and their dialects.
    Chat,
    /// OpenAI Responses.
    Responses,
}

impl Api {
    /// Which API an exchange is of: by its address, or by what it holds where that does not say.
    pub fn of(exchange: &Exchange) -> Result<Self, String> {
        let path = exchange.url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let by_path = match path.rsplit_once('/') {
            Some((_, "messages")) => Some(Self::Messages),
            Some((before, "completions")) if before.ends_with("/chat") => Some(Self::Chat),
            Some((_, "responses")) => Some(Self::Responses),
            _ => None,
        };
        by_path.or_else(|| Self::of_body(exchange)).ok_or_else(|| match path {
            "" => "another API, by what it holds".into(),
            _ => format!("another API: {path}"),
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

    /// Reads a streamed answer that comes in these pieces, and says what was heard meanwhile.
    pub fn decode<'a>(self, pieces: impl Iterator<Item = &'a [u8]>) -> (Result<Turn, Failure>, Vec<Delta>) {
        let mut deltas = Vec::new();
        let mut heard = |delta| deltas.push(delta);
        macro_rules! run {
            ($decoder:expr) => {{
                let mut decoder = $decoder;
                pieces.for_each(|piece| decoder.feed(piece, &mut heard));
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

    /// Reads an answer that came at once.
    pub fn decode_whole(self, reply: &Reply<'_>) -> Result<Turn, Failure> {
        match self {
            Self::Messages => anthropic::decode_whole(reply),
            Self::Chat => chat::decode_whole(reply),
            Self::Responses => responses::decode_whole(reply),
        }
    }

    /// Writes a turn as the vendor did.
    pub fn write(self, turn: &Turn) -> Fields {
        match self {
            Self::Messages => anthropic::write(turn),
            Self::Chat => chat::write(turn),
            Self::Responses => responses::write(turn),
        }
    }
}

impl Exchange {
    /// Whether the answer is a stream of events.
    pub fn is_stream(&self) -> bool {
        let kind = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let says = kind.map(|(_, value)| value.starts_with("text/event-stream"));
        let looks = !self.body.trim_ascii_start().starts_with(b"{");
        self.status < 400 && says.unwrap_or(looks)
    }
}

/// The JSON that an exchange holds: its events, or its body.
pub fn payloads(exchange: &Exchange) -> Vec<Value> {
    if !exchange.is_stream() {
        return serde_json::from_slice(&exchange.body).into_iter().collect();
    }
    let mut payloads = Vec::new();
    let mut each = |event: sse::Event<'_>| payloads.extend(serde_json::from_slice(event.data));
    let mut parser = sse::Parser::default();
    let _ = parser.feed(&exchange.body, &mut each).and_then(|()| parser.finish(&mut each));
    payloads
}
