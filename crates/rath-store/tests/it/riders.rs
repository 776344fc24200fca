//! Little blobs ride in the database with the commit that brings them: they are read, checked, collected and erased like
//! those in packs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::Scan;
use rath_core::verify::What;
use rath_core::{Actor, Blob, Digest, Session, SessionId, Store};
use rath_store::Embedded;
use rath_testkit::power::Chance;
use rath_testkit::traces::find as finds;
use rusqlite::{Connection, params};

use crate::support::{fresh, noise, verify};

const SECRET: &str = "a wombat called Agathe";

fn blob(bytes: impl Into<Vec<u8>>) -> Blob {
    Blob::new(bytes.into(), "application/octet-stream")
}

/// A session with files in it, in one commit.
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

/// How many ride, and how many packs there are.
fn riders_and_packs(store: &Path) -> (i64, usize) {
    let riders = database(store).query_row("SELECT count(*) FROM riders", [], |row| row.get(0)).unwrap();
    (riders, fs::read_dir(store.join("packs")).map_or(0, Iterator::count))
}

fn get(store: &dyn Store, digest: Digest) -> Option<Vec<u8>> {
    block_on(store.blob_get(digest)).unwrap().map(|bytes| bytes.to_vec())
}

/// A store in which one little blob rides, and nobody is at work.
fn with_one() -> (PathBuf, Blob, tempfile::TempDir) {
    let (store, dir) = fresh();
    let one = blob(SECRET);
    shown(&store, std::slice::from_ref(&one));
    let path = dir.path().join("store");
    assert_eq!(riders_and_packs(&path), (1, 0));
    (path, one, dir)
}

#[test]
fn little_ones_ride_and_others_go_into_a_pack() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let little = [blob(SECRET), blob(""), blob(noise(8_000, 1)), blob(vec![b'x'; 100_000])];
    let session = shown(&store, &little);
    assert_eq!(riders_and_packs(&path), (4, 0));
    let large = blob(noise(12_000, 2));
    shown(&store, std::slice::from_ref(&large));
    assert_eq!(riders_and_packs(&path), (4, 1));
    // What comes without a record is not in a hurry.
    let alone = blob("alone");
    block_on(store.blob_put(vec![alone.clone()])).unwrap();
    assert_eq!(riders_and_packs(&path), (4, 1));
    // Not again where it is, and not all of a crowd.
    let crowd: Vec<Blob> = (0..20).map(|n| blob(noise(7_000, 10 + n))).collect();
    shown(&store, &[&little[..], &crowd].concat());
    let (riders, packs) = riders_and_packs(&path);
    assert!((4 + 8..4 + 12).contains(&riders) && packs == 1, "{riders}");
    let all = || little.iter().chain(&crowd).chain([&large, &alone]);
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
    assert!(report.is_sound() && report.blobs == 25, "{report:?}");
    assert_eq!(block_on(Embedded::open(&path).unwrap().scan(Scan::session(session, 0, 9))).unwrap().records.len(), 5);
}

#[test]
fn what_waits_for_a_commit_rides_with_it() {
    let (store, dir) = fresh();
    let soon = blob("a file that a call wrote");
    block_on(store.blob_put_soon(vec![soon.clone()])).unwrap();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user("Look.").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(riders_and_packs(&dir.path().join("store")), (1, 0));
    assert_eq!(get(&*store, soon.reference.digest).unwrap(), &*soon.bytes);
}

#[test]
fn who_is_not_named_gets_off() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let (named, unnamed) = (blob("named"), blob("named by nobody"));
    block_on(store.blob_put_soon(vec![unnamed.clone()])).unwrap();
    shown(&store, std::slice::from_ref(&named));
    drop(store);
    assert_eq!(riders_and_packs(&path), (2, 0));
    let here = Embedded::open_here(&path, "test").unwrap();
    assert_eq!(here.collect(true, &mut |_| {}).unwrap().dead, 1);
    assert_eq!(riders_and_packs(&path), (2, 0));
    let garbage = here.collect(false, &mut |_| {}).unwrap();
    assert_eq!((garbage.live, garbage.dead), (1, 1));
    assert_eq!(riders_and_packs(&path), (1, 0));
    assert_eq!(get(&here, unnamed.reference.digest), None);
    assert_eq!(get(&here, named.reference.digest).unwrap(), b"named");
    drop(here);
    assert!(verify(&path).is_sound());
}

#[test]
fn nothing_is_left_of_one_that_was_erased() {
    let (path, one, _dir) = with_one();
    assert!(!finds(&path, SECRET).is_empty());
    let store = Embedded::open(&path).unwrap();
    let session = block_on(store.sessions(rath_core::store::Query::default())).unwrap()[0].id;
    let records = block_on(store.scan(Scan::session(session, 0, 9))).unwrap().records;
    block_on(store.erase(vec![records[1].reference()])).unwrap();
    assert_eq!(get(&*store, one.reference.digest), None);
    assert_eq!(finds(&path, SECRET), Vec::<PathBuf>::new());
    drop(store);
    assert_eq!(riders_and_packs(&path), (0, 0));
    assert!(verify(&path).is_sound());
}

/// Somebody took away the trigger by which riders get off.
#[test]
fn nobody_stays_behind_where_the_trigger_is_missing() {
    for erased in [true, false] {
        let (path, one, _dir) = with_one();
        let db = database(&path);
        db.execute_batch("DROP TRIGGER riders_leave").unwrap();
        if !erased {
            db.execute("DELETE FROM blobs WHERE digest = ?1", [one.reference.digest.0]).unwrap();
        }
        drop(db);
        let store = Embedded::open_here(&path, "test").unwrap();
        match erased {
            true => {
                let session = block_on(store.sessions(rath_core::store::Query::default())).unwrap()[0].id;
                let records = block_on(store.scan(Scan::session(session, 0, 9))).unwrap().records;
                block_on(store.erase(vec![records[1].reference()])).unwrap();
            }
            false => drop(store.collect(false, &mut |_| {}).unwrap()),
        }
        drop(store);
        assert_eq!(riders_and_packs(&path), (0, 0));
        assert!(!erased || finds(&path, SECRET).is_empty());
    }
}

/// Where SQLite merges pages it leaves copies of rows that it does not overwrite when they are deleted later.
#[test]
fn nothing_is_left_of_those_that_were_moved_before_they_were_erased() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let mut chance = Chance::new(11);
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
    // Most of them go, as when they are collected.
    let db = database(&path);
    db.execute_batch("PRAGMA secure_delete = ON; BEGIN").unwrap();
    while told.len() > 800 {
        let (_, gone) = told.swap_remove(chance.below(told.len() as u64) as usize);
        db.execute("DELETE FROM blobs WHERE digest = ?1", [gone.0]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    drop(db);
    // Some of those that are left are erased, and not so many that all pages go.
    let (doomed, digests): (Vec<_>, Vec<_>) = told.drain(..300).unzip();
    block_on(Embedded::open_here(&path, "test").unwrap().erase(doomed)).unwrap();
    assert_eq!(riders_and_packs(&path), (500, 0));
    let bytes = fs::read(path.join("rath.db")).unwrap();
    let heads: HashSet<Digest> = bytes.windows(37).filter_map(head_of).collect();
    let left = digests.iter().filter(|digest| heads.contains(digest)).count();
    assert_eq!((left, heads.len()), (0, 500));
}

/// Whose entry begins here.
fn head_of(bytes: &[u8]) -> Option<Digest> {
    bytes.strip_prefix(b"blob").filter(|rest| rest[0] < 2).map(|rest| Digest(rest[1..].try_into().unwrap()))
}

#[test]
fn one_that_was_altered_is_found_and_not_given_out() {
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
        assert!(findings.len() == 1 && findings[0].what == What::BlobAltered, "{findings:?}");
    }
    // What is not even its head is somebody else, or nothing.
    for entry in [&altered[..10], &[]] {
        database(&path).execute("UPDATE riders SET entry = ?1", params![entry]).unwrap();
        assert_eq!(get(&*Embedded::open(&path).unwrap(), one.reference.digest), None);
        assert_eq!(verify(&path).findings[0].what, What::BlobMissing);
    }
}

#[test]
fn one_that_is_lost_is_missed_and_may_come_again() {
    let (path, one, _dir) = with_one();
    database(&path).execute("DELETE FROM riders", []).unwrap();
    let findings = verify(&path).findings;
    assert!(findings.len() == 1 && findings[0].what == What::BlobMissing, "{findings:?}");
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

/// After damage the number of one that is lost is given to another: neither harms the other.
#[test]
fn a_number_that_is_given_again_is_not_taken_for_the_one_that_had_it() {
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
    assert_eq!(riders_and_packs(&path), (2, 0));
}

/// What a refused commit brought is not there, and no file is left of it. What waits goes on waiting.
#[test]
fn nothing_stays_of_a_commit_that_is_refused() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user_with("Look.", [("a.bin", blob("before"))]).unwrap();
    block_on(session.publish()).unwrap();
    let other = Embedded::open_here(&path, "other").unwrap();
    assert!(block_on(other.take(session.id())).unwrap().is_some());
    let (waits, refused) = (blob("waits"), blob("refused"));
    block_on(store.blob_put_soon(vec![waits.clone()])).unwrap();
    session.user_with("Look.", [("a.bin", refused.clone())]).unwrap();
    assert!(block_on(session.publish()).is_err());
    assert_eq!(riders_and_packs(&path), (1, 0));
    assert_eq!(get(&*store, refused.reference.digest), None);
    assert_eq!(get(&*store, waits.reference.digest).unwrap(), b"waits");
    shown(&store, &[blob("after")]);
    assert_eq!(riders_and_packs(&path), (3, 0));
}
