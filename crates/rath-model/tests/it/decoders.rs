//! Helpers for tests of the decoders.

use rath_core::Delta;
use rath_model::{BlockContent, ProviderFailure, ProviderTurn};
use rath_recordings::RecordedApi;
use serde_json::Value;

pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Decodes a stream. Returns the result and the deltas.
pub(crate) fn decode(api: RecordedApi, stream: &str) -> (Result<ProviderTurn, ProviderFailure>, Vec<Delta>) {
    api.decode(std::iter::once(stream.as_bytes()))
}

pub(crate) fn turn(api: RecordedApi, events: &[Value]) -> ProviderTurn {
    decode(api, &stream(events)).0.unwrap()
}

pub(crate) fn failure(api: RecordedApi, events: &[Value]) -> ProviderFailure {
    decode(api, &stream(events)).0.unwrap_err()
}

/// The calls of a turn: id, name, arguments.
pub(crate) fn calls(turn: &ProviderTurn) -> Vec<(&str, &str, &str)> {
    let calls = turn.blocks.iter().filter_map(|block| match &block.part {
        BlockContent::Call { id, name, arguments } => Some((id.as_str(), name.as_str(), arguments.as_str())),
        _ => None,
    });
    calls.collect()
}

/// The text of the deltas.
pub(crate) fn words(deltas: &[Delta]) -> String {
    let words = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}
