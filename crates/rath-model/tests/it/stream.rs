//! Streaming of scripted answers, and scripted failures.

use std::time::Duration;

use rath_core::{Delta, Failure, Usage};
use rath_model::scripted::{Scripted, Turn};
use serde_json::json;

use crate::support::Step;

fn one(turn: Turn) -> Scripted {
    Scripted::new("scripted").turn(turn)
}

fn text(piece: &str) -> Delta {
    Delta::Text(piece.into())
}

#[test]
fn an_answer_is_streamed_in_pieces() {
    let turn = Turn::new().reasoning("hmm").text("Grüße!").call("add", json!({"a": 1}));
    let (answer, deltas) = Step::new().ask(&one(turn.clone()));
    let call = || Delta::Call { id: "call-0-0".into(), name: "add".into() };
    let whole = [Delta::Reasoning("hmm".into()), text("Grüße!"), call(), Delta::Arguments(r#"{"a":1}"#.into())];
    assert_eq!(deltas, whole);
    let answer = answer.unwrap();
    assert_eq!((answer.stop.as_deref(), answer.model.as_deref()), (Some("tool_use"), Some("scripted")));
    assert_eq!(answer.blocks.len(), 3);

    let (_, deltas) = Step::new().ask(&one(turn.chunks(3, Duration::ZERO)));
    let words: Vec<_> = deltas.iter().filter(|delta| matches!(delta, Delta::Text(_))).cloned().collect();
    assert_eq!(words, [text("Gr"), text("üß"), text("e!")]);
    let arguments: Vec<_> = deltas[7..].to_vec();
    assert_eq!(arguments, [r#"{"a"#, r#"":1"#, "}"].map(|piece| Delta::Arguments(piece.into())));
}

#[test]
fn usage_and_stop_reason_are_computed_or_given() {
    let turn = Turn::new().reasoning("let me see").text("It is three.");
    let answer = Step::new().ask(&one(turn.clone())).0.unwrap();
    assert_eq!(answer.stop.as_deref(), Some("end_turn"));
    assert_eq!(answer.usage, Usage { requests: 1, output_tokens: 6, reasoning_tokens: 3, ..Usage::default() });
    let usage = Usage { requests: 1, input_tokens: 10, ..Usage::default() };
    let answer = Step::new().ask(&one(turn.usage(usage).stop("max_tokens"))).0.unwrap();
    assert_eq!((answer.usage, answer.stop.as_deref()), (usage, Some("max_tokens")));
}

#[test]
fn failures_happen_in_the_given_order() {
    let turn = Turn::new()
        .fails_first(1, Failure { status: Some(529), ..Failure::transient("overloaded") })
        .breaks_off_after(7)
        .breaks_off_after(0)
        .text("Hello, world.")
        .call("add", json!({}));
    let model = one(turn);
    let mut step = Step::new();
    assert_eq!(step.ask(&model).0.unwrap_err().status, Some(529));
    assert_eq!(step.turn(&model), "failed: overloaded");
    let (answer, deltas) = step.ask(&model);
    let failure = answer.unwrap_err();
    assert!(failure.retry);
    assert_eq!(failure.why, "the answer broke off after 7 characters");
    assert_eq!(failure.partial.as_deref(), Some("Hello, "));
    assert_eq!(deltas, [text("Hello, ")]);
    step.turn(&model);
    assert_eq!(step.ask(&model).1, []);
    assert_eq!(step.turn(&model), "failed: the answer broke off after 0 characters");
    assert_eq!(step.turn(&model), "Hello, world. add({}) [call-0-0]");
}

#[test]
fn an_answer_can_break_off_within_a_call() {
    let turn = Turn::new().text("ab").call("add", json!({"a": 1})).breaks_off_after(4);
    let (answer, deltas) = Step::new().ask(&one(turn));
    assert_eq!(answer.unwrap_err().partial.as_deref(), Some("ab"));
    assert_eq!(deltas.last(), Some(&Delta::Arguments("{\"".into())));
}

#[test]
fn delays_are_observed() {
    let turn = Turn::from("abcd").delay(Duration::from_secs(10)).chunks(4, Duration::from_secs(2));
    let model = one(turn);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let step = Step::new();
    let request = step.encode(&model);
    let took = runtime.block_on(async {
        let started = tokio::time::Instant::now();
        step.send(&model, &request).await.unwrap();
        started.elapsed()
    });
    assert_eq!(took, Duration::from_secs(10 + 3 * 2));
}
