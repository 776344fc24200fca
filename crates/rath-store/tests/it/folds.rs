//! Snapshots of other fold versions: what erased bodies contributed to the state is taken from them.

use std::path::Path;
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{Awaited, Received, WaitKind};
use rath_core::files::Version;
use rath_core::store::{Query, Scan};
use rath_core::{Actor, FOLD, Kind, Reference, Session, SessionId, State, Store, Usage, View};
use rath_store::{Embedded, ErasePlan};
use rath_testkit::copy_dir;
use rusqlite::Connection;

use crate::corpus::corpus;
use crate::support::{fresh, model_conversation, sample_sessions, session_with_files, verify};

/// Changes the fold version in every snapshot.
fn set_fold(path: &Path, fold: u32) {
    let db = Connection::open(path.join("rath.db")).unwrap();
    let set = "UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), ?1, ?2) AS BLOB)";
    let changed = db.execute(set, [format!("{{\"fold\":{FOLD}"), format!("{{\"fold\":{fold}")]).unwrap();
    assert!(changed > 0);
}

fn snapshots(path: &Path) -> Vec<(i64, i64, Vec<u8>)> {
    let db = Connection::open(path.join("rath.db")).unwrap();
    let mut query = db.prepare("SELECT session, seq, state FROM snapshots ORDER BY session, seq").unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn state(path: &Path, session: SessionId) -> State {
    let store = Embedded::open(path).unwrap();
    block_on(View::of(&store, session, None)).unwrap().state().clone()
}

/// Erases all bodies of a session but the first.
fn erase_all(store: &dyn Store, session: SessionId) {
    let records = block_on(store.scan(Scan::session(session, 1, u64::MAX).limit(10_000))).unwrap().records;
    block_on(store.erase(records.iter().map(|record| record.reference()).collect())).unwrap();
}

/// The parts of a state that an erasure keeps and that only a snapshot has then.
fn kept(state: &State) -> (Usage, Option<Version>, usize) {
    (state.usage, state.workspace.clone(), state.steps.len())
}

#[test]
fn snapshots_of_other_folds_are_used_after_erased_bodies() {
    let (store, dir) = fresh();
    let files = session_with_files(&store, tempfile::tempdir().unwrap().path());
    let model = model_conversation(&store);
    let before = [files, model].map(|id| kept(block_on(View::of(&store, id, None)).unwrap().state()));
    assert!(before[0].1.is_some() && before[1].0.requests > 0, "{before:?}");
    [files, model].into_iter().for_each(|id| erase_all(&*store, id));
    drop(store);
    let path = dir.path().join("store");
    for fold in [3, 4, FOLD, FOLD + 1, FOLD + 7] {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&path, copy.path());
        set_fold(copy.path(), fold);
        for (id, before) in [files, model].into_iter().zip(&before) {
            assert_eq!(&kept(&state(copy.path(), id)), before, "fold {fold}");
        }
        let report = verify(copy.path());
        assert!(report.is_valid(), "fold {fold}: {:?}", report.findings);
        // The session can be continued, and a snapshot of the current fold has the same state.
        let store = Embedded::open(copy.path()).unwrap();
        let mut session = block_on(store.open(model, Actor::person("ada"))).unwrap();
        for n in 0..300 {
            session.note(format!("note {n}")).unwrap();
        }
        block_on(session.publish()).unwrap();
        drop((session, store));
        assert_eq!(kept(&state(copy.path(), model)), before[1], "fold {fold}");
        assert!(verify(copy.path()).is_valid(), "fold {fold}");
    }
}

#[test]
fn an_erasure_upgrades_older_snapshots_and_refuses_newer_ones() {
    let (store, dir) = fresh();
    let model = model_conversation(&store);
    let before = kept(block_on(View::of(&store, model, None)).unwrap().state());
    drop(store);
    let path = dir.path().join("store");
    for fold in 1..=FOLD + 1 {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&path, copy.path());
        set_fold(copy.path(), fold);
        let stored = snapshots(copy.path());
        let store = Embedded::open_as(copy.path(), "test").unwrap();
        let records = block_on(store.scan(Scan::session(model, 1, u64::MAX))).unwrap().records;
        let plan: Vec<Reference> = records.iter().map(|record| record.reference()).collect();
        let plan = ErasePlan { records: plan, ..ErasePlan::new() };
        let done = store.destroy(&store.lock_for_erase().unwrap(), &plan, &mut |_| {});
        drop(store);
        if fold > FOLD {
            assert_eq!(done.unwrap_err().code(), "store-from-the-future");
            assert_eq!(snapshots(copy.path()), stored, "a snapshot was deleted or changed");
            continue;
        }
        done.unwrap();
        assert_eq!(kept(&state(copy.path(), model)), before, "fold {fold}");
        let now = snapshots(copy.path());
        assert!(now.len() >= stored.len(), "fold {fold}: a snapshot was deleted");
        assert!(now.iter().all(|(_, _, bytes)| State::from_snapshot(bytes).is_some()), "fold {fold}");
        assert!(verify(copy.path()).is_valid(), "fold {fold}");
    }
}

fn states(store: &Arc<dyn Store>, rows: &[rath_core::store::SessionInfo]) -> Vec<(Usage, Option<Version>, usize)> {
    rows.iter().map(|row| kept(block_on(View::of(store, row.id, None)).unwrap().state())).collect()
}

#[test]
fn every_stored_session_is_erased_without_its_state_being_lost() {
    for name in ["format-1", "format-2", "format-3", "format-3-models", "format-4", "format-5", "format-6"] {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&corpus().join(name).join("store"), copy.path());
        let store = Embedded::open(copy.path()).unwrap();
        let rows = block_on(store.sessions(Query::default())).unwrap();
        let before = states(&store, &rows);
        // The first record is kept, because it has the run key; all others are erased.
        rows.iter().for_each(|row| erase_all(&*store, row.id));
        assert_eq!(states(&store, &rows), before, "{name}");
        drop(store);
        assert!(verify(copy.path()).is_valid(), "{name}");
        // The sessions can be continued.
        let store = Embedded::open(copy.path()).unwrap();
        for row in rows.iter().filter(|row| !row.closed) {
            let mut session = block_on(store.open(row.id, Actor::person("ada"))).unwrap();
            session.note("after the erasure").unwrap();
            block_on(session.publish()).unwrap();
        }
        assert_eq!(states(&store, &rows), before, "{name}");
    }
}

#[test]
fn a_forged_snapshot_of_another_fold_is_reported_or_ignored() {
    let (store, dir) = fresh();
    let model = model_conversation(&store);
    drop(store);
    let path = dir.path().join("store");
    let before = state(&path, model);
    for fold in 1..=FOLD + 1 {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&path, copy.path());
        set_fold(copy.path(), fold);
        let db = Connection::open(copy.path().join("rath.db")).unwrap();
        for (no, seq, bytes) in snapshots(copy.path()) {
            let mut forged: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            forged["usage"]["requests"] = 77.into();
            let update = "UPDATE snapshots SET state = ?3 WHERE session = ?1 AND seq = ?2";
            db.execute(update, rusqlite::params![no, seq, forged.to_string().into_bytes()]).unwrap();
        }
        drop(db);
        let found = !verify(copy.path()).is_valid();
        assert!(found || state(copy.path(), model) == before, "fold {fold}");
        assert_eq!(found, fold == 4 || fold == FOLD, "fold {fold}");
    }
}

#[test]
fn what_an_older_fold_left_out_is_folded_from_the_records() {
    let (store, dir) = fresh();
    let wait = |id: &str| Awaited { id: id.into(), what: WaitKind::Time, name: None, until: None, why: None };
    let mut session = Session::create(&store, Actor::person("ada"));
    session.append(wait("one")).unwrap();
    session.append(wait("two")).unwrap();
    session.append(Received { id: "one".into(), value: None, post: None }).unwrap();
    for n in 0..300 {
        session.note(format!("note {n}")).unwrap();
    }
    block_on(session.publish()).unwrap();
    let mut branch = session.fork("branch");
    for n in 0..300 {
        branch.note(format!("note {n}")).unwrap();
    }
    block_on(branch.publish()).unwrap();
    let expected = [session.state().clone(), branch.state().clone()];
    let ids = [session.id(), branch.id()];
    drop((session, branch, store));
    let path = dir.path().join("store");
    let db = Connection::open(path.join("rath.db")).unwrap();
    // Like a version without waits.
    for (no, seq, bytes) in snapshots(&path) {
        let mut state: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let fields = state.as_object_mut().unwrap();
        fields.remove("waits");
        fields.insert("fold".into(), 4.into());
        let update = "UPDATE snapshots SET state = ?3 WHERE session = ?1 AND seq = ?2";
        db.execute(update, rusqlite::params![no, seq, state.to_string().into_bytes()]).unwrap();
    }
    drop(db);
    for (id, expected) in ids.into_iter().zip(expected) {
        assert_eq!(state(&path, id), expected);
    }
    assert!(verify(&path).is_valid());
}

#[test]
fn a_kind_that_was_stored_with_the_unknown_code_is_found_by_its_name() {
    let (store, dir) = fresh();
    sample_sessions(&store);
    let mut session = Session::create(&store, Actor::person("ada"));
    block_on(session.publish()).unwrap();
    session.append(Awaited { id: "one".into(), what: WaitKind::Time, name: None, until: None, why: None }).unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop((session, store));
    let path = dir.path().join("store");
    // Like a version that does not know the kind: with the code of unknown kinds.
    let db = Connection::open(path.join("rath.db")).unwrap();
    let set = "UPDATE segments SET kinds = ?1, data = CAST(x'3e' || substr(data, 2) AS BLOB) WHERE kinds = ?2";
    let changed = db.execute(set, [1i64 << Kind::OTHER_CODE, 1i64 << Kind::Awaited.code()]).unwrap();
    assert_eq!(changed, 1);
    drop(db);
    let report = verify(&path);
    assert!(report.is_valid(), "{:?}", report.findings);
    let store = Embedded::open(&path).unwrap();
    for scan in [Scan::session(id, 0, 9), Scan::all()] {
        let found = block_on(store.scan(scan.kinds(&[Kind::Awaited]))).unwrap().records;
        assert_eq!(found.iter().map(|record| record.kind().clone()).collect::<Vec<_>>(), [Kind::Awaited]);
    }
    assert_eq!(state(&path, id).waits.len(), 1);
}
