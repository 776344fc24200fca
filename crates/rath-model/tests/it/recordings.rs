//! Recorded traffic with real providers. Nobody here wrote it, and it is not part of the project.

use std::path::{Path, PathBuf};

use rath_model::{Part, Turn};
use rath_recordings::{Api, Exchange, check, files, payloads, read};
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

/// All recorded streams that are read as a turn.
fn streams(folder: &Path) -> Vec<(Api, Exchange, Turn)> {
    let files = files(&folder.join("recordings")).unwrap();
    let exchanges = files.iter().flat_map(|file| read(&std::fs::read(file).unwrap()).unwrap());
    let turns = exchanges.filter(Exchange::is_stream).filter_map(|exchange| {
        let api = Api::of(&exchange).ok()?;
        let turn = decode(api, std::str::from_utf8(&exchange.body).unwrap()).0.ok()?;
        Some((api, exchange, turn))
    });
    turns.collect()
}

#[test]
fn recorded_answers_are_read_as_the_vendors_clients_read_them() {
    let Some(folder) = folder() else { return };
    let report = check(&folder).unwrap();
    assert!(report.differ() == 0 && report.equal() > 0, "{report}");
}

#[test]
fn what_is_heard_of_recorded_answers_is_the_turn() {
    let Some(folder) = folder() else { return };
    for (api, exchange, turn) in streams(&folder) {
        let (_, heard) = decode(api, std::str::from_utf8(&exchange.body).unwrap());
        let said = turn.blocks.iter().filter_map(|block| match &block.part {
            Part::Text { text } | Part::Refusal { text } => Some(text.as_str()),
            _ => None,
        });
        // One of the recordings has several answers, one after the other.
        assert!(words(&heard).ends_with(&said.collect::<String>()), "{turn:?}");
    }
}

#[test]
fn recorded_responses_that_lose_their_end_are_what_came() {
    let Some(folder) = folder() else { return };
    for (api, exchange, turn) in streams(&folder).into_iter().filter(|(api, ..)| *api == Api::Responses) {
        let ends = ["response.completed", "response.incomplete", "response.output_item.done"];
        let is_end = |event: &Value| ends.iter().any(|end| event["type"] == *end);
        let events: Vec<Value> = payloads(&exchange).into_iter().filter(|event| !is_end(event)).collect();
        let partial = decode(api, &stream(&events)).0.unwrap_err().partial.unwrap();
        assert_eq!(partial.text(), turn.text());
        assert_eq!(calls(&partial), calls(&turn));
    }
}
