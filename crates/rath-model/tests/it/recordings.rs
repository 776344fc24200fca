//! Recorded traffic with real providers. The recordings are not part of the project; without them the tests are
//! skipped.

use std::path::{Path, PathBuf};

use rath_model::{BlockContent, ProviderTurn};
use rath_recordings::{Exchange, RecordedApi, check, files, payloads, read};
use serde_json::Value;

use crate::decoders::{calls, decode, stream, words};

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/providers");
    if !folder.is_dir() {
        rath_testkit::Requirement::Recordings.skip(format_args!("none in {}", folder.display()));
        return None;
    }
    Some(folder)
}

/// All recorded streams that decode into a turn.
fn streams(folder: &Path) -> Vec<(RecordedApi, Exchange, ProviderTurn)> {
    let files = files(&folder.join("recordings")).unwrap();
    let exchanges = files.iter().flat_map(|file| read(&std::fs::read(file).unwrap()).unwrap());
    let turns = exchanges.filter(Exchange::is_stream).filter_map(|exchange| {
        let api = RecordedApi::of(&exchange).ok()?;
        let turn = decode(api, std::str::from_utf8(&exchange.body).unwrap()).0.ok()?;
        Some((api, exchange, turn))
    });
    turns.collect()
}

#[test]
fn recorded_answers_decode_as_in_the_vendors_clients() {
    let Some(folder) = folder() else { return };
    let report = check(&folder).unwrap();
    assert!(report.differ() == 0 && report.equal() > 0, "{report}");
}

#[test]
fn deltas_of_recorded_answers_add_up_to_the_turn() {
    let Some(folder) = folder() else { return };
    for (api, exchange, turn) in streams(&folder) {
        let (_, deltas) = decode(api, std::str::from_utf8(&exchange.body).unwrap());
        let said = turn.blocks.iter().filter_map(|block| match &block.part {
            BlockContent::Text { text } | BlockContent::Refusal { text } => Some(text.as_str()),
            _ => None,
        });
        // One recording contains several answers, one after the other.
        assert!(words(&deltas).ends_with(&said.collect::<String>()), "{turn:?}");
    }
}

#[test]
fn recorded_responses_without_their_end_keep_the_streamed_items() {
    let Some(folder) = folder() else { return };
    for (api, exchange, turn) in streams(&folder).into_iter().filter(|(api, ..)| *api == RecordedApi::Responses) {
        let ends = ["response.completed", "response.incomplete", "response.output_item.done"];
        let is_end = |event: &Value| ends.iter().any(|end| event["type"] == *end);
        let events: Vec<Value> = payloads(&exchange).into_iter().filter(|event| !is_end(event)).collect();
        let partial = decode(api, &stream(&events)).0.unwrap_err().partial.unwrap();
        assert_eq!(partial.text(), turn.text());
        assert_eq!(calls(&partial), calls(&turn));
    }
}
