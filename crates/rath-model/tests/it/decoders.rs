//! The decoders, as their tests use them.

use rath_core::Delta;
use rath_model::{Failure, Part, Turn};
use rath_recordings::Api;
use serde_json::Value;

/// A stream of these events.
pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// What a stream is read as, and what is heard of it.
pub(crate) fn decode(api: Api, stream: &str) -> (Result<Turn, Failure>, Vec<Delta>) {
    api.decode(std::iter::once(stream.as_bytes()))
}

/// The turn of a stream of these events.
pub(crate) fn turn(api: Api, events: &[Value]) -> Turn {
    decode(api, &stream(events)).0.unwrap()
}

/// The failure of a stream of these events.
pub(crate) fn failure(api: Api, events: &[Value]) -> Failure {
    decode(api, &stream(events)).0.unwrap_err()
}

/// The calls of a turn: id, name, arguments.
pub(crate) fn calls(turn: &Turn) -> Vec<(&str, &str, &str)> {
    let calls = turn.blocks.iter().filter_map(|block| match &block.part {
        Part::Call { id, name, arguments } => Some((id.as_str(), name.as_str(), arguments.as_str())),
        _ => None,
    });
    calls.collect()
}

/// The words that are heard.
pub(crate) fn words(heard: &[Delta]) -> String {
    let words = heard.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}
