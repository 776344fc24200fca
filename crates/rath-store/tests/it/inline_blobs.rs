//! Inline blobs: small blobs in the database, which are read, verified, collected and erased like those in packs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::Scan;
use rath_core::verify::FindingKind;
use rath_core::{Actor, Blob, Digest, Session, SessionId, Store};
use rath_store::Embedded;
use rath_testkit::power::SeededRng;
use rath_testkit::traces::find as finds;
use rusqlite::{Connection, params};

use crate::support::{fresh, noise, verify};

const SECRET: &str = "a wombat called Agathe";

fn blob(bytes: impl Into<Vec<u8>>) -> Blob {
    Blob::new(bytes.into(), "application/octet-stream")
}

/// Adds a session with attachments, in one commit.
fn shown(store: &Arc<dyn Store>, blobs: &[Blob]) -> SessionId {
    let mut session = Session::create(store, Actor::person("ada"));
    for blob in blobs {
        session.user_with("Look.", [("a.bin", blob.clone())]).unwrap();
    }
    block_on(session.publish()).unwrap();
    session.id()
}

fn database(store: &Path) -> Connection {
    Connection::open(store.join("rath.db")).unwrap()
}

/// The number of inline blobs and of packs.
fn inline_and_packs(store: &Path) -> (i64, usize) {
    let inline_blobs = database(store).query_row("SELECT count(*) FROM riders", [], |row| row.get(0)).unwrap();
    (inline_blobs, fs::read_dir(store.join("packs")).map_or(0, Iterator::count))
}

fn get(store: &dyn Store, digest: Digest) -> Option<Vec<u8>> {
    block_on(store.blob_get(digest)).unwrap().map(|bytes| bytes.to_vec())
}

/// A closed store with one inline blob.
fn with_one() -> (PathBuf, Blob, tempfile::TempDir) {
    let (store, dir) = fresh();
    let one = blob(SECRET);
    shown(&store, std::slice::from_ref(&one));
    let path = dir.path().join("store");
    assert_eq!(inline_and_packs(&path), (1, 0));
    (path, one, dir)
}

#[test]
fn small_blobs_are_inline_and_others_go_to_a_pack() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let small = [blob(SECRET), blob(""), blob(noise(8_000, 1)), blob(vec![b'x'; 100_000])];
    let session = shown(&store, &small);
    assert_eq!(inline_and_packs(&path), (4, 0));
    let large = blob(noise(12_000, 2));
    shown(&store, std::slice::from_ref(&large));
    assert_eq!(inline_and_packs(&path), (4, 1));
    // A blob without a record goes to the pack.
    let alone = blob("alone");
    block_on(store.blob_put(vec![alone.clone()])).unwrap();
    assert_eq!(inline_and_packs(&path), (4, 1));
    // Stored blobs are not stored again, and only some of many blobs are inline.
    let many: Vec<Blob> = (0..20).map(|n| blob(noise(7_000, 10 + n))).collect();
    shown(&store, &[&small[..], &many].concat());
    let (inline_blobs, packs) = inline_and_packs(&path);
    assert!((4 + 8..4 + 12).contains(&inline_blobs) && packs == 1, "{inline_blobs}");
    let all = || small.iter().chain(&many).chain([&large, &alone]);
    let check = |store: &dyn Store| {
        for blob in all() {
            assert!(block_on(store.blob_has(blob.reference.digest)).unwrap());
            assert_eq!(get(store, blob.reference.digest).unwrap(), &*blob.bytes);
        }
    };
    check(&*store);
    drop(store);
    check(&*Embedded::open(&path).unwrap());
    let report = verify(&path);
    assert!(report.is_valid() && report.blobs == 25, "{report:?}");
    assert_eq!(block_on(Embedded::open(&path).unwrap().scan(Scan::session(session, 0, 9))).unwrap().records.len(), 5);
}

#[test]
fn deferred_blobs_become_inline_blobs_with_the_next_commit() {
    let (store, dir) = fresh();
    let deferred = blob("a file that a call wrote");
    block_on(store.blob_put_soon(vec![deferred.clone()])).unwrap();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user("Look.").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(inline_and_packs(&dir.path().join("store")), (1, 0));
    assert_eq!(get(&*store, deferred.reference.digest).unwrap(), &*deferred.bytes);
}

#[test]
fn unreferenced_inline_blobs_are_collected() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let (named, unnamed) = (blob("named"), blob("not referenced"));
    block_on(store.blob_put_soon(vec![unnamed.clone()])).unwrap();
    shown(&store, std::slice::from_ref(&named));
    drop(store);
    assert_eq!(inline_and_packs(&path), (2, 0));
    let here = Embedded::open_as(&path, "test").unwrap();
    assert_eq!(here.collect(true, &mut |_| {}).unwrap().dead, 1);
    assert_eq!(inline_and_packs(&path), (2, 0));
    let garbage = here.collect(false, &mut |_| {}).unwrap();
    assert_eq!((garbage.live, garbage.dead), (1, 1));
    assert_eq!(inline_and_packs(&path), (1, 0));
    assert_eq!(get(&here, unnamed.reference.digest), None);
    assert_eq!(get(&here, named.reference.digest).unwrap(), b"named");
    drop(here);
    assert!(verify(&path).is_valid());
}

#[test]
fn an_erased_inline_blob_leaves_no_bytes() {
    let (path, one, _dir) = with_one();
    assert!(!finds(&path, SECRET).is_empty());
    let store = Embedded::open(&path).unwrap();
    let session = block_on(store.sessions(rath_core::store::Query::default())).unwrap()[0].id;
    let records = block_on(store.scan(Scan::session(session, 0, 9))).unwrap().records;
    block_on(store.erase(vec![records[1].reference()])).unwrap();
    assert_eq!(get(&*store, one.reference.digest), None);
    assert_eq!(finds(&path, SECRET), Vec::<PathBuf>::new());
    drop(store);
    assert_eq!(inline_and_packs(&path), (0, 0));
    assert!(verify(&path).is_valid());
}

/// Without the trigger, inline blobs are not deleted with their row in `blobs`.
#[test]
fn inline_blobs_are_removed_although_the_trigger_is_missing() {
    for erased in [true, false] {
        let (path, one, _dir) = with_one();
        let db = database(&path);
        db.execute_batch("DROP TRIGGER riders_leave").unwrap();
        if !erased {
            db.execute("DELETE FROM blobs WHERE digest = ?1", [one.reference.digest.0]).unwrap();
        }
        drop(db);
        let store = Embedded::open_as(&path, "test").unwrap();
        match erased {
            true => {
                let session = block_on(store.sessions(rath_core::store::Query::default())).unwrap()[0].id;
                let records = block_on(store.scan(Scan::session(session, 0, 9))).unwrap().records;
                block_on(store.erase(vec![records[1].reference()])).unwrap();
            }
            false => drop(store.collect(false, &mut |_| {}).unwrap()),
        }
        drop(store);
        assert_eq!(inline_and_packs(&path), (0, 0));
        assert!(!erased || finds(&path, SECRET).is_empty());
    }
}

/// When SQLite merges pages, it leaves copies of rows, which are not overwritten when the rows are deleted later.
#[test]
fn inline_blobs_that_were_moved_before_the_erasure_leave_no_bytes() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let mut chance = SeededRng::new(11);
    let mut told = Vec::new();
    let mut session = Session::create(&store, Actor::person("ada"));
    for n in 0..3_000 {
        let blob = blob(noise(20 + chance.below(600) as usize, 1_000 + n));
        session.user_with("Look.", [("a.bin", blob.clone())]).unwrap();
        told.push((session.head(), blob.reference.digest));
        if n % 60 == 59 {
            block_on(session.publish()).unwrap();
        }
    }
    drop((session, store));
    // Delete most of them, like a collection.
    let db = database(&path);
    db.execute_batch("PRAGMA secure_delete = ON; BEGIN").unwrap();
    while told.len() > 800 {
        let (_, gone) = told.swap_remove(chance.below(told.len() as u64) as usize);
        db.execute("DELETE FROM blobs WHERE digest = ?1", [gone.0]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    drop(db);
    // Erase some of the rest, but not so many that all pages become free.
    let (plan, digests): (Vec<_>, Vec<_>) = told.drain(..300).unzip();
    block_on(Embedded::open_as(&path, "test").unwrap().erase(plan)).unwrap();
    assert_eq!(inline_and_packs(&path), (500, 0));
    let bytes = fs::read(path.join("rath.db")).unwrap();
    let heads: HashSet<Digest> = bytes.windows(37).filter_map(head_of).collect();
    let left = digests.iter().filter(|digest| heads.contains(digest)).count();
    assert_eq!((left, heads.len()), (0, 500));
}

/// The digest of the entry at the start of `bytes`, if there is one.
fn head_of(bytes: &[u8]) -> Option<Digest> {
    bytes.strip_prefix(b"blob").filter(|rest| rest[0] < 2).map(|rest| Digest(rest[1..].try_into().unwrap()))
}

#[test]
fn an_altered_inline_blob_is_reported_and_not_returned() {
    let (path, one, _dir) = with_one();
    let altered: Vec<u8> = database(&path).query_row("SELECT entry FROM riders", [], |row| row.get(0)).unwrap();
    let cases: [(Vec<u8>, &str); 2] = [
        (altered.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 60)).collect(), "do not hash to its digest"),
        (altered[..altered.len() - 1].to_vec(), "the entry in the database is damaged"),
    ];
    for (entry, why) in cases {
        database(&path).execute("UPDATE riders SET entry = ?1", params![entry]).unwrap();
        let store = Embedded::open(&path).unwrap();
        let error = block_on(store.blob_get(one.reference.digest)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let findings = verify(&path).findings;
        assert!(findings.len() == 1 && findings[0].what == FindingKind::BlobAltered, "{findings:?}");
    }
    // An entry without this digest counts as missing.
    for entry in [&altered[..10], &[]] {
        database(&path).execute("UPDATE riders SET entry = ?1", params![entry]).unwrap();
        assert_eq!(get(&*Embedded::open(&path).unwrap(), one.reference.digest), None);
        assert_eq!(verify(&path).findings[0].what, FindingKind::BlobMissing);
    }
}

#[test]
fn a_lost_inline_blob_is_reported_and_can_be_stored_again() {
    let (path, one, _dir) = with_one();
    database(&path).execute("DELETE FROM riders", []).unwrap();
    let findings = verify(&path).findings;
    assert!(findings.len() == 1 && findings[0].what == FindingKind::BlobMissing, "{findings:?}");
    let store = Embedded::open(&path).unwrap();
    assert!(!block_on(store.blob_has(one.reference.digest)).unwrap());
    assert_eq!(get(&*store, one.reference.digest), None);
    for again in [true, false] {
        match again {
            true => drop(shown(&store, std::slice::from_ref(&one))),
            false => block_on(store.blob_put(vec![one.clone()])).unwrap(),
        }
        assert_eq!(get(&*store, one.reference.digest).unwrap(), SECRET.as_bytes());
        database(&path).execute("DELETE FROM riders", []).unwrap();
    }
}

/// After damage, the row number of a lost blob is reused for another one.
#[test]
fn a_reused_row_number_does_not_confuse_two_blobs() {
    let (path, one, _dir) = with_one();
    database(&path).execute("DELETE FROM riders", []).unwrap();
    let store = Embedded::open(&path).unwrap();
    let other = blob("another");
    shown(&store, std::slice::from_ref(&other));
    assert_eq!(get(&*store, one.reference.digest), None);
    drop(store);
    database(&path).execute("DELETE FROM blobs WHERE digest = ?1", [one.reference.digest.0]).unwrap();
    let store = Embedded::open(&path).unwrap();
    assert_eq!(get(&*store, other.reference.digest).unwrap(), b"another");
    shown(&store, std::slice::from_ref(&one));
    assert_eq!(get(&*store, one.reference.digest).unwrap(), SECRET.as_bytes());
    assert_eq!(inline_and_packs(&path), (2, 0));
}

/// The blobs of a rejected commit are not stored. Deferred blobs stay in the queue.
#[test]
fn a_rejected_commit_stores_no_blobs() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user_with("Look.", [("a.bin", blob("before"))]).unwrap();
    block_on(session.publish()).unwrap();
    let other = Embedded::open_as(&path, "other").unwrap();
    assert!(block_on(other.revoke_lease(session.id())).unwrap().is_some());
    let (waits, refused) = (blob("waits"), blob("refused"));
    block_on(store.blob_put_soon(vec![waits.clone()])).unwrap();
    session.user_with("Look.", [("a.bin", refused.clone())]).unwrap();
    assert!(block_on(session.publish()).is_err());
    assert_eq!(inline_and_packs(&path), (1, 0));
    assert_eq!(get(&*store, refused.reference.digest), None);
    assert_eq!(get(&*store, waits.reference.digest).unwrap(), b"waits");
    shown(&store, &[blob("after")]);
    assert_eq!(inline_and_packs(&path), (3, 0));
}
