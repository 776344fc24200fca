//! Erasure: no file of the store may contain the erased bytes, whatever happens in between.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_core::body::{Labelled, User};
use rath_core::store::{Lookup, Scan, SessionFilter};
use rath_core::{Actor, Blob, Kind, Reference, Session, SessionId, Store, View};
use rath_store::{Embedded, ErasePlan};
use rath_testkit::traces::find as finds;
use tempfile::TempDir;

use crate::support::{child, child_dir, fresh, noise, session_with_files, verify};

const SECRET: &str = "zanzibar-quokka-7731";

fn embedded(dir: &TempDir) -> Embedded {
    Embedded::open_as(dir.path().join("store"), "test").unwrap()
}

/// A session with the secret in a short text, a long text, its title and a label, followed by other records. Returns
/// the records with the secret.
fn session_with_secret(store: &Arc<dyn Store>) -> (SessionId, Vec<Reference>) {
    let mut session = Session::create(store, Actor::person("ada"));
    let mut told = Vec::new();
    session.set_title(format!("about {SECRET}")).unwrap();
    told.push(session.head());
    session.append(Labelled { set: [("who".into(), SECRET.into())].into(), ..Labelled::default() }).unwrap();
    told.push(session.head());
    session.user(format!("I am {SECRET}")).unwrap();
    told.push(session.head());
    session.user(format!("{SECRET} {}", noise(20_000, 7))).unwrap();
    told.push(session.head());
    for n in 0..300 {
        session.note(format!("note {n}")).unwrap();
    }
    block_on(session.publish()).unwrap();
    (session.id(), told)
}

/// Pages that were prefetched before an erasure must not be returned after it.
#[test]
fn prefetched_pages_are_dropped_by_an_erasure() {
    let (shared, dir) = fresh();
    drop(shared);
    let store = Arc::new(Embedded::open_as(dir.path().join("store"), "test").unwrap());
    let shared: Arc<dyn Store> = store.clone();
    let mut session = Session::create(&shared, Actor::person("ada"));
    let mut said = vec![session.head()];
    for n in 0..9_000 {
        session.user(format!("{n} {}", noise(1_000, 7))).unwrap();
        said.push(session.head());
    }
    block_on(session.publish()).unwrap();
    let (mut from, mut pages, mut erased) = (0, 0, Vec::new());
    loop {
        let page = block_on(store.scan(Scan::session(session.id(), from, u64::MAX))).unwrap();
        for record in &page.records {
            assert_eq!(record.body_bytes().is_none(), erased.contains(&record.seq()), "{}", record.seq());
        }
        (from, pages) = (page.position, pages + 1);
        if !page.more {
            break;
        }
        if pages == 3 {
            // About one record in each of the next pages.
            let plan: Vec<_> = (0..4).map(|at| said[from as usize + at * page.records.len()]).collect();
            erased = plan.iter().map(|reference| reference.seq).collect();
            let mut looked = false;
            let mut look = |_| {
                // Read one more page during the erasure, so that the page after it is prefetched.
                if !std::mem::replace(&mut looked, true) {
                    let page = block_on(store.scan(Scan::session(session.id(), from, u64::MAX))).unwrap();
                    (from, pages) = (page.position, pages + 1);
                }
            };
            let plan = ErasePlan { records: plan, ..ErasePlan::new() };
            store.destroy(&store.lock_for_erase().unwrap(), &plan, &mut look).unwrap();
        }
    }
    assert!(pages > 7, "{pages}");
}

/// The same if another process erases.
#[test]
fn prefetched_pages_are_dropped_by_an_erasure_of_another_process() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    let mut said = vec![session.head()];
    for n in 0..6_000 {
        session.user(format!("{n} {}", noise(1_000, 7))).unwrap();
        said.push(session.head());
    }
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop(session);
    let next = |from| block_on(store.scan(Scan::session(id, from, u64::MAX))).unwrap();
    let (first, second) = (next(0), next(next(0).position));
    assert!(first.more && second.more);
    // The third page is being prefetched.
    let plan = said[second.position as usize];
    let elsewhere = Embedded::open(dir.path().join("store")).unwrap();
    block_on(elsewhere.erase(vec![plan])).unwrap();
    let third = next(second.position);
    assert_eq!(third.records[0].id(), plan.id);
    assert_eq!(third.records[0].body_bytes(), None);
}

#[test]
fn an_erasure_leaves_no_bytes_in_any_file() {
    let (store, dir) = fresh();
    let (id, told) = session_with_secret(&store);
    // Close the store, so that no process appends to the pack.
    drop(store);
    let store = Embedded::open(dir.path().join("store")).unwrap();
    let before = embedded(&dir).health().unwrap();
    assert!(!finds(dir.path(), SECRET).is_empty());
    block_on(store.erase(told.clone())).unwrap();
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());

    let row = block_on(store.sessions(SessionFilter::Id(id).into())).unwrap().remove(0);
    assert_eq!((row.title, row.labels.len()), (None, 0));
    let view = block_on(View::of(&store, id, None)).unwrap();
    assert_eq!((view.state().title.clone(), view.state().labels.len()), (None, 0));
    assert_eq!(view.state().usage, rath_core::Usage::default());
    let report = verify(&dir.path().join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!(report.erased, told.len() as u64);
    // The long text was the only entry of the pack, so the pack is removed.
    let after = embedded(&dir).health().unwrap();
    assert_eq!((before.packs.len(), after.packs.len()), (1, 0));

    // The session can be continued, and forked before, within and after the erased records.
    drop(store);
    let store = Embedded::open(dir.path().join("store")).unwrap();
    let mut session = block_on(store.open(id, Actor::person("bob"))).unwrap();
    session.user("Go on.").unwrap();
    block_on(session.publish()).unwrap();
    for at in [1, 3, 4, 200] {
        let point = rath_core::Point { session: id, seq: at };
        let mut fork = block_on(session.fork_at(point, "again")).unwrap();
        block_on(fork.publish()).unwrap();
        assert!(block_on(fork.context()).is_ok());
    }
    assert!(verify(&dir.path().join("store")).is_valid());
}

#[test]
fn a_blob_that_another_record_refers_to_is_kept_and_reported() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    let text = noise(20_000, 7);
    session.user(text.clone()).unwrap();
    let first = session.head();
    session.note(text.clone()).unwrap();
    let second = session.head();
    block_on(session.publish()).unwrap();
    let digest = Blob::new(text.into_bytes(), "").reference.digest;
    let care = embedded(&dir);
    let plan = ErasePlan { records: vec![first], ..ErasePlan::new() };
    let expected = care.erase_dry_run(&plan, &mut |_| {}).unwrap();
    let done = care.destroy(&care.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap();
    assert_eq!(expected.kept, done.kept);
    assert_eq!((done.records, done.blobs, done.kept.len()), (1, 0, 1));
    assert_eq!((done.kept[0].digest, &done.kept[0].named_by[..]), (digest, &[second.point()][..]));
    assert!(block_on(store.blob_get(digest)).unwrap().is_some());

    block_on(store.erase(vec![second])).unwrap();
    assert!(block_on(store.blob_get(digest)).unwrap().is_none());
    assert!(verify(&dir.path().join("store")).is_valid());
}

#[test]
fn a_pack_in_use_is_overwritten_in_place() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user(format!("{SECRET} {}", noise(20_000, 7))).unwrap();
    let told = session.head();
    session.user(noise(30_000, 7)).unwrap();
    block_on(session.publish()).unwrap();
    let care = embedded(&dir);
    let plan = ErasePlan { records: vec![told], ..ErasePlan::new() };
    // `store` still has the pack open.
    let done = care.destroy(&care.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap();
    assert!(done.overwritten > 10_000 && done.packs == 0, "{done:?}");
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());
    session.user(noise(40_000, 7)).unwrap();
    block_on(session.publish()).unwrap();
    assert!(verify(&dir.path().join("store")).is_valid());
}

#[test]
fn an_erasure_does_not_start_while_files_are_saved() {
    let (store, dir) = fresh();
    let (_, told) = session_with_secret(&store);
    let _saving = store.gc_guard().unwrap();
    let refused = block_on(store.erase(told)).unwrap_err();
    assert!(refused.to_string().contains("nothing was erased"), "{refused}");
    assert!(embedded(&dir).unfinished().unwrap().is_empty());
    assert!(!finds(dir.path(), SECRET).is_empty());
}

#[test]
fn an_interrupted_erasure_is_completed_from_the_journal() {
    let (store, dir) = fresh();
    let (_, told) = session_with_secret(&store);
    drop(store);
    let packs = dir.path().join("store/packs");
    let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&pack).unwrap();
    let care = embedded(&dir);
    let plan = ErasePlan { records: told, ..ErasePlan::new() };
    care.journal_erase(&care.lock_for_erase().unwrap(), &plan).unwrap();
    assert_eq!(care.unfinished().unwrap(), std::slice::from_ref(&plan));
    care.destroy(&care.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap();
    assert!(care.unfinished().unwrap().is_empty());

    // As if the process had died after the database and before the pack.
    fs::write(&pack, &bytes).unwrap();
    let name = pack.file_name().unwrap().to_str().unwrap();
    let entry = serde_json::json!({ "doomed": plan, "packs": [name] });
    fs::write(dir.path().join(format!("store/erasing/{}.json", plan.name)), entry.to_string()).unwrap();
    assert_eq!(finds(dir.path(), SECRET).len(), 1);
    let unfinished = care.unfinished().unwrap();
    care.destroy(&care.lock_for_erase().unwrap(), &unfinished[0], &mut |_| {}).unwrap();
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());
    assert!(verify(&dir.path().join("store")).is_valid());
}

#[test]
fn a_record_with_another_id_is_not_erased() {
    let (store, dir) = fresh();
    let (id, told) = session_with_secret(&store);
    let wrong = Reference { id: told[0].id, ..told[1] };
    assert!(block_on(store.erase(vec![told[2], wrong])).is_err());
    let record = block_on(store.get(Lookup::At(told[2].point()))).unwrap().remove(0);
    assert!(record.body::<User>().is_ok());
    assert!(embedded(&dir).unfinished().unwrap().is_empty(), "{id}");
}

#[test]
fn a_session_is_removed_and_the_rest_is_valid() {
    let (store, dir) = fresh();
    let (gone, _) = session_with_secret(&store);
    let (stays, _) = session_with_secret(&store);
    // The index of ids is verified too, so it must be filled.
    block_on(store.get(Lookup::Prefix("0000".into()))).unwrap();
    let head = |id| block_on(store.sessions(SessionFilter::Id(id).into())).unwrap()[0].head_reference();
    let (going, staying) = (head(gone), head(stays));
    let care = embedded(&dir);
    let mut fork = block_on(View::of(&store, gone, None)).unwrap().fork(Actor::person("ada"), "stands on it").unwrap();
    block_on(fork.publish()).unwrap();
    let plan = ErasePlan { sessions: vec![going], ..ErasePlan::new() };
    let refused = care.destroy(&care.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("was forked from it"), "{refused}");

    let both = ErasePlan { sessions: vec![going, fork.head()], ..plan.clone() };
    let refused = care.destroy(&care.lock_for_erase().unwrap(), &both, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("is locked by"), "{refused}");
    let held = fork.id();
    drop(fork);
    // The writer thread releases the lease asynchronously.
    while block_on(store.sessions(SessionFilter::Id(held).into())).unwrap()[0].holder.is_some() {
        std::thread::yield_now();
    }
    // Stands for the record of the erasure, which is newer than the removed segments.
    let mut record = Session::create(&store, Actor::person("ada"));
    block_on(record.publish()).unwrap();
    let done = care.destroy(&care.lock_for_erase().unwrap(), &both, &mut |_| {}).unwrap();
    assert_eq!(done.sessions, 2);
    let left: Vec<_> = block_on(store.sessions(SessionFilter::All.into())).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [record.id(), stays]);
    assert!(block_on(store.get(Lookup::Id(going.id))).unwrap().is_empty());
    assert_eq!(block_on(store.get(Lookup::Id(staying.id))).unwrap().len(), 1);
    let report = verify(&dir.path().join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[test]
fn files_are_kept_while_the_session_has_a_body() {
    let (store, dir) = fresh();
    let id = session_with_files(&store, dir.path());
    let mut all = Vec::new();
    for row in block_on(store.sessions(SessionFilter::All.into())).unwrap() {
        all.extend(block_on(block_on(View::of(&store, row.id, None)).unwrap().own_records()).unwrap());
    }
    let (ends, rest): (Vec<_>, Vec<_>) = all.iter().partition(|record| *record.kind() == Kind::ToolFinished);
    block_on(store.erase(ends.iter().map(|record| record.reference()).collect())).unwrap();
    let view = block_on(View::of(&store, id, None)).unwrap();
    let now = view.state().workspace.clone().unwrap();
    assert!(block_on(store.blob_get(now.tree.digest)).unwrap().is_some());
    assert!(embedded(&dir).collect(false, &mut |_| {}).unwrap().live > 0);
    assert!(block_on(store.blob_get(now.tree.digest)).unwrap().is_some());
    assert!(verify(&dir.path().join("store")).is_valid());

    block_on(store.erase(rest.iter().map(|record| record.reference()).collect())).unwrap();
    let left = embedded(&dir).collect(true, &mut |_| {}).unwrap();
    assert_eq!((left.live, left.dead), (0, 0), "{left:?}");
    assert!(verify(&dir.path().join("store")).is_valid());
}

/// Child process: erases the records with the secret until it is killed.
#[test]
fn eraser() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(&dir).unwrap();
    for row in block_on(store.sessions(SessionFilter::All.into())).unwrap() {
        let records = block_on(block_on(View::of(&store, row.id, Some(4))).unwrap().own_records()).unwrap();
        let told: Vec<_> = records.iter().skip(1).filter(|record| record.body_bytes().is_some()).collect();
        block_on(store.erase(told.iter().map(|record| record.reference()).collect())).unwrap();
    }
}

#[test]
fn a_killed_erasure_can_be_completed_or_has_not_started() {
    let rounds = u64::from(rath_testkit::scaled(12));
    for round in 0..rounds {
        let (store, dir) = fresh();
        let sessions: Vec<_> = (0..6).map(|_| session_with_secret(&store)).collect();
        drop(store);
        let path = dir.path().join("store");
        let mut eraser = child("erasing::eraser", &path);
        std::thread::sleep(Duration::from_millis(5 + (round * 37) % 180));
        eraser.kill().unwrap();
        eraser.wait().unwrap();
        let care = embedded(&dir);
        assert!(care.verify(None, &mut |_, _| {}).unwrap().is_valid());
        for plan in care.unfinished().unwrap() {
            care.destroy(&care.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap();
        }
        let report = care.verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_valid(), "{:?}", report.findings);
        // Each session has all four records or none. The secret remains only in complete sessions.
        assert_eq!(report.erased % 4, 0);
        let whole = sessions.len() as u64 - report.erased / 4;
        assert_eq!(finds(dir.path(), SECRET).is_empty(), whole == 0, "{whole} sessions are whole");
        if whole > 0 {
            let store = Embedded::open(&path).unwrap();
            let left = sessions.iter().flat_map(|(_, told)| told);
            let left =
                left.filter(|told| block_on(store.get(Lookup::At(told.point()))).unwrap()[0].body_bytes().is_some());
            block_on(store.erase(left.copied().collect())).unwrap();
            assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());
        }
    }
}
