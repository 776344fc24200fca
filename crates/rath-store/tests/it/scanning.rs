//! Scanning the whole store.

use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Batch, BatchPart, Cursor, FIRST_FENCING_TOKEN, Scan};
use rath_core::{Actor, InMemory, Kind, RecordId, Session, Store, View};
use rath_store::{Embedded, ErasePlan};

use crate::support::fresh;

/// Adds `count` sessions with one segment each, in one commit.
fn with_segments(store: &Arc<dyn Store>, count: usize) {
    let mut batch = Batch::default();
    let elsewhere = InMemory::new();
    for _ in 0..count {
        let mut session = Session::create(&elsewhere, Actor::program("test"));
        block_on(session.publish()).unwrap();
        let records = block_on(async { View::of(&elsewhere, session.id(), None).await?.own_records().await }).unwrap();
        batch.parts.push(BatchPart {
            session: session.id(),
            fence: FIRST_FENCING_TOKEN,
            keep_lease: false,
            records,
            snapshot: None,
        });
    }
    block_on(store.commit(batch)).unwrap();
}

#[test]
fn a_page_considers_at_most_4096_segments() {
    let (store, _dir) = fresh();
    with_segments(&store, 5000);
    let mut last = Session::create(&store, Actor::program("test"));
    last.user("wanted").unwrap();
    block_on(last.publish()).unwrap();
    let (mut after, mut sizes) = (Cursor::start(), Vec::new());
    loop {
        let page = block_on(store.scan(Scan::store(after).kinds(&[Kind::User]))).unwrap();
        sizes.push(page.records.len());
        after = page.cursor;
        if !page.more {
            break;
        }
    }
    assert_eq!(sizes, [0, 1], "the first page has considered 4,096 segments without a wanted record");
}

#[test]
fn erasure_and_garbage_collection_keep_the_cursors_of_remaining_records() {
    let (store, dir) = fresh();
    let mut stays = Session::create(&store, Actor::program("test"));
    let mut goes = Session::create(&store, Actor::program("test"));
    for n in 0..4 {
        stays.user(format!("this stays {n}")).unwrap();
        block_on(stays.publish()).unwrap();
        goes.user(format!("this goes {n}")).unwrap();
        block_on(goes.publish()).unwrap();
    }
    let (id, head) = (goes.id(), goes.head());
    drop(goes);
    let all = || {
        let page = block_on(store.scan(Scan::all())).unwrap();
        let at: Vec<(RecordId, Cursor)> = page.records.iter().map(|record| record.id()).zip(page.cursors).collect();
        (at, page.records.into_iter().filter(|record| record.session() == id).collect::<Vec<_>>())
    };
    let (before, going) = all();
    let care = Embedded::open_as(dir.path().join("store"), "test").unwrap();
    let plan = ErasePlan { sessions: vec![head], ..ErasePlan::new() };
    let quiet = care.lock_for_erase().unwrap();
    // The number of the newest segment would be reused.
    let refused = care.destroy(&quiet, &plan, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("record the erasure first"), "{refused}");
    assert_eq!(all().0, before);
    stays.note("as a record of the erasure").unwrap();
    block_on(stays.publish()).unwrap();
    let before = all().0;
    care.destroy(&quiet, &plan, &mut |_| {}).unwrap();
    drop(quiet);
    care.collect(false, &mut |_| {}).unwrap();
    let stayed = before.iter().filter(|(record, _)| going.iter().all(|gone| gone.id() != *record));
    assert_eq!(all().0, stayed.cloned().collect::<Vec<_>>());
    // A cursor within the removed records continues after them.
    let rest = block_on(store.scan(Scan::store(before[3].1.clone()))).unwrap();
    assert_eq!(rest.records[0].id(), before[4].0);
}
