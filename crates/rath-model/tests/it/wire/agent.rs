//! Runs of an agent with a client: what is sent, and what is stored.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rath::body::{ModelFailed, ModelRequested};
use rath::prelude::*;
use rath_core::{Digest, Kind, Record, blob_references};
use rath_model::{Anthropic, Chat, Fallback};
use serde_json::{Value, json};

use super::KEY;
use super::server::{Server, events, response};

/// Repeats the text.
#[tool(effect = "pure")]
pub(crate) async fn echo(text: String) -> String {
    text
}

fn thoughtful() -> String {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "claude", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}}),
        json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "redacted_thinking", "data": "sealed"}}),
        json!({"type": "content_block_start", "index": 2, "content_block":
            {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {}, "caller": {"type": "direct"}}}),
        json!({"type": "content_block_delta", "index": 2, "delta":
            {"type": "input_json_delta", "partial_json": "{\"text\": \"hello\"}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    events.map(|event| format!("data: {event}\n\n")).concat()
}

async fn records_of(session: &Session) -> Vec<Record> {
    let mut records = Vec::new();
    for seq in 0..=session.head().seq {
        records.push(session.record_at(seq).await.unwrap());
    }
    records
}

/// The bodies of all records of this kind in a session.
pub(crate) async fn bodies<T: rath_core::body::Body>(session: &Session, kind: Kind) -> Vec<T> {
    records_of(session)
        .await
        .iter()
        .filter(|record| *record.kind() == kind)
        .map(|record| record.body().unwrap())
        .collect()
}

/// Where a text occurs in a session: kinds of records, and media types of blobs.
async fn found(session: &Session, words: &str) -> BTreeSet<String> {
    let has = |bytes: &[u8]| memchr::memmem::find(bytes, words.as_bytes()).is_some();
    let mut found = BTreeSet::new();
    for record in records_of(session).await {
        let body = record.body_bytes().unwrap();
        if has(body) {
            found.insert(record.kind().to_string());
        }
        for blob in blob_references(body) {
            if has(&session.store().blob_get(blob.digest).await.unwrap().unwrap()) {
                found.insert(blob.media_type);
            }
        }
    }
    found
}

fn all_files(dir: &Path, each: &mut dyn FnMut(&Path, Vec<u8>)) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all_files(&path, each),
            false => each(&path, std::fs::read(&path).unwrap()),
        }
    }
}

fn session(store: &std::sync::Arc<dyn rath_core::Store>) -> Session {
    let mut session = store.create(Actor::person("ada"));
    session.user("Say hello.").unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasoning_goes_back_verbatim_and_the_key_stays_out_of_the_store() {
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let server = Server::new(move |number| match number {
        0 => response(529, &[], busy),
        1 => events(&thoughtful()),
        2 => response(401, &[], &format!("who is {KEY}?")),
        _ => events(&super::streams()[0]),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let model = Anthropic::new("claude").key(KEY).base_url(server.url());
    let agent = Agent::new("parrot").prompt("Repeat.").model(model).tools(echo).retries(1, Duration::ZERO);
    let error = agent.forward(session(&store)).await.unwrap_err();
    assert!(error.to_string().contains("who is [key]?"), "{error}");
    let session = error.into_sessions().remove(0);
    let requests: Vec<ModelRequested> = bodies(&session, Kind::ModelRequested).await;
    let digests: Vec<Digest> = server.bodies().iter().map(|body| Digest::of(body.as_bytes())).collect();
    assert_eq!(requests.iter().map(|request| request.request).collect::<Vec<_>>(), digests);
    assert_eq!((&*requests[0].model, &*requests[0].encoder), ("claude", "anthropic-messages@2"));
    let last: Value = serde_json::from_str(&server.bodies()[2]).unwrap();
    let turn = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {"text": "hello"}, "caller": {"type": "direct"}},
    ]);
    assert_eq!(last["messages"][1], json!({"role": "assistant", "content": turn}));
    assert_eq!(last["messages"][2]["content"][0]["content"], "hello");
    let occurrences = |words: &'static str| {
        let found = found(&session, words);
        async { found.await.into_iter().collect::<Vec<_>>().join(" ") }
    };
    assert_eq!(occurrences("sig==").await, "assistant text/event-stream", "the search works");
    assert_eq!(occurrences("who is [key]?").await, "application/octet-stream failed model_failed");
    assert_eq!(occurrences("Overloaded").await, "application/json model_failed", "an attempt that failed is kept");
    assert_eq!(occurrences(KEY).await, "");
    drop((session, store));
    let mut count = 0;
    all_files(dir.path(), &mut |path, bytes| {
        count += 1;
        assert!(memchr::memmem::find(&bytes, KEY.as_bytes()).is_none(), "the key is in {}", path.display());
    });
    assert!(count > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_model_of_a_chain_answers() {
    let down = Server::new(|_| response(401, &[], "no")).await;
    let up = Server::new(|_| events(&super::streams()[1])).await;
    let chain =
        Fallback::new(Anthropic::new("first").base_url(down.url())).or(Chat::openai_compatible("second", up.url()));
    let agent = Agent::new("parrot").model(chain).tools(echo).retries(1, Duration::from_secs(3600));
    let session = agent.forward(session(&rath_core::InMemory::new())).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Hello, world"));
    let records = records_of(&session).await;
    let asked: Vec<(String, String)> = records
        .iter()
        .filter(|record| *record.kind() == Kind::ModelRequested)
        .map(|record| record.body::<ModelRequested>().unwrap())
        .map(|request| (request.model, request.encoder))
        .collect();
    let wanted = [("first", "anthropic-messages@2"), ("second", "openai-chat/common@2")];
    assert_eq!(asked, wanted.map(|(model, encoder)| (model.to_owned(), encoder.to_owned())));
    let failed = records.iter().find(|record| *record.kind() == Kind::ModelFailed).unwrap();
    assert!(failed.body::<ModelFailed>().unwrap().retried);
}
