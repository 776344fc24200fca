//! Which answer of a script is next.

use rath_core::body::Outcome;
use rath_core::{Failure, Model as _};
use rath_model::scripted::{ScriptInput, Scripted, Turn};
use regex::Regex;
use serde_json::{Value, json};

use crate::support::{Step, enter};

fn model() -> Scripted {
    Scripted::new("scripted")
        .say("Hello.")
        .call("add", json!({"b": 2, "a": 1}))
        .turn(Turn::new().text("Two at once.").call("read", json!({})).call_text("list", "not json").id("mine"))
        .turn(Turn::new().fails_first(2, Failure::transient("overloaded")).text("Sorry."))
}

const ANSWERS: [&str; 6] = [
    "Hello.",
    r#"add({"a":1,"b":2}) [call-1-0]"#,
    "Two at once. read({}) [call-2-0] list(not json) [mine]",
    "failed: overloaded",
    "failed: overloaded",
    "Sorry.",
];

#[test]
fn turns_are_in_order_and_the_end_is_an_error() {
    let mut step = Step::new();
    let model = model();
    for answer in ANSWERS {
        assert_eq!(step.turn(&model), answer);
        // Asking again returns the same answer.
        assert_eq!(format!("{:?}", step.ask(&model)), format!("{:?}", step.ask(&model)));
    }
    step.session.user("And now?").unwrap();
    let failure = step.ask(&model).0.unwrap_err();
    assert!(!failure.retry);
    assert_eq!(
        failure.why,
        r#"the script has 4 turns for agent "agent" and was asked for turn 5; latest message: "And now?""#
    );
    assert_eq!(step.turn(&model.otherwise("That is all.")), "That is all.");
}

#[test]
fn a_new_process_continues_where_the_old_one_was() {
    let mut step = Step::new();
    for answer in ANSWERS {
        step = step.reopened();
        assert_eq!(step.turn(&model()), answer);
    }
}

#[test]
fn each_step_starts_the_script_again() {
    let mut step = Step::new();
    step.turn(&model());
    step.session.leave(Outcome::Done).unwrap();
    enter(&mut step.session, "agent");
    assert_eq!(step.turn(&model()), "Hello.");
}

#[test]
fn rules_come_before_the_sequence() {
    let regex = Regex::new(r"^\d+ \+ \d+$").unwrap();
    let model = Scripted::new("ruled")
        .when("weather", "Sunny.")
        .when_regex(regex, Turn::new().call("add", json!({})))
        .when("result of", "The tool says so.")
        .when("weather", "never")
        .say("first")
        .say("second");
    let mut step = Step::new();
    assert_eq!(step.turn(&model), "first");
    for (asked, answer) in [("How is the weather?", "Sunny."), ("1 + 2", "add({}) [call-2-0]")] {
        step.session.user(asked).unwrap();
        assert_eq!(step.turn(&model), answer);
    }
    assert_eq!(step.turn(&model), "The tool says so.");
    step.session.user("1 + 2 = ?").unwrap();
    // Turns that a rule answered count too.
    assert!(step.turn(&model).starts_with("failed: the script has 2 turns"));
}

#[test]
fn agents_can_share_a_script() {
    let model = Scripted::new("shared")
        .turn(Turn::from("to all"))
        .turn(Turn::from("to the writer").for_agent("writer"))
        .turn(Turn::from("to the reader").for_agent("reader"))
        .say("to all again")
        .when("Begin.", Turn::from("ruled").for_agent("another"))
        .otherwise(Turn::from("writer's end").for_agent("writer"));
    for (agent, turns) in [
        ("writer", ["to all", "to the writer", "to all again", "writer's end"]),
        ("reader", ["to all", "to the reader", "to all again", "failed: the script has 3 turns for agent \"reader\""]),
    ] {
        let mut step = Step::of(agent);
        for turn in turns {
            let said = step.turn(&model);
            assert!(said.starts_with(turn), "{said}");
            step.session.user("go on").unwrap();
        }
    }
}

#[test]
fn code_receives_the_input() {
    let model = Scripted::from_fn(|input: &ScriptInput| match (input.turn, input.attempt) {
        (0, 1) => Failure::transient("not yet").into(),
        (0, _) => Turn::new().call("search", json!({"words": input.latest, "for": input.agent})),
        _ => Turn::from(format!("{} / {}", input.latest, input.prompt)),
    });
    let mut step = Step::new();
    assert_eq!(step.turn(&model), "failed: not yet");
    assert_eq!(step.turn(&model), r#"search({"for":"agent","words":"Begin."}) [call-0-0]"#);
    step = step.reopened();
    assert_eq!(step.turn(&model), "result of call-0-0 / Be brief.");

    let waiting = Scripted::from_async_fn(|input| async move { format!("turn {}", input.turn) }).named("waiting");
    assert_eq!((waiting.name(), Step::new().turn(&waiting)), ("waiting", "turn 0".to_owned()));
}

#[test]
fn a_request_refers_to_the_input_and_does_not_grow() {
    let mut step = Step::new();
    let model = model();
    let first = step.encode(&model);
    let bytes = first.bytes.clone().unwrap();
    assert_eq!(rath_core::Digest::of(&bytes), first.digest);
    let manifest: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(serde_json::to_vec(&manifest).unwrap(), *bytes, "canonical: sorted and without spaces");
    assert_eq!(
        manifest,
        json!({
            "model": "scripted", "encoder": "scripted@1", "config": rath_core::Digest::of(b"config"),
            "rule": "whole@1", "head": step.session.head().id, "attempt": 1,
        })
    );
    assert_eq!(step.encode(&model).digest, first.digest);
    for n in 0..1000 {
        step.session.user(format!("message {n}")).unwrap();
    }
    let later = step.encode(&model);
    assert_ne!(later.digest, first.digest);
    assert_eq!(later.bytes.unwrap().len(), bytes.len());
    assert_ne!(step.encode(&model.named("scripteb")).digest, later.digest);
}
