//! What is known of a line that lost some of its bodies: a store is sound whatever was erased, and a forged state is found.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{Effect, Grant, Granted, Labelled, Placed, Scope};
use rath_core::verify::What;
use rath_core::{Actor, Point, Reference, Session, SessionId, Store, View};
use rath_store::Embedded;
use rath_testkit::copy_dir;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{begun, fresh, furnished, noise, talked, verify, worked};

fn copy_of(store: &Path, into: &TempDir) -> PathBuf {
    let copy = tempfile::tempdir_in(into.path()).unwrap().keep();
    copy_dir(store, &copy);
    copy
}

fn records_of(store: &Arc<dyn Store>, session: SessionId) -> Vec<Reference> {
    let view = block_on(View::of(store, session, None)).unwrap();
    block_on(view.own_as_stored()).unwrap().iter().map(rath_core::Record::reference).collect()
}

/// Goes on with a session and with forks of it, before and behind what is gone.
fn go_on(store: &Arc<dyn Store>, id: SessionId, length: u64) {
    let mut session = block_on(store.open(id, Actor::person("bob"))).unwrap();
    if !session.state().closed {
        session.user("Go on.").unwrap();
        session.label("later", "yes").unwrap();
        block_on(session.publish()).unwrap();
    }
    for seq in [length / 3, length / 2, length - 1] {
        let mut fork = block_on(session.fork_at(Point { session: id, seq }, "again")).unwrap();
        for n in 0..260 {
            fork.note(format!("note {n}")).unwrap();
        }
        block_on(fork.publish()).unwrap();
    }
}

fn assert_sound(path: &Path, what: &str) {
    let report = verify(path);
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    let store = Embedded::open_here(path, "test").unwrap();
    let rows = block_on(Embedded::open(path).unwrap().sessions(rath_core::store::Query::default())).unwrap();
    for row in rows {
        let report = store.verify(Some(row.id), &mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{what}, {} alone: {:?}", row.id.short(), report.findings);
    }
}

#[test]
fn a_store_is_sound_whatever_was_erased() {
    let (store, dir) = fresh();
    let ids = furnished(&store);
    let sessions = [ids[1], ids[2], worked(&store, dir.path()), begun(&store), talked(&store)];
    drop(store);
    let original = dir.path().join("store");
    let mut all = Vec::new();
    let store = Embedded::open(&original).unwrap();
    for session in sessions {
        let records = records_of(&store, session);
        // One at a time, each in a store of its own.
        for record in &records {
            let path = copy_of(&original, &dir);
            let store = Embedded::open(&path).unwrap();
            block_on(store.erase(vec![*record])).unwrap();
            assert_sound(&path, &format!("without {}", record.point()));
            go_on(&store, session, records.len() as u64);
            drop(store);
            assert_sound(&path, &format!("without {}, and longer", record.point()));
            std::fs::remove_dir_all(path).unwrap();
        }
        all.push(records);
    }
    // One after another in one store, the later ones of each session first, until nothing is left.
    let store = Embedded::open(&original).unwrap();
    let longest = all.iter().map(Vec::len).max().unwrap();
    for turn in 0..longest {
        let doomed: Vec<_> = all.iter_mut().filter_map(|records| records.pop()).collect();
        block_on(store.erase(doomed)).unwrap();
        if turn % 3 == 0 {
            assert_sound(&original, &format!("after {turn}"));
        }
    }
    assert_sound(&original, "at the end");
}

#[test]
fn forks_lose_their_bodies_together_with_what_they_stand_on() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.enter("plan").unwrap();
    session.user("Think.").unwrap();
    let forks: Vec<SessionId> = (0..12)
        .map(|n| {
            let mut fork = session.fork("try");
            fork.note(format!("note {n}")).unwrap();
            block_on(fork.publish()).unwrap();
            fork.id()
        })
        .collect();
    block_on(session.publish()).unwrap();
    let all: Vec<SessionId> = forks.iter().copied().chain([session.id()]).collect();
    let first_two = |id: &SessionId| records_of(&store, *id).into_iter().take(2).collect::<Vec<_>>();
    let doomed: Vec<Reference> =
        all.iter().flat_map(first_two).filter(|record| record.seq == 0 || record.session == session.id()).collect();
    block_on(store.erase(doomed)).unwrap();
    assert_sound(&dir.path().join("store"), "without the beginnings");
    let fork = block_on(store.open(forks[0], Actor::person("bob"))).unwrap();
    assert_eq!(fork.state().steps.len(), 1, "{:?}", fork.state().steps);
}

/// A session with a place, a permission, a title and a label, and words behind and before each.
fn furnished_for_work(store: &Arc<dyn Store>, why: &str) -> Session {
    let mut session = Session::create(store, Actor::person("ada"));
    session.set_title("Quarterly").unwrap();
    session.label("keep", "").unwrap();
    let placed = Placed {
        backend: "local".into(),
        isolated: true,
        origin: Some("/home/ada/shop".into()),
        in_place: false,
        workspace: None,
        base: None,
        setup: None,
        why: Some(why.into()),
    };
    session.append(placed).unwrap();
    let asked = session.user("May I?").map(|_| session.head().id).unwrap();
    let scope = Scope::Command { words: vec!["git".into(), "push".into()] };
    session.append(Granted { asked, allows: Grant { tool: "shell".into(), effect: Effect::Pure, scope } }).unwrap();
    session.user(noise(100, 5)).unwrap();
    session.assistant("Done.").unwrap();
    session
}

const FORGED: &[&str] = &[
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"backend":"local"', '"backend":"host"') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"isolated":true', '"isolated":false') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"push"', '"pull"') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"title":"', '"title":"not ') AS BLOB)"#,
    r"UPDATE sessions SET title = 'forged'",
    r#"UPDATE sessions SET labels = '{"scratch":""}'"#,
    r"INSERT INTO runs SELECT 'forged ' || no, id FROM sessions",
    r"UPDATE sessions SET origin_seq = 1 WHERE origin_session IS NOT NULL",
    r"UPDATE sessions SET origin_session = NULL, origin_seq = NULL, origin_id = NULL WHERE origin_session IS NOT NULL",
];

#[test]
fn a_forged_state_is_found_whatever_was_erased() {
    let (store, dir) = fresh();
    let mut session = furnished_for_work(&store, "to work");
    block_on(session.publish()).unwrap();
    let mut fork = session.fork("try");
    fork.user("And then?").unwrap();
    block_on(fork.publish()).unwrap();
    let records: Vec<_> = [session.id(), fork.id()].into_iter().flat_map(|id| records_of(&store, id)).collect();
    drop((session, fork, store));
    let original = dir.path().join("store");
    for erased in records {
        let path = copy_of(&original, &dir);
        block_on(Embedded::open(&path).unwrap().erase(vec![erased])).unwrap();
        Embedded::open_here(&path, "test").unwrap().checkpoint().unwrap();
        assert_sound(&path, "before it is forged");
        for forge in FORGED {
            let forged = copy_of(&path, &dir);
            let db = Connection::open(forged.join("rath.db")).unwrap();
            let states = |db: &Connection| -> Vec<Vec<u8>> {
                let mut query = db.prepare("SELECT state FROM snapshots ORDER BY session, seq").unwrap();
                query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            };
            let before = states(&db);
            db.execute(forge, []).unwrap();
            // What was erased is not there to be altered.
            if forge.contains("replace") && states(&db) == before {
                continue;
            }
            drop(db);
            let report = verify(&forged);
            let found = report.findings.first().unwrap_or_else(|| panic!("{forge} without {}", erased.point()));
            assert_eq!(found.what, What::Index, "{forge} without {}: {found}", erased.point());
        }
    }
}

/// What one session loses another one may still say.
#[test]
fn an_erasure_takes_a_place_from_nobody_else() {
    let (store, dir) = fresh();
    let mut one = furnished_for_work(&store, "to work");
    let mut other = furnished_for_work(&store, "to work too");
    for session in [&mut one, &mut other] {
        block_on(session.publish()).unwrap();
    }
    let (one, other) = (one.id(), other.id());
    // Of one its place and permission, of the other a few words.
    let doomed = vec![
        records_of(&store, one)[3],
        records_of(&store, one)[5],
        records_of(&store, other)[4],
        records_of(&store, other)[6],
    ];
    block_on(store.erase(doomed)).unwrap();
    let state = |id| block_on(View::of(&store, id, None)).unwrap().state().clone();
    assert_eq!((state(one).placement, state(one).granted.len()), (None, 0));
    assert!(state(other).placement.is_some_and(|place| place.backend == "local"));
    assert_eq!(state(other).granted.len(), 1);
    assert_sound(&dir.path().join("store"), "then");
}

#[test]
fn labels_are_known_after_one_was_erased() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.append(Labelled { set: [("a".into(), "1".into())].into(), ..Labelled::default() }).unwrap();
    let doomed = session.head();
    session.label("b", "2").unwrap();
    block_on(session.publish()).unwrap();
    drop(session);
    block_on(store.erase(vec![doomed])).unwrap();
    drop(store);
    let path = dir.path().join("store");
    assert_sound(&path, "erased");
    let db = Connection::open(path.join("rath.db")).unwrap();
    db.execute(r#"UPDATE sessions SET labels = '{"a":"1","b":"2"}'"#, []).unwrap();
    drop(db);
    assert_eq!(verify(&path).findings.len(), 1);
}
