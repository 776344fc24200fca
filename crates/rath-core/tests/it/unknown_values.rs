//! Enum values of later versions in bodies that this version knows are kept and shown, and never relied on.

use pollster::block_on;
use rath_core::body::{
    Answered, Asked, Assistant, CallOutcome, CheckVerdict, Choice, Effect, Exit, Grant, MemoryScope, MemoryStatus,
    MergeStrategy, Outcome, QuestionKind, ReplayMode, RestoreReason, Role, Scope, Verdict, WaitKind,
};
use rath_core::files::{ConflictKind, Driver};
use rath_core::store::{Post, PostContent};
use rath_core::{Actor, InMemory, Session, Time, View};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Unknown and known names are parsed, shown and written back unchanged.
fn names<E>(known: &[E], unknown: impl Fn(&E) -> bool)
where
    E: Serialize + DeserializeOwned + ToString + PartialEq + std::fmt::Debug,
{
    for value in known {
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<E>(&json).unwrap(), value);
        assert!(!unknown(value));
    }
    for name in ["of_a_later_version", "☁ with \"quotes\"", &"x".repeat(47)] {
        let json = serde_json::to_string(name).unwrap();
        let value: E = serde_json::from_str(&json).unwrap();
        assert!(unknown(&value), "{value:?}");
        assert_eq!(value.to_string(), format!("unknown: {name}"));
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
    }
    for no_name in [json!(""), json!("x".repeat(48)), json!(1), json!({ "a": "b" }), Value::Null] {
        assert!(serde_json::from_value::<E>(no_name).is_err());
    }
}

#[test]
fn names_of_later_versions_are_carried() {
    macro_rules! all {
        ($($enum:ident)*) => { $(names($enum::KNOWN, |value| matches!(value, $enum::Unknown(_)));)* };
    }
    all!(Role Outcome Effect CallOutcome QuestionKind RestoreReason Choice Driver);
    all!(CheckVerdict MemoryScope MemoryStatus ReplayMode WaitKind);
    assert_eq!(ConflictKind::KNOWN.len(), 7);
    let kind: ConflictKind = serde_json::from_str("\"submodule\"").unwrap();
    assert_eq!(
        (kind.to_string(), serde_json::to_string(&kind).unwrap()),
        ("unknown: submodule".into(), "\"submodule\"".into())
    );
}

/// A value with fields is kept if its name is unknown; if the name is known and the fields are invalid, it is an error.
fn values<E: Serialize + DeserializeOwned>(unknown: Value, known: &[Value], malformed: &[Value]) -> E {
    for value in known {
        let read: E = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(&serde_json::to_value(read).unwrap(), value);
    }
    for value in malformed {
        assert!(serde_json::from_value::<E>(value.clone()).is_err(), "{value}");
    }
    let read: E = serde_json::from_value(unknown.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), unknown);
    read
}

#[test]
fn values_with_fields_of_later_versions_are_carried() {
    let verdict: Verdict = values(
        json!({ "later": [1] }),
        &[json!("yes"), json!("no"), json!({ "text": "so" })],
        &[json!({ "text": 1 }), json!(3)],
    );
    assert!(matches!(verdict, Verdict::Unknown(answer) if answer.name() == "later"));
    let verdict: Verdict = values(json!("perhaps"), &[], &[]);
    assert!(matches!(verdict, Verdict::Unknown(answer) if answer.to_string() == "unknown: perhaps"));
    let exit: Exit = values(json!({ "dumped": 11 }), &[json!({ "code": 0 })], &[json!({ "code": "0" }), json!({})]);
    assert!(matches!(exit, Exit::Unknown(_)));
    let grant: Grant = values(
        json!({ "tool": "t", "effect": "pure", "scope": "host", "host": "example.org" }),
        &[json!({ "tool": "t", "effect": "pure", "scope": "below", "directory": "src" })],
        &[json!({ "tool": "t", "effect": "pure", "scope": "below" }), json!({ "tool": "t", "effect": "pure" })],
    );
    assert!(matches!(grant.scope, Scope::Unknown(_)));
    assert_eq!(grant.to_string(), "t (unknown: host)");
    let manner: MergeStrategy =
        values(json!({ "type": "vote", "of": 3 }), &[json!({ "type": "append" })], &[json!({ "type": "keep" })]);
    assert!(matches!(manner, MergeStrategy::Unknown(_)));
    let turn: Assistant = values(
        json!({ "blocks": [{ "type": "sound", "seconds": 2.5 }, { "type": "text", "text": "Hear." }] }),
        &[],
        &[json!({ "blocks": [{ "type": "text", "text": 1 }] })],
    );
    assert_eq!(turn.blocks.len(), 2);
}

#[test]
fn an_unknown_effect_is_the_least_safe() {
    let later: Effect = serde_json::from_str("\"reversible_by_hand\"").unwrap();
    assert!(later > Effect::Irreversible && later.is_irreversible());
    assert!(Effect::Irreversible.is_irreversible() && !Effect::Workspace.is_irreversible());
}

/// A session as a later version may write it.
fn session_of_a_later_version() -> Session {
    let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    session.append_json("step_entered", r#"{"name":"check","role":"validator"}"#).unwrap();
    let call =
        json!({ "blocks": [{ "type": "tool_use", "id": "c1", "name": "t", "arguments": "{}" }, { "type": "sound" }] });
    session.append_json("assistant", &call.to_string()).unwrap();
    session.append_json("tool_started", r#"{"call":"c1","tool":"t","effect":"reversible_by_hand"}"#).unwrap();
    let asked = Asked::new(QuestionKind::Question, Some("c1".into()), "so?");
    let shown_digest = asked.shown_digest;
    let question = session.append(asked).unwrap();
    let verdict = serde_json::from_str("\"perhaps\"").unwrap();
    session.append(Answered { asked: question, shown_digest, verdict, why: None }).unwrap();
    session
}

#[test]
fn a_session_with_unknown_values_folds_publishes_and_reopens() {
    let mut session = session_of_a_later_version();
    let call = &session.state().calls[0];
    assert!(call.started.as_ref().unwrap().effect.is_irreversible());
    block_on(session.publish()).unwrap();
    let view = block_on(View::of(session.store(), session.id(), None)).unwrap();
    assert_eq!(view.state(), session.state());
    let texts: Vec<String> = block_on(view.context()).unwrap().iter().map(|message| message.body.to_string()).collect();
    assert_eq!(texts, ["→ t({}) [c1]\n[unknown: sound]"]);
    let lines = session.to_string();
    assert!(lines.contains("unknown: perhaps"), "{lines}");
    let (store, id) = (session.store().clone(), session.id());
    drop(session);
    let mut session = block_on(store.open(id, Actor::person("ada"))).unwrap();
    session.tool_result("c1", "done").unwrap();
    let step = session.state().steps[0].record;
    session.append_json("step_left", &json!({ "step": step, "outcome": "skipped" }).to_string()).unwrap();
    assert!(session.pending().is_empty());
    block_on(session.publish()).unwrap();
}

#[test]
fn a_post_of_an_unknown_kind_stays_in_the_inbox() {
    let store = InMemory::new();
    let mut session = Session::create(&store, Actor::person("ada"));
    block_on(session.publish()).unwrap();
    let what: PostContent = serde_json::from_value(json!({ "post": "reprioritise", "to": 3 })).unwrap();
    let later = Post { id: "p1".into(), session: session.id(), actor: Actor::person("bob"), time: Time(1), what };
    block_on(store.post(later.clone())).unwrap();
    block_on(store.post(Post::new(session.id(), Actor::person("bob"), PostContent::Message { text: "hi".into() })))
        .unwrap();
    assert_eq!(block_on(session.consume_posts()).unwrap(), None);
    block_on(session.publish()).unwrap();
    // The message was consumed; the unknown post stays.
    assert_eq!(block_on(store.posts(session.id())).unwrap(), std::slice::from_ref(&later));
    assert_eq!(later.kind().as_str(), "reprioritise");
    assert_eq!(session.consume_post(&later).unwrap_err().code(), "bad-body");
    assert_eq!(block_on(session.context()).unwrap().len(), 1);
}
