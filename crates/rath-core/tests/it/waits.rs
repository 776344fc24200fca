//! Waits, which are pending until something is received.

use pollster::block_on;
use rath_core::body::{Awaited, Received, WaitKind};
use rath_core::{Actor, InMemory, Session, View};

fn awaited(id: &str) -> Awaited {
    Awaited { id: id.into(), what: WaitKind::Event, name: Some("build".into()), until: None, why: None }
}

fn received(id: &str) -> Received {
    Received { id: id.into(), value: Some("true".into()), post: None }
}

fn open(session: &Session) -> Vec<String> {
    session.pending().waits.into_iter().map(|wait| wait.id).collect()
}

#[test]
fn a_wait_is_pending_until_it_is_received() {
    let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    session.append(awaited("one")).unwrap();
    session.append(awaited("two")).unwrap();
    assert_eq!(open(&session), ["one", "two"]);
    assert!(!session.pending().is_empty());
    session.append(received("one")).unwrap();
    // Receiving something again, or something that is not awaited, changes nothing.
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
fn a_fork_inherits_its_parents_waits() {
    let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    session.append(awaited("one")).unwrap();
    let mut branch = session.fork("meanwhile");
    assert_eq!((open(&branch), branch.state().waits.len()), (vec![], 1));
    branch.append(received("one")).unwrap();
    branch.cancel("enough").unwrap();
    assert_eq!(branch.state().waits.len(), 1);
    assert_eq!(open(&session), ["one"]);
}

#[test]
fn untyped_bodies_of_these_kinds_change_nothing() {
    let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    // `append_json` checks bodies of known kinds.
    assert!(session.append_json("awaited", r#"{"whom":"bob"}"#).is_err());
    session.append_json("awaited", r#"{"id":"one","for":"the weather"}"#).unwrap();
    assert_eq!(open(&session), ["one"]);
    assert_eq!(session.pending().waits[0].what.to_string(), "unknown: the weather");
    let json = serde_json::to_value(session.pending()).unwrap();
    assert_eq!(json["waits"][0]["for"], "the weather");
}
