//! Verifying queued posts.

use pollster::block_on;
use rath_core::store::{Post, PostContent};
use rath_core::verify::FindingKind;
use rath_core::{Actor, Session, Time};
use rath_store::Embedded;
use rusqlite::Connection;

use crate::support::{fresh, run_with_inbox, verify};

#[test]
fn a_damaged_post_is_reported() {
    for (change, what, of_session) in [
        ("UPDATE posts SET body = substr(body, 1, 9) WHERE taken = 0", FindingKind::Unreadable, true),
        ("UPDATE posts SET body = x'' WHERE taken = 0", FindingKind::Unreadable, true),
        ("UPDATE posts SET body = 'text' WHERE taken = 0", FindingKind::Unreadable, true),
        ("UPDATE posts SET id = 'another' WHERE taken = 0", FindingKind::Unreadable, true),
        ("UPDATE posts SET session = randomblob(16) WHERE taken = 0", FindingKind::Index, false),
        ("UPDATE posts SET taken = 1 WHERE taken = 0", FindingKind::Index, true),
        ("UPDATE posts SET taken = 7 WHERE taken = 0", FindingKind::Index, true),
    ] {
        let (store, dir) = fresh();
        let session = run_with_inbox(&store);
        drop(store);
        let path = dir.path().join("store");
        assert!(verify(&path).is_valid());
        let db = Connection::open(path.join("rath.db")).unwrap();
        assert_eq!(db.execute(change, []).unwrap(), 1, "{change}");
        drop(db);
        let findings = verify(&path).findings;
        assert_eq!(findings.iter().map(|found| found.what).collect::<Vec<_>>(), [what], "{change}: {findings:?}");
        let alone = Embedded::open_as(&path, "test").unwrap().verify(Some(session), &mut |_, _| {}).unwrap();
        assert_eq!(!alone.is_valid(), of_session, "{change}: {:?}", alone.findings);
        if what == FindingKind::Unreadable {
            let store = Embedded::open(&path).unwrap();
            let error = block_on(store.posts(session)).unwrap_err();
            assert_eq!(error.code(), "store-damaged", "{error}");
        }
    }
}

#[test]
fn a_post_of_a_later_version_stays_queued_and_is_listed() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    block_on(session.publish()).unwrap();
    let id = session.id();
    let what: PostContent = serde_json::from_str(r#"{"post":"reprioritise","to":3}"#).unwrap();
    let later = Post { id: "later".into(), session: id, actor: Actor::person("bob"), time: Time(1), what };
    block_on(store.post(later.clone())).unwrap();
    block_on(store.post(Post::new(id, Actor::person("bob"), PostContent::Message { text: "hi".into() }))).unwrap();
    assert_eq!(block_on(session.consume_posts()).unwrap(), None);
    block_on(session.publish()).unwrap();
    drop((session, store));
    let path = dir.path().join("store");
    assert!(verify(&path).is_valid());
    let store = Embedded::open(&path).unwrap();
    assert_eq!(block_on(store.posts(id)).unwrap(), [later]);
    // Its bytes are unchanged.
    let db = Connection::open(path.join("rath.db")).unwrap();
    let body: Vec<u8> = db.query_row("SELECT body FROM posts WHERE taken = 0", [], |row| row.get(0)).unwrap();
    assert!(String::from_utf8(body).unwrap().contains(r#""what":{"post":"reprioritise","to":3}"#));
}
