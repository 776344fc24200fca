//! What an erasure leaves: nothing in any file of the store, whatever happens in between.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_core::body::{Labelled, User};
use rath_core::store::{Lookup, Scan, Which};
use rath_core::{Actor, Blob, Kind, Reference, Session, SessionId, Store, View};
use rath_store::{Doomed, Embedded};
use rath_testkit::traces::find as finds;
use tempfile::TempDir;

use crate::support::{child, child_dir, fresh, noise, verify, worked};

const SECRET: &str = "zanzibar-quokka-7731";

fn embedded(dir: &TempDir) -> Embedded {
    Embedded::open_here(dir.path().join("store"), "test").unwrap()
}

/// A session that says the secret in a short and in a long text, in its title and in a label, and goes on.
fn told(store: &Arc<dyn Store>) -> (SessionId, Vec<Reference>) {
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

/// Who reads a session page by page has the next ones read meanwhile.
#[test]
fn what_was_read_ahead_is_not_shown_after_an_erasure() {
    let (shared, dir) = fresh();
    drop(shared);
    let store = Arc::new(Embedded::open_here(dir.path().join("store"), "test").unwrap());
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
            // The first record of each of the next pages, more or less.
            let doomed: Vec<_> = (0..4).map(|at| said[from as usize + at * page.records.len()]).collect();
            erased = doomed.iter().map(|reference| reference.seq).collect();
            let mut looked = false;
            let mut look = |_| {
                // While it goes on somebody reads on, once, and has the page behind that read too.
                if !std::mem::replace(&mut looked, true) {
                    let page = block_on(store.scan(Scan::session(session.id(), from, u64::MAX))).unwrap();
                    (from, pages) = (page.position, pages + 1);
                }
            };
            let doomed = Doomed { records: doomed, ..Doomed::new() };
            store.destroy(&store.quiet().unwrap(), &doomed, &mut look).unwrap();
        }
    }
    assert!(pages > 7, "{pages}");
}

/// The same where another process erases, of which nobody tells this one.
#[test]
fn what_was_read_ahead_is_not_shown_after_an_erasure_elsewhere() {
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
    // The third is being read; so is the fourth, once the third was asked for.
    let doomed = said[second.position as usize];
    let elsewhere = Embedded::open(dir.path().join("store")).unwrap();
    block_on(elsewhere.erase(vec![doomed])).unwrap();
    let third = next(second.position);
    assert_eq!(third.records[0].id(), doomed.id);
    assert_eq!(third.records[0].body_bytes(), None);
}

#[test]
fn no_file_of_the_store_holds_it_any_more() {
    let (store, dir) = fresh();
    let (id, told) = told(&store);
    // Who appended to the pack is gone.
    drop(store);
    let store = Embedded::open(dir.path().join("store")).unwrap();
    let before = embedded(&dir).health().unwrap();
    assert!(!finds(dir.path(), SECRET).is_empty());
    block_on(store.erase(told.clone())).unwrap();
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());

    let row = block_on(store.sessions(Which::Id(id).into())).unwrap().remove(0);
    assert_eq!((row.title, row.labels.len()), (None, 0));
    let view = block_on(View::of(&store, id, None)).unwrap();
    assert_eq!((view.state().title.clone(), view.state().labels.len()), (None, 0));
    assert_eq!(view.state().usage, rath_core::Usage::default());
    let report = verify(&dir.path().join("store"));
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!(report.erased, told.len() as u64);
    // The long text was all that the pack held: its room is given back.
    let after = embedded(&dir).health().unwrap();
    assert_eq!((before.packs.len(), after.packs.len()), (1, 0));

    // The session goes on, and can be forked before, in and behind what is gone.
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
    assert!(verify(&dir.path().join("store")).is_sound());
}

#[test]
fn a_blob_that_another_record_names_stays_and_that_is_said() {
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
    let doomed = Doomed { records: vec![first], ..Doomed::new() };
    let weighed = care.weigh(&doomed, &mut |_| {}).unwrap();
    let done = care.destroy(&care.quiet().unwrap(), &doomed, &mut |_| {}).unwrap();
    assert_eq!(weighed.kept, done.kept);
    assert_eq!((done.records, done.blobs, done.kept.len()), (1, 0, 1));
    assert_eq!((done.kept[0].digest, &done.kept[0].named_by[..]), (digest, &[second.point()][..]));
    assert!(block_on(store.blob_get(digest)).unwrap().is_some());

    block_on(store.erase(vec![second])).unwrap();
    assert!(block_on(store.blob_get(digest)).unwrap().is_none());
    assert!(verify(&dir.path().join("store")).is_sound());
}

#[test]
fn a_pack_that_somebody_appends_to_is_overwritten_where_it_lies() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user(format!("{SECRET} {}", noise(20_000, 7))).unwrap();
    let told = session.head();
    session.user(noise(30_000, 7)).unwrap();
    block_on(session.publish()).unwrap();
    let care = embedded(&dir);
    let doomed = Doomed { records: vec![told], ..Doomed::new() };
    // `store` still has the pack it began.
    let done = care.destroy(&care.quiet().unwrap(), &doomed, &mut |_| {}).unwrap();
    assert!(done.overwritten > 10_000 && done.packs == 0, "{done:?}");
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());
    session.user(noise(40_000, 7)).unwrap();
    block_on(session.publish()).unwrap();
    assert!(verify(&dir.path().join("store")).is_sound());
}

#[test]
fn while_somebody_saves_files_nothing_is_begun() {
    let (store, dir) = fresh();
    let (_, told) = told(&store);
    let _saving = store.gc_guard().unwrap();
    let refused = block_on(store.erase(told)).unwrap_err();
    assert!(refused.to_string().contains("nothing was begun"), "{refused}");
    assert!(embedded(&dir).unfinished().unwrap().is_empty());
    assert!(!finds(dir.path(), SECRET).is_empty());
}

#[test]
fn an_interrupted_erasure_is_finished_by_its_journal() {
    let (store, dir) = fresh();
    let (_, told) = told(&store);
    drop(store);
    let packs = dir.path().join("store/packs");
    let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&pack).unwrap();
    let care = embedded(&dir);
    let doomed = Doomed { records: told, ..Doomed::new() };
    care.intend(&care.quiet().unwrap(), &doomed).unwrap();
    assert_eq!(care.unfinished().unwrap(), std::slice::from_ref(&doomed));
    care.destroy(&care.quiet().unwrap(), &doomed, &mut |_| {}).unwrap();
    assert!(care.unfinished().unwrap().is_empty());

    // As if it had died when the database was done and the pack was not.
    fs::write(&pack, &bytes).unwrap();
    let name = pack.file_name().unwrap().to_str().unwrap();
    let entry = serde_json::json!({ "doomed": doomed, "packs": [name] });
    fs::write(dir.path().join(format!("store/erasing/{}.json", doomed.name)), entry.to_string()).unwrap();
    assert_eq!(finds(dir.path(), SECRET).len(), 1);
    let unfinished = care.unfinished().unwrap();
    care.destroy(&care.quiet().unwrap(), &unfinished[0], &mut |_| {}).unwrap();
    assert_eq!(finds(dir.path(), SECRET), Vec::<PathBuf>::new());
    assert!(verify(&dir.path().join("store")).is_sound());
}

#[test]
fn a_record_that_is_not_what_was_seen_is_not_erased() {
    let (store, dir) = fresh();
    let (id, told) = told(&store);
    let wrong = Reference { id: told[0].id, ..told[1] };
    assert!(block_on(store.erase(vec![told[2], wrong])).is_err());
    let record = block_on(store.get(Lookup::At(told[2].point()))).unwrap().remove(0);
    assert!(record.body::<User>().is_ok());
    assert!(embedded(&dir).unfinished().unwrap().is_empty(), "{id}");
}

#[test]
fn a_session_goes_whole_and_the_rest_is_sound() {
    let (store, dir) = fresh();
    let (gone, _) = told(&store);
    let (stays, _) = told(&store);
    // The index of ids belongs to what is verified.
    block_on(store.get(Lookup::Prefix("0000".into()))).unwrap();
    let head = |id| block_on(store.sessions(Which::Id(id).into())).unwrap()[0].head_reference();
    let (going, staying) = (head(gone), head(stays));
    let care = embedded(&dir);
    let mut fork = block_on(View::of(&store, gone, None)).unwrap().fork(Actor::person("ada"), "stands on it").unwrap();
    block_on(fork.publish()).unwrap();
    let doomed = Doomed { sessions: vec![going], ..Doomed::new() };
    let refused = care.destroy(&care.quiet().unwrap(), &doomed, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("was forked from it"), "{refused}");

    let both = Doomed { sessions: vec![going, fork.head()], ..doomed.clone() };
    let refused = care.destroy(&care.quiet().unwrap(), &both, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("is held by"), "{refused}");
    let held = fork.id();
    drop(fork);
    // It is given back by the writer of its own store.
    while block_on(store.sessions(Which::Id(held).into())).unwrap()[0].holder.is_some() {
        std::thread::yield_now();
    }
    // Where the record of the erasure would be.
    let mut record = Session::create(&store, Actor::person("ada"));
    block_on(record.publish()).unwrap();
    let done = care.destroy(&care.quiet().unwrap(), &both, &mut |_| {}).unwrap();
    assert_eq!(done.sessions, 2);
    let left: Vec<_> = block_on(store.sessions(Which::All.into())).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [record.id(), stays]);
    assert!(block_on(store.get(Lookup::Id(going.id))).unwrap().is_empty());
    assert_eq!(block_on(store.get(Lookup::Id(staying.id))).unwrap().len(), 1);
    let report = verify(&dir.path().join("store"));
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn files_stay_with_a_record_and_go_with_the_session() {
    let (store, dir) = fresh();
    let id = worked(&store, dir.path());
    let mut all = Vec::new();
    for row in block_on(store.sessions(Which::All.into())).unwrap() {
        all.extend(block_on(block_on(View::of(&store, row.id, None)).unwrap().own()).unwrap());
    }
    let (ends, rest): (Vec<_>, Vec<_>) = all.iter().partition(|record| *record.kind() == Kind::ToolFinished);
    block_on(store.erase(ends.iter().map(|record| record.reference()).collect())).unwrap();
    let view = block_on(View::of(&store, id, None)).unwrap();
    let now = view.state().workspace.clone().unwrap();
    assert!(block_on(store.blob_get(now.tree.digest)).unwrap().is_some());
    assert!(embedded(&dir).collect(false, &mut |_| {}).unwrap().live > 0);
    assert!(block_on(store.blob_get(now.tree.digest)).unwrap().is_some());
    assert!(verify(&dir.path().join("store")).is_sound());

    block_on(store.erase(rest.iter().map(|record| record.reference()).collect())).unwrap();
    let left = embedded(&dir).collect(true, &mut |_| {}).unwrap();
    assert_eq!((left.live, left.dead), (0, 0), "{left:?}");
    assert!(verify(&dir.path().join("store")).is_sound());
}

/// Erases what it finds until it is killed.
#[test]
fn eraser() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(&dir).unwrap();
    for row in block_on(store.sessions(Which::All.into())).unwrap() {
        let records = block_on(block_on(View::of(&store, row.id, Some(4))).unwrap().own()).unwrap();
        let told: Vec<_> = records.iter().skip(1).filter(|record| record.body_bytes().is_some()).collect();
        block_on(store.erase(told.iter().map(|record| record.reference()).collect())).unwrap();
    }
}

#[test]
fn an_erasure_that_is_killed_is_finished_or_not_begun() {
    let rounds = u64::from(rath_testkit::scaled(12));
    for round in 0..rounds {
        let (store, dir) = fresh();
        let sessions: Vec<_> = (0..6).map(|_| told(&store)).collect();
        drop(store);
        let path = dir.path().join("store");
        let mut eraser = child("erasing::eraser", &path);
        std::thread::sleep(Duration::from_millis(5 + (round * 37) % 180));
        eraser.kill().unwrap();
        eraser.wait().unwrap();
        let care = embedded(&dir);
        assert!(care.verify(None, &mut |_, _| {}).unwrap().is_sound());
        for doomed in care.unfinished().unwrap() {
            care.destroy(&care.quiet().unwrap(), &doomed, &mut |_| {}).unwrap();
        }
        let report = care.verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        // Each session is whole or has lost all four; what is left of the secret belongs to those that are whole.
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
