//! Stores that are not ours, not yet ours, or not readable.

use std::fs;

use rath_store::{Embedded, FORMAT};

use crate::support::{fresh, noise};

#[test]
fn a_store_from_the_future_is_refused() {
    let (store, dir) = fresh();
    drop(store);
    let path = dir.path().join("store");
    let db = rusqlite::Connection::open(path.join("rath.db")).unwrap();
    db.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    drop(db);
    let error = Embedded::open(&path).err().unwrap();
    assert_eq!(error.code(), "store-from-the-future");
    assert_eq!(error.to_string(), "the store has format 6; this version of rath reads up to 5");
}

#[test]
fn what_is_not_a_store_is_said_to_be_none() {
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
fn a_store_is_not_made_over_another() {
    let (_store, dir) = fresh();
    assert!(Embedded::create(dir.path().join("store")).is_err());
}

#[test]
fn a_half_made_store_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rath.db.0.new"), "a crash left this").unwrap();
    assert!(Embedded::create(dir.path()).is_ok());
}

#[test]
fn of_many_that_make_a_store_at_once_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let made = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| Embedded::create(&path).is_ok())).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).filter(|made| *made).count()
    });
    assert_eq!(made, 1);
    assert!(crate::support::verify(&path).is_sound());
}

#[test]
fn a_commit_that_fails_leaves_nothing_and_gives_the_sessions_back() {
    use pollster::block_on;
    use rath_core::{Actor, How, Session};
    let (store, dir) = fresh();
    let packs = dir.path().join("store/packs");
    let mut root = Session::create(&store, Actor::program("test"));
    root.user("ask").unwrap();
    block_on(root.publish()).unwrap();
    let mut branch = root.fork("long");
    branch.assistant(noise(20_000, 1)).unwrap();
    let heads = [root.head(), branch.head()];
    // Blobs cannot be written: a file stands where their directory should be.
    fs::write(&packs, "").unwrap();
    let error = block_on(root.merge([branch], How::Append)).unwrap_err();
    assert_eq!(error.code(), "machine");
    let mut sessions = error.into_sessions();
    assert_eq!(sessions.iter().map(Session::head).collect::<Vec<_>>(), heads);
    let rows = block_on(store.sessions(rath_core::store::Query::default())).unwrap();
    assert_eq!((rows.len(), rows[0].seq), (1, 1));
    // Many at once: the others' work is not undone.
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
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!((report.sessions, report.blobs), (6, 1));
}
