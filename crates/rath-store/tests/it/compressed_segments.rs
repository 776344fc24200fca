//! Compressed segments: reading, erasing in them, and detecting alterations.

use std::path::Path;
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Lookup, Scan};
use rath_core::{Point, Record, SessionId, Store, View};
use rath_store::{Embedded, SearchQuery, segment};
use rusqlite::{Connection, params};

use crate::support::{fresh, long_session, verify};

/// The first bytes of a zstd frame.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn all(store: &Arc<dyn Store>, session: SessionId) -> Vec<Record> {
    block_on(store.scan(Scan::session(session, 0, 10_000))).unwrap().records
}

/// The stored segments with their numbers.
fn rows(store: &Path) -> Vec<(i64, Vec<u8>)> {
    let db = Connection::open(store.join("rath.db")).unwrap();
    let mut query = db.prepare("SELECT cursor, data FROM segments ORDER BY cursor").unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Overwrites a stored segment.
fn put(store: &Path, cursor: i64, data: &[u8]) {
    let db = Connection::open(store.join("rath.db")).unwrap();
    assert_eq!(db.execute("UPDATE segments SET data = ?2 WHERE cursor = ?1", params![cursor, data]).unwrap(), 1);
}

#[test]
fn a_long_publish_is_compressed_and_reads_the_same() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let id = long_session(&store);
    let stored: Vec<_> = rows(&path).into_iter().map(|(_, data)| data).collect();
    assert!(stored.iter().all(|data| data.starts_with(&FRAME)), "every segment is compressed");
    let (room, size) = (stored.iter().map(Vec::len).sum::<usize>(), all(&store, id).iter().map(Record::size).sum());
    assert!(room * 3 < size, "{room} bytes for {size}");
    let texts = |records: &[Record]| records.iter().map(|record| record.body_bytes().unwrap().to_vec()).collect();
    let before: Vec<Vec<u8>> = texts(&all(&store, id));
    assert_eq!(before.len(), 401);
    assert!(String::from_utf8_lossy(&before[321]).contains("Line 320 of a long story"));
    // By position, by id, by words, and after the store is opened again.
    let one = block_on(store.get(Lookup::At(Point { session: id, seq: 200 }))).unwrap();
    assert_eq!(one[0].seq(), 200);
    assert_eq!(block_on(store.get(Lookup::Id(one[0].id()))).unwrap()[0].point(), one[0].point());
    let embedded = Embedded::open_as(&path, "test").unwrap();
    let found = embedded.search(&SearchQuery::new("320".parse().unwrap())).unwrap();
    assert_eq!(found.hits.iter().map(|hit| hit.record.seq()).collect::<Vec<_>>(), [321]);
    drop((store, embedded));
    assert!(verify(&path).is_valid());
    assert_eq!(texts(&all(&Embedded::open(&path).unwrap(), id)), before);
}

#[test]
fn a_short_publish_is_not_compressed() {
    let (store, dir) = fresh();
    let mut session = rath_core::Session::create(&store, rath_core::Actor::person("ada"));
    for n in 0..30 {
        session.user(format!("Turn {n}: {}", "some words ".repeat(100))).unwrap();
        block_on(session.publish()).unwrap();
    }
    assert!(rows(&dir.path().join("store")).iter().all(|(_, data)| !data.starts_with(&FRAME)));
}

#[test]
fn a_body_in_a_compressed_segment_can_be_erased() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let id = long_session(&store);
    let plan = all(&store, id)[100].reference();
    let before: Vec<_> = rows(&path).into_iter().map(|(_, data)| data).collect();
    block_on(store.erase(vec![plan])).unwrap();
    let records = all(&store, id);
    assert_eq!(records.len(), 401);
    assert!(records.iter().all(|record| record.body_bytes().is_none() == (record.seq() == 100)));
    drop(store);
    assert!(verify(&path).is_valid());
    let now: Vec<_> = rows(&path).into_iter().map(|(_, data)| data).collect();
    let (old, new): (Vec<_>, Vec<_>) = before.iter().zip(&now).filter(|(old, new)| old != new).unzip();
    let ([old], [new]) = (&old[..], &new[..]) else { panic!("not exactly one segment was rewritten") };
    assert!(new.starts_with(&FRAME));
    let says = |data: &[u8]| memchr::memmem::find(&segment::decompress(data), b"Line 99 of a long story").is_some();
    assert!(says(old) && !says(new));
    // Nothing is left of the old frame either.
    let only_old = old.chunks_exact(32).filter(|part| memchr::memmem::find(new, part).is_none());
    let only_old: Vec<_> = only_old.collect();
    assert!(only_old.len() > 100, "the frames differ from the erased body on");
    for file in ["rath.db", "rath.db-wal"] {
        let bytes = std::fs::read(path.join(file)).unwrap_or_default();
        assert!(only_old.iter().all(|part| memchr::memmem::find(&bytes, part).is_none()), "{file} has a part of it");
    }
}

#[test]
fn an_altered_frame_is_reported() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let id = long_session(&store);
    drop(store);
    let (cursor, frame) = rows(&path).swap_remove(0);
    let flipped = |at: usize| {
        let mut frame = frame.clone();
        frame[at] ^= 0x10;
        frame
    };
    let mut claims_more = frame.clone();
    // The content size in the frame's header: four bytes after the descriptor.
    assert_eq!(frame[4] >> 6, 2, "the content size has four bytes");
    claims_more[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
    let followed = [&frame[..], &[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0], b"???"].concat();
    let halves = [frame[..frame.len() / 2].to_vec(), frame[..4].to_vec(), Vec::new()];
    // Some bits of a frame have no meaning. Only the decompressed bytes are authenticated.
    let means_another = |altered: &Vec<u8>| segment::decompress(altered) != segment::decompress(&frame);
    let flips: Vec<_> = (0..frame.len()).step_by(frame.len() / 40).map(flipped).filter(means_another).collect();
    assert!(flips.len() > 35);
    for altered in flips.into_iter().chain(halves).chain([claims_more, followed]) {
        put(&path, cursor, &altered);
        let report = verify(&path);
        let finding = report.findings.first().expect("a finding");
        assert_eq!(finding.session, Some(id), "{finding:?}");
        let store = Embedded::open(&path).unwrap();
        let read = block_on(async { View::of(&store, id, None).await?.own_records().await });
        assert!(read.is_err(), "altered records were returned: {finding:?}");
    }
    put(&path, cursor, &frame);
    assert!(verify(&path).is_valid());
}
