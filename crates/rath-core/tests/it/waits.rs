//! What a run waits for, pending until it came.

use pollster::block_on;
use rath_core::body::{Awaited, Received, WaitsFor};
use rath_core::{Actor, Memory, Session, View};

fn awaited(id: &str) -> Awaited {
    Awaited { id: id.into(), what: WaitsFor::Event, name: Some("build".into()), until: None, why: None }
}

fn received(id: &str) -> Received {
    Received { id: id.into(), value: Some("true".into()), post: None }
}

fn open(session: &Session) -> Vec<String> {
    session.pending().waits.into_iter().map(|wait| wait.id).collect()
}

#[test]
fn a_wait_is_pending_until_it_is_received() {
    let mut session = Session::create(&Memory::new(), Actor::person("ada"));
    session.append(awaited("one")).unwrap();
    session.append(awaited("two")).unwrap();
    assert_eq!(open(&session), ["one", "two"]);
    assert!(!session.pending().is_empty());
    session.append(received("one")).unwrap();
    // What comes a second time, or was not waited for, changes nothing.
    session.append(received("one")).unwrap();
    session.append(received("three")).unwrap();
    assert_eq!(open(&session), ["two"]);
    block_on(session.publish()).unwrap();
    let view = block_on(View::of(session.store(), session.id(), None)).unwrap();
    assert_eq!(view.pending(), session.pending());
    session.cancel("enough").unwrap();
    assert_eq!(open(&session), [""; 0]);
}

#[test]
fn a_fork_sees_its_parents_waits_and_does_not_have_them() {
    let mut session = Session::create(&Memory::new(), Actor::person("ada"));
    session.append(awaited("one")).unwrap();
    let mut branch = session.fork("meanwhile");
    assert_eq!((open(&branch), branch.state().waits.len()), (vec![], 1));
    branch.append(received("one")).unwrap();
    branch.cancel("enough").unwrap();
    assert_eq!(branch.state().waits.len(), 1);
    assert_eq!(open(&session), ["one"]);
}

#[test]
fn free_bodies_of_these_names_change_nothing() {
    let mut session = Session::create(&Memory::new(), Actor::person("ada"));
    // `append_json` holds what it knows against its type.
    assert!(session.append_json("awaited", r#"{"whom":"bob"}"#).is_err());
    session.append_json("awaited", r#"{"id":"one","for":"the weather"}"#).unwrap();
    assert_eq!(open(&session), ["one"]);
    assert_eq!(session.pending().waits[0].what.to_string(), "unknown: the weather");
    let json = serde_json::to_value(session.pending()).unwrap();
    assert_eq!(json["waits"][0]["for"], "the weather");
}
