//! Opening directories that are not stores, stores of later formats, and creating stores.

use std::fs;

use pollster::block_on;
use rath_core::store::Query;
use rath_core::{Actor, Session};
use rath_store::{Embedded, FORMAT};

use crate::corpus::describe;
use crate::support::{fresh, noise, sample_sessions, verify};

/// A store of the next format, with a change to its schema.
fn from_the_future(change: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let (store, dir) = fresh();
    sample_sessions(&store);
    drop(store);
    let path = dir.path().join("store");
    let db = rusqlite::Connection::open(path.join("rath.db")).unwrap();
    db.execute_batch(change).unwrap();
    db.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    (dir, path)
}

#[test]
fn a_store_from_the_future_is_read_and_not_written() {
    let more = "CREATE TABLE boards (id BLOB PRIMARY KEY); ALTER TABLE sessions ADD COLUMN board BLOB;";
    let (_dir, path) = from_the_future(more);
    let report = verify(&path);
    assert!(report.is_valid(), "{:?}", report.findings);
    let before = describe(&path);
    assert!(!before.as_array().unwrap().is_empty());
    let store = Embedded::open(&path).unwrap();
    let mut session = Session::create(&store, Actor::person("ada"));
    let error = block_on(session.publish()).unwrap_err();
    assert_eq!(error.code(), "store-from-the-future");
    let expected = format!(
        "the store has format {}, but this version of rath writes up to {FORMAT}: use a newer version",
        FORMAT + 1
    );
    assert_eq!(error.to_string(), expected);
    let id = block_on(store.sessions(Query::default())).unwrap()[0].id;
    assert_eq!(block_on(store.open(id, Actor::person("ada"))).unwrap_err().code(), "store-from-the-future");
    drop((session, store));
    assert_eq!(describe(&path), before);
}

#[test]
fn a_store_from_the_future_that_cannot_be_read_is_refused() {
    for change in ["DROP TABLE snapshots", "ALTER TABLE segments RENAME COLUMN data TO chunks"] {
        let (_dir, path) = from_the_future(change);
        assert_eq!(Embedded::open(&path).err().unwrap().code(), "store-from-the-future", "{change}");
    }
}

#[test]
fn opening_something_else_is_not_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let code = |path| Embedded::open(path).err().unwrap().code();
    assert_eq!(code(dir.path().join("nowhere")), "not-a-store");
    fs::write(
        dir.path().join("rath.db"),
        "not a database, but longer than a header of one would be; and then some more",
    )
    .unwrap();
    assert_eq!(code(dir.path().to_owned()), "not-a-store");
    fs::remove_file(dir.path().join("rath.db")).unwrap();
    rusqlite::Connection::open(dir.path().join("rath.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert_eq!(code(dir.path().to_owned()), "not-a-store");
    fs::write(dir.path().join("rath.db"), "").unwrap();
    assert_eq!(code(dir.path().to_owned()), "not-a-store");
}

#[test]
fn creating_a_store_over_another_fails() {
    let (_store, dir) = fresh();
    assert!(Embedded::create(dir.path().join("store")).is_err());
}

#[test]
fn an_unfinished_store_does_not_prevent_creation() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rath.db.0.new"), "a crash left this").unwrap();
    assert!(Embedded::create(dir.path()).is_ok());
}

#[test]
fn of_concurrent_creations_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let made = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| Embedded::create(&path).is_ok())).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).filter(|made| *made).count()
    });
    assert_eq!(made, 1);
    assert!(crate::support::verify(&path).is_valid());
}

#[test]
fn a_failed_commit_changes_nothing_and_returns_the_sessions() {
    use rath_core::How;
    let (store, dir) = fresh();
    let packs = dir.path().join("store/packs");
    let mut root = Session::create(&store, Actor::program("test"));
    root.user("ask").unwrap();
    block_on(root.publish()).unwrap();
    let mut branch = root.fork("long");
    branch.assistant(noise(20_000, 1)).unwrap();
    let heads = [root.head(), branch.head()];
    // Blobs cannot be written, because a file has the name of their directory.
    fs::write(&packs, "").unwrap();
    let error = block_on(root.merge([branch], How::Append)).unwrap_err();
    assert_eq!(error.code(), "machine");
    let mut sessions = error.into_sessions();
    assert_eq!(sessions.iter().map(Session::head).collect::<Vec<_>>(), heads);
    let rows = block_on(store.sessions(rath_core::store::Query::default())).unwrap();
    assert_eq!((rows.len(), rows[0].seq), (1, 1));
    // Concurrent commits: a failed one does not undo the others.
    std::thread::scope(|scope| {
        for n in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let mut session = Session::create(store, Actor::program("test"));
                let long = n % 2 == 0;
                session.user(if long { noise(20_000, 2) } else { "short".into() }).unwrap();
                assert_eq!(block_on(session.publish()).is_err(), long);
            });
        }
    });
    fs::remove_file(&packs).unwrap();
    let branch = sessions.pop().unwrap();
    block_on(sessions.pop().unwrap().merge([branch], How::Append)).unwrap();
    drop(store);
    let report = crate::support::verify(&dir.path().join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!((report.sessions, report.blobs), (6, 1));
}
