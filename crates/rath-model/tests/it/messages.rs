//! Decoding Anthropic Messages.

use rath_core::Delta;
use rath_model::{BlockContent, FailureCause, HttpResponse, StopKind, anthropic};
use rath_recordings::RecordedApi::Messages;
use serde_json::{Value, json};

use crate::decoders::{calls, decode, failure, stream, turn, words};

fn start() -> Value {
    let used = json!({"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 1});
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude", "content": [], "stop_reason": null, "usage": used}})
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn grow(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn input(index: u64, json: &str) -> Value {
    grow(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}});
    [delta, json!({"type": "message_stop"})]
}

fn with(events: Vec<Value>, reason: &str) -> Vec<Value> {
    [vec![start()], events, end(reason).to_vec()].concat()
}

#[test]
fn arguments_are_kept_verbatim() {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let events = vec![
        begin(0, tool("none")),
        input(0, ""),
        begin(1, tool("spaced")),
        input(1, "{\"a\" "),
        input(1, ": 1.50}"),
        begin(7, tool("broken")),
        input(7, "{\"a\": \"x"),
    ];
    let turn = turn(Messages, &with(events, "tool_use"));
    let expected = [("none", "f", ""), ("spaced", "f", "{\"a\" : 1.50}"), ("broken", "f", "{\"a\": \"x")];
    assert_eq!(calls(&turn), expected);
    assert_eq!(turn.stop.unwrap().kind, StopKind::Calls);
}

#[test]
fn reasoning_is_sent_back_verbatim() {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": "", "new": {"z": 1, "a": 2}});
    let sealed = json!({"type": "redacted_thinking", "data": "ZZ=="});
    let events = vec![
        begin(0, thinking),
        grow(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        grow(0, json!({"type": "signature_delta", "signature": "sig=="})),
        begin(1, sealed.clone()),
    ];
    let turn = turn(Messages, &with(events, "end_turn"));
    assert_eq!(turn.blocks[0].part, BlockContent::Reasoning { text: "hm".into(), signature: Some("sig==".into()) });
    assert_eq!(turn.blocks[1].part, BlockContent::Sealed { data: "ZZ==".into() });
    let back = serde_json::to_value(anthropic::content(&turn)).unwrap();
    let first = json!({"type": "thinking", "thinking": "hm", "signature": "sig==", "new": {"z": 1, "a": 2}});
    assert_eq!(back, json!([first, sealed]));
}

#[test]
fn unknown_blocks_and_deltas_are_kept() {
    let events = vec![
        begin(0, json!({"type": "compaction", "content": null})),
        grow(0, json!({"type": "compaction_delta", "content": "so "})),
        grow(0, json!({"type": "compaction_delta", "content": "far"})),
        begin(1, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        input(1, "{\"query\":\"q\"}"),
    ];
    let turn = turn(Messages, &with(events, "pause_turn"));
    let back = serde_json::to_value(anthropic::content(&turn)).unwrap();
    let call = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}});
    assert_eq!(back, json!([{"type": "compaction", "content": "so far"}, call]));
    assert_eq!(turn.stop.unwrap().kind, StopKind::Paused);
}

#[test]
fn the_last_usage_counts() {
    let turn = turn(Messages, &with(vec![], "end_turn"));
    assert_eq!((turn.used.input, turn.used.cached, turn.used.output), (43, 40, 9));
}

#[test]
fn stop_reasons_are_interpreted() {
    for (word, kind) in [
        ("end_turn", StopKind::Done),
        ("max_tokens", StopKind::Length),
        ("model_context_window_exceeded", StopKind::Length),
        ("stop_sequence", StopKind::Sequence),
        ("refusal", StopKind::Refusal),
        ("something_new", StopKind::Other),
    ] {
        let stop = turn(Messages, &with(vec![], word)).stop.unwrap();
        assert_eq!((stop.word.as_str(), stop.kind), (word, kind));
    }
}

#[test]
fn an_error_in_the_stream_keeps_the_partial_turn() {
    let text = [begin(0, json!({"type": "text", "text": ""})), grow(0, json!({"type": "text_delta", "text": "Hel"}))];
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let events = [&[start()], &text[..], &[error]].concat();
    let failure = failure(Messages, &events);
    assert_eq!(failure.cause, FailureCause::Interrupted);
    assert_eq!(failure.said.kind.as_deref(), Some("overloaded_error"));
    assert!(failure.retry());
    assert_eq!(failure.partial.unwrap().text(), "Hel");
}

#[test]
fn a_stream_truncated_at_any_byte_keeps_the_partial_turn() {
    let text = [begin(0, json!({"type": "text", "text": ""})), grow(0, json!({"type": "text_delta", "text": "Grüße"}))];
    let all = stream(&with(text.to_vec(), "end_turn"));
    let whole = all.trim_end().len();
    for at in 0..all.len() {
        let (turn, deltas) = Messages.decode(std::iter::once(&all.as_bytes()[..at]));
        match turn {
            Ok(turn) => assert!(at >= whole && turn.text() == "Grüße", "{at}"),
            Err(failure) => {
                assert_eq!(failure.cause, FailureCause::Truncated, "{at}");
                assert!(at < whole && failure.retry(), "{at}");
                let partial = failure.partial.map(|turn| turn.text()).unwrap_or_default();
                assert!(partial.starts_with(&words(&deltas)), "{at}");
            }
        }
    }
}

#[test]
fn the_deltas_add_up_to_the_turn() {
    let events = vec![
        begin(0, json!({"type": "thinking", "thinking": ""})),
        grow(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        begin(1, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})),
        input(1, "{}"),
    ];
    let (_, deltas) = decode(Messages, &stream(&with(events, "tool_use")));
    let call = Delta::Call { id: "t".into(), name: "f".into() };
    assert_eq!(deltas, [Delta::Reasoning("hm".into()), call, Delta::Arguments("{}".into())]);
}

#[test]
fn a_whole_answer_is_written_back_unchanged() {
    let body = r#"{"id":"m","type":"message","role":"assistant","model":"c","content":[
        {"type":"text","text":"x","citations":[{"n":1.50}]},
        {"type":"tool_use","id":"t","name":"n","input":{"b":1e2,"a":[]}}],"stop_reason":"tool_use","new":null,
        "usage":{"input_tokens":1,"output_tokens":2}}"#;
    let turn = anthropic::decode_whole(&HttpResponse::new(200, body.as_bytes())).unwrap();
    assert_eq!(calls(&turn), [("t", "n", r#"{"b":1e2,"a":[]}"#)]);
    let without_spaces: String = body.split_whitespace().collect();
    assert_eq!(anthropic::write(&turn).to_json().split_whitespace().collect::<String>(), without_spaces);
}
