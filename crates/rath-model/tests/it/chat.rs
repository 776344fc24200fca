//! Decoding Chat Completions, in all dialects.

use rath_core::Delta;
use rath_model::{BlockContent, FailureCause, HttpResponse, StopKind, chat};
use rath_recordings::RecordedApi::Chat;
use serde_json::{Value, json};

use crate::decoders::{calls, decode, failure, stream, turn, words};

fn chunk(delta: Value) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "provider": "P",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn end(reason: &str) -> Value {
    json!({"id": "c1", "model": "gpt", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(call: Value) -> Value {
    chunk(json!({ "tool_calls": [call] }))
}

#[test]
fn tool_calls_are_assembled_in_every_dialect() {
    let f = |name: Value, arguments: Value| json!({"name": name, "arguments": arguments});
    let same = vec![("a", "f", "{}"), ("b", "g", "{\"x\":1}")];
    for (dialect, pieces, expected) in [
        (
            "indexed, with alternating pieces",
            vec![
                json!({"index": 0, "id": "a", "function": f(json!("f"), json!("{"))}),
                json!({"index": 1, "id": "b", "function": f(json!("g"), json!("{\"x\""))}),
                json!({"index": 0, "function": {"arguments": "}"}}),
                json!({"index": 1, "function": {"arguments": ":1}"}}),
            ],
            same.clone(),
        ),
        (
            "all with the same index",
            vec![
                json!({"index": 0, "id": "a", "function": f(json!("f"), json!("{}"))}),
                json!({"index": 0, "id": "b", "function": f(json!("g"), json!("{\"x\":1}"))}),
            ],
            same.clone(),
        ),
        (
            "without an index",
            vec![
                json!({"id": "a", "function": f(json!("f"), json!("{}"))}),
                json!({"id": "b", "function": f(json!("g"), json!("{\"x\":"))}),
                json!({"function": {"arguments": "1}"}}),
            ],
            same.clone(),
        ),
        (
            "indexes with gaps, arguments that are an object",
            vec![
                json!({"index": 1, "id": "a", "function": f(json!("f"), json!({}))}),
                json!({"index": 5, "id": "b", "function": f(json!("g"), json!({"x": 1}))}),
            ],
            same,
        ),
        (
            "id and name with every piece",
            vec![
                json!({"index": 0, "id": "0", "function": f(json!("f"), json!(""))}),
                json!({"index": 0, "id": "0", "function": f(json!("f"), json!("{}"))}),
            ],
            vec![("0", "f", "{}")],
        ),
        (
            "empty ids, no name, no arguments",
            vec![
                json!({"index": 0, "id": "a", "function": f(json!("f"), json!(null))}),
                json!({"index": 0, "id": "", "function": f(json!(null), json!("{"))}),
                json!({"index": 0, "id": null, "function": f(json!(""), json!("}"))}),
            ],
            vec![("a", "f", "{}")],
        ),
        ("no id at all", vec![json!({"index": 0, "function": f(json!("f"), json!(null))})], vec![("", "f", "")]),
    ] {
        let mut events: Vec<Value> = pieces.into_iter().map(call).collect();
        events.push(end("tool_calls"));
        let turn = turn(Chat, &events);
        assert_eq!(calls(&turn), expected, "{dialect}");
        assert_eq!(turn.stop.unwrap().kind, StopKind::Calls, "{dialect}");
    }
}

#[test]
fn reasoning_has_two_field_names() {
    for key in ["reasoning_content", "reasoning"] {
        let events = [
            chunk(json!({"role": "assistant", "content": null, key: "th"})),
            chunk(json!({"content": null, key: "ink"})),
            chunk(json!({"content": "x", key: null})),
            end("stop"),
        ];
        let turn = turn(Chat, &events);
        assert_eq!(turn.blocks[0].part, BlockContent::Reasoning { text: "think".into(), signature: None });
        assert_eq!(turn.blocks[1].part, BlockContent::Text { text: "x".into() });
        let back = serde_json::to_value(chat::message(&turn)).unwrap();
        assert_eq!(back, json!({"role": "assistant", "content": "x", key: "think"}));
    }
}

#[test]
fn unknown_fields_are_sent_back() {
    let detail =
        |field: &str, value: &str| json!([{"type": "reasoning.text", "format": "v1", "index": 0, field: value}]);
    let function = json!({"name": "f", "arguments": ""});
    let events = [
        chunk(json!({"role": "assistant", "content": "", "reasoning_details": detail("text", "a")})),
        chunk(json!({"role": "assistant", "content": "", "reasoning_details": detail("text", "a")})),
        chunk(json!({"role": "assistant", "reasoning_details": detail("signature", "S")})),
        chunk(json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "data": "E"}]})),
        call(json!({"index": 0, "id": "a", "type": "function", "extra": {"s": 1}, "function": function})),
        end("tool_calls"),
    ];
    let turn = turn(Chat, &events);
    let back = serde_json::to_value(chat::message(&turn)).unwrap();
    let details = json!([{"type": "reasoning.text", "format": "v1", "index": 0, "text": "aa", "signature": "S"},
        {"type": "reasoning.encrypted", "index": 0, "data": "E"}]);
    let tool = json!({"id": "a", "type": "function", "extra": {"s": 1}, "function": function});
    let message = json!({"role": "assistant", "content": "", "reasoning_details": details, "tool_calls": [tool]});
    assert_eq!(back, message);
    assert_eq!(turn.rest.answer.text("provider").as_deref(), Some("P"));
}

#[test]
fn usage_may_follow_the_finish_reason() {
    let used = json!({"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}});
    let events = [chunk(json!({"content": "x"})), end("stop"), json!({"id": "c1", "choices": [], "usage": used})];
    let all = stream(&events) + "data: [DONE]\n\n";
    let turn = decode(Chat, &all).0.unwrap();
    assert_eq!((turn.used.input, turn.used.cached, turn.used.output), (5, 4, 6));
    let mut decoder = chat::Decoder::new();
    decoder.feed(stream(&events[..2]).as_bytes(), &mut |_| {});
    assert!(!decoder.done(), "the usage has not arrived yet");
    decoder.feed(b"data: [DONE]\n\n", &mut |_| {});
    assert!(decoder.done());
}

#[test]
fn an_answer_ends_with_a_finish_reason_or_with_done() {
    let started = [chunk(json!({"content": "Hel"}))];
    assert_eq!(decode(Chat, &(stream(&started) + "data: [DONE]\n\n")).0.unwrap().text(), "Hel");
    assert_eq!(turn(Chat, &[started[0].clone(), end("length")]).stop.unwrap().kind, StopKind::Length);
    let cut = failure(Chat, &started);
    assert_eq!((cut.cause, cut.partial.unwrap().text()), (FailureCause::Truncated, "Hel".into()));
    assert_eq!(decode(Chat, "data: [DONE]\n\n").0.unwrap_err().cause, FailureCause::Truncated);
}

#[test]
fn refusals_and_content_filters_set_the_stop_kind() {
    let refused = turn(Chat, &[chunk(json!({"refusal": "I "})), chunk(json!({"refusal": "won't."})), end("stop")]);
    assert_eq!(refused.blocks[0].part, BlockContent::Refusal { text: "I won't.".into() });
    assert_eq!(refused.stop.unwrap().kind, StopKind::Refusal);
    assert_eq!(turn(Chat, &[end("content_filter")]).stop.unwrap().kind, StopKind::Filtered);
}

#[test]
fn an_error_inside_a_stream_keeps_the_partial_turn() {
    let started = chunk(json!({"content": "Hel"}));
    for (error, message, retry) in [
        (json!({"error": {"message": "boom", "type": "server_error", "code": 500}}), "boom", true),
        (json!({"error": {"message": "no", "code": "insufficient_quota"}}), "no", false),
        (json!({"error": "boom"}), "boom", false),
    ] {
        let failure = failure(Chat, &[started.clone(), error]);
        assert_eq!((failure.cause, failure.said.message.as_str()), (FailureCause::Interrupted, message));
        assert_eq!(failure.retry(), retry, "{message}");
        assert_eq!(failure.partial.unwrap().text(), "Hel");
    }
    let broken = decode(Chat, &(stream(&[started]) + "data: {\"id\": \n\ndata: [DONE]\n\n")).0.unwrap_err();
    assert_eq!(broken.cause, FailureCause::Unreadable);
    assert_eq!(broken.partial.unwrap().text(), "Hel");
}

#[test]
fn alternating_arguments_produce_deltas_only_for_the_last_call() {
    let piece = |index: u64, arguments: &str| call(json!({"index": index, "function": {"arguments": arguments}}));
    let begin =
        |index: u64, id: &str| call(json!({"index": index, "id": id, "function": {"name": "f", "arguments": ""}}));
    let events = [begin(0, "a"), begin(1, "b"), piece(0, "{}"), piece(1, "[]"), end("tool_calls")];
    let (turn, deltas) = decode(Chat, &stream(&events));
    assert_eq!(calls(&turn.unwrap()), [("a", "f", "{}"), ("b", "f", "[]")]);
    let call_delta = |id: &str| Delta::Call { id: id.into(), name: "f".into() };
    assert_eq!(deltas, [call_delta("a"), call_delta("b"), Delta::Arguments("[]".into())]);
    assert_eq!(words(&deltas), "");
}

#[test]
fn an_error_body_with_status_200_is_an_error() {
    let response = HttpResponse::new(200, br#"{"error":{"message":"Upstream","code":502}}"#);
    let failure = chat::decode_whole(&response).unwrap_err();
    assert_eq!((failure.cause, failure.status, failure.retry()), (FailureCause::Refused, None, true));
}
