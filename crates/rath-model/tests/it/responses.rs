//! Decoding OpenAI Responses.

use rath_model::{BlockContent, FailureCause, HttpResponse, StopKind, responses};
use rath_recordings::RecordedApi::Responses;
use serde_json::{Value, json};

use crate::decoders::{calls, failure, turn};

fn response(status: &str, output: Value) -> Value {
    json!({"id": "resp_1", "object": "response", "status": status, "model": "gpt", "output": output, "error": null,
        "incomplete_details": null, "new": {"z": 1, "a": 2}, "usage": {"input_tokens": 5, "output_tokens": 6}})
}

fn created() -> Value {
    json!({"type": "response.created", "response": response("in_progress", json!([]))})
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, more: &str) -> Value {
    json!({"type": kind, "output_index": index, "content_index": 0, "item_id": "changes", "delta": more})
}

fn items() -> Value {
    json!([
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "E"},
        {"type": "reasoning", "id": "r2", "summary": [], "encrypted_content": "E2"},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q"}},
        {"type": "message", "id": "m", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hi", "annotations": [{"url": "u"}]},
            {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "f", "arguments": ""},
        {"type": "custom_tool_call", "id": "g", "call_id": "c2", "name": "g", "input": "plain words"},
        {"type": "brand_new", "id": "b", "zz": [1]},
        {"type": "message", "id": "m2", "role": "assistant", "content": []}])
}

#[test]
fn items_are_sent_back_verbatim() {
    let body = response("completed", items()).to_string();
    let turn = responses::decode_whole(&HttpResponse::new(200, body.as_bytes())).unwrap();
    assert_eq!(serde_json::to_value(responses::items(&turn)).unwrap(), items());
    assert_eq!(responses::write(&turn).to_json().len(), body.len());
    assert_eq!(calls(&turn), [("c1", "f", ""), ("c2", "g", "plain words")]);
    assert_eq!(turn.blocks[0].part, BlockContent::Reasoning { text: "s".into(), signature: Some("E".into()) });
    assert_eq!(turn.blocks[1].part, BlockContent::Sealed { data: "E2".into() });
    assert_eq!(turn.stop.unwrap().kind, StopKind::Calls);
}

#[test]
fn an_answer_without_output_has_the_streamed_items() {
    let list = items();
    let done = list
        .as_array()
        .unwrap()
        .iter()
        .zip(0..)
        .map(|(item, index)| json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    let end = json!({"type": "response.completed", "response": response("completed", json!([]))});
    let events: Vec<Value> = [created()].into_iter().chain(done).chain([end]).collect();
    assert_eq!(serde_json::to_value(responses::items(&turn(Responses, &events))).unwrap(), list);
}

#[test]
fn a_truncated_stream_keeps_the_partial_turn() {
    let events = [
        created(),
        added(0, json!({"type": "reasoning", "summary": []})),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm"}),
        added(1, json!({"type": "message", "id": "m", "role": "assistant", "content": []})),
        delta("response.output_text.delta", 1, "Hel"),
        delta("response.output_text.delta", 1, "lo"),
        added(2, json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""})),
        delta("response.function_call_arguments.delta", 2, "{\"a\""),
    ];
    let failure = failure(Responses, &events);
    assert_eq!(failure.cause, FailureCause::Truncated);
    let partial = failure.partial.unwrap();
    assert_eq!(partial.blocks[0].part, BlockContent::Reasoning { text: "hm".into(), signature: None });
    assert_eq!(partial.text(), "Hello");
    assert_eq!(calls(&partial), [("c", "f", "{\"a\"")]);
    assert_eq!(partial.stop, None);
}

#[test]
fn incomplete_failed_and_filtered_responses() {
    let end = |kind: &str, mut answer: Value, field: &str, value: Value| {
        answer[field] = value;
        [created(), json!({"type": kind, "response": answer})]
    };
    let reason = json!({"reason": "max_output_tokens"});
    let cut = end("response.incomplete", response("incomplete", json!([])), "incomplete_details", reason);
    assert_eq!(turn(Responses, &cut).stop.unwrap().kind, StopKind::Length);
    let reason = json!({"reason": "content_filter"});
    let filtered = end("response.incomplete", response("incomplete", json!([])), "incomplete_details", reason);
    assert_eq!(turn(Responses, &filtered).stop.unwrap().kind, StopKind::Filtered);
    let error = json!({"code": "server_error", "message": "boom"});
    let failed = end("response.failed", response("failed", json!([])), "error", error);
    let failed = failure(Responses, &failed);
    assert_eq!((failed.cause, failed.said.message.as_str(), failed.retry()), (FailureCause::Interrupted, "boom", true));
    for error in [
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null}),
        json!({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}}),
    ] {
        let broken = failure(Responses, &[created(), error]);
        assert_eq!((broken.said.message.as_str(), broken.retry()), ("slow", true));
    }
}
