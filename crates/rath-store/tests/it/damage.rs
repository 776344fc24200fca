//! Truncated and overwritten files: the damage must be reported, and no wrong data may be read.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Scan, SessionFilter};
use rath_core::{Digest, RecordId, Store, blob_references};
use rath_store::Embedded;
use rath_testkit::power::SeededRng;
use tempfile::TempDir;

use crate::support::{fresh, sample_sessions, verify};
use rath_testkit::copy_dir;

use crate::tamper::all_ids;

/// The error codes that a damaged store may return.
const CODES: &[&str] = &["store-damaged", "tampered", "machine"];

/// A store with the sample sessions, without a WAL.
fn intact() -> (TempDir, PathBuf) {
    let (store, dir) = fresh();
    sample_sessions(&store);
    drop(store);
    let path = dir.path().join("store");
    Embedded::open_as(&path, "test").unwrap().checkpoint().unwrap();
    (dir, path)
}

/// Replaces the database and removes its WAL.
fn put_database(path: &Path, bytes: &[u8]) {
    for leftover in ["rath.db-wal", "rath.db-shm"] {
        let _ = fs::remove_file(path.join(leftover));
    }
    fs::write(path.join("rath.db"), bytes).unwrap();
}

/// Whether a store verifies without findings. Its errors must be among [`CODES`].
fn is_valid(path: &Path, what: &str) -> bool {
    let report = Embedded::open_as(path, "test").and_then(|store| store.verify(None, &mut |_, _| {}));
    match report {
        Ok(report) => report.is_valid(),
        Err(error) => {
            assert!(CODES.contains(&error.code()), "{what}: {error}");
            false
        }
    }
}

#[test]
fn a_truncated_database_is_reported() {
    let (_dir, path) = intact();
    let bytes = fs::read(path.join("rath.db")).unwrap();
    let mut chance = SeededRng::new(1);
    let somewhere = std::iter::from_fn(|| Some(chance.below(bytes.len() as u64) as usize)).take(40);
    for keep in [0, 1, 50, 100, 512, 4096, 8192, bytes.len() - 4096, bytes.len() - 1].into_iter().chain(somewhere) {
        put_database(&path, &bytes[..keep]);
        assert!(!is_valid(&path, &format!("cut to {keep}")), "cut to {keep} bytes, but valid");
        // Writing does not panic.
        if let Ok(store) = Embedded::open(&path)
            && let Some(row) = block_on(store.sessions(SessionFilter::All.into())).ok().and_then(|mut rows| rows.pop())
        {
            let _ = block_on(store.open(row.id, rath_core::Actor::program("test")));
        }
    }
}

#[test]
fn an_overwritten_page_is_reported() {
    let (_dir, path) = intact();
    let clean = fs::read(path.join("rath.db")).unwrap();
    let ids = all_ids(&path).unwrap();
    let mut chance = SeededRng::new(2);
    let mut found = 0;
    let pages = clean.len() / 4096;
    for page in 0..pages {
        let mut bytes = clean.clone();
        let zeros = chance.percent(50);
        bytes[page * 4096..(page + 1) * 4096].fill_with(|| if zeros { 0 } else { chance.next_number() as u8 });
        put_database(&path, &bytes);
        match is_valid(&path, &format!("page {page}")) {
            // An unused page.
            true => assert_eq!(all_ids(&path).as_ref(), Some(&ids), "page {page}"),
            false => found += 1,
        }
    }
    assert!(found * 2 > pages, "only {found} of {pages} overwritten pages were reported");
}

/// Removes all rows of a table that is a single leaf page, by setting the number of cells in the page header to 0.
fn lose_rows(path: &Path, table: &str) {
    let db = rusqlite::Connection::open(path.join("rath.db")).unwrap();
    let query = "SELECT rootpage FROM sqlite_master WHERE name = ?1";
    let page: u64 = db.query_row(query, [table], |row| Ok(row.get::<_, i64>(0)? as u64)).unwrap();
    drop(db);
    let mut bytes = fs::read(path.join("rath.db")).unwrap();
    let at = (page as usize - 1) * 4096;
    assert!(matches!(bytes[at], 10 | 13), "{table} is more than a leaf");
    bytes[at + 3..at + 5].fill(0);
    put_database(path, &bytes);
}

/// A store so small that each table is one page.
fn with_contents() -> (TempDir, PathBuf) {
    let (store, dir) = fresh();
    for seed in 0..3 {
        let mut session = rath_core::Session::create(&store, rath_core::Actor::person("ada"));
        session.user("What is in the file?").unwrap();
        session.tool_result("c1", crate::support::noise(60_000, seed)).unwrap();
        block_on(session.publish()).unwrap();
    }
    drop(store);
    let path = dir.path().join("store");
    Embedded::open_as(&path, "test").unwrap().checkpoint().unwrap();
    (dir, path)
}

fn packed(path: &Path) -> u64 {
    fs::read_dir(path.join("packs")).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn nothing_is_removed_if_rows_are_missing() {
    for table in ["sessions", "segments", "packs"] {
        let (_dir, path) = with_contents();
        let (before, row) = {
            let store = Embedded::open(&path).unwrap();
            (packed(&path), block_on(store.sessions(SessionFilter::All.into())).unwrap().remove(0))
        };
        lose_rows(&path, table);
        let store = Embedded::open_as(&path, "test").unwrap();
        for dry in [true, false] {
            let error = store.collect(dry, &mut |_| {}).unwrap_err();
            assert_eq!(error.code(), "store-damaged", "{table}: {error}");
        }
        let plan = rath_store::ErasePlan { sessions: vec![row.head_reference()], ..rath_store::ErasePlan::new() };
        assert_eq!(store.erase_dry_run(&plan, &mut |_| {}).unwrap_err().code(), "store-damaged", "{table}");
        let lock = store.lock_for_erase().unwrap();
        assert_eq!(store.destroy(&lock, &plan, &mut |_| {}).unwrap_err().code(), "store-damaged", "{table}");
        assert!(store.unfinished().unwrap().is_empty(), "{table}: an erasure was started");
        assert_eq!(packed(&path), before, "{table}");
        assert!(!store.health().unwrap().damage.is_empty(), "{table}");
    }
}

#[test]
fn a_session_table_that_lost_its_rows_is_an_error() {
    let (_dir, path) = with_contents();
    lose_rows(&path, "sessions");
    let store = Embedded::open(&path).unwrap();
    assert_eq!(block_on(store.sessions(SessionFilter::All.into())).unwrap_err().code(), "store-damaged");
    assert_eq!(block_on(store.scan(Scan::all())).unwrap_err().code(), "store-damaged");
    let mut session = rath_core::Session::create(&store, rath_core::Actor::person("ada"));
    session.user("Is anybody here?").unwrap();
    assert_eq!(block_on(session.publish()).unwrap_err().code(), "store-damaged");
}

#[test]
fn a_search_with_lost_rows_ends_with_an_error() {
    let (_dir, path) = with_contents();
    lose_rows(&path, "sessions");
    let store = Embedded::open_as(&path, "test").unwrap();
    let question = rath_store::SearchQuery::new("file".parse().unwrap());
    assert_eq!(store.search(&question).unwrap_err().code(), "store-damaged");
    assert_eq!(store.reindex(&mut |_| {}).unwrap_err().code(), "store-damaged");
    // The health report compares the new index with the records.
    let health = store.health().unwrap();
    assert!(health.damage.iter().any(|line| line.contains("not in the table of sessions")), "{:?}", health.damage);
}

/// The blobs that records refer to.
fn blobs(store: &Arc<dyn Store>) -> Vec<Digest> {
    let page = block_on(store.scan(Scan::all().limit(100_000))).unwrap();
    let bodies = page.records.iter().filter_map(rath_core::Record::body_bytes);
    bodies.flat_map(blob_references).map(|blob| blob.digest).collect()
}

#[test]
fn a_truncated_or_overwritten_pack_is_reported() {
    let (_dir, path) = intact();
    let pack = fs::read_dir(path.join("packs")).unwrap().next().unwrap().unwrap().path();
    let clean = fs::read(&pack).unwrap();
    let store = Embedded::open(&path).unwrap();
    let named = blobs(&store);
    let read = |digest: &Digest| block_on(store.blob_get(*digest));
    let contents: HashMap<Digest, Arc<[u8]>> =
        named.iter().map(|digest| (*digest, read(digest).unwrap().unwrap())).collect();
    assert!(!contents.is_empty());
    let mut chance = SeededRng::new(3);
    for round in 0..60 {
        let at = match round {
            0 => 0,
            _ => chance.below(clean.len() as u64) as usize,
        };
        let mut bytes = clean.clone();
        match round % 2 {
            0 => bytes.truncate(at),
            _ => {
                let end = (at + 512).min(bytes.len());
                bytes[at..end].fill_with(|| chance.next_number() as u8);
            }
        }
        fs::write(&pack, &bytes).unwrap();
        assert!(!is_valid(&path, &format!("round {round}")), "round {round}: byte {at}, but valid");
        for (digest, content) in &contents {
            match read(digest) {
                Ok(found) => assert_eq!(found.as_ref(), Some(content), "round {round}"),
                Err(error) => assert!(CODES.contains(&error.code()), "round {round}: {error}"),
            }
        }
    }
    fs::write(&pack, &clean).unwrap();
    assert!(verify(&path).is_valid());
}

/// SQLite ignores a WAL from the first damaged frame on, so the store is valid but shorter. Only a signed checkpoint
/// shows that records at the end are missing.
#[test]
fn a_truncated_or_overwritten_wal_leaves_a_valid_store() {
    let (store, dir) = fresh();
    sample_sessions(&store);
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    copy_dir(&path, &copy);
    let log = fs::read(copy.join("rath.db-wal")).unwrap();
    assert!(log.len() > 100_000, "only {} bytes of log", log.len());
    let ids: Vec<RecordId> = all_ids(&path).unwrap();
    let mut chance = SeededRng::new(4);
    let mut shorter = 0;
    for round in 0..40 {
        let at = chance.below(log.len() as u64) as usize;
        let mut bytes = log.clone();
        match round % 2 {
            0 => bytes.truncate(at),
            _ => {
                let end = (at + 512).min(bytes.len());
                bytes[at..end].fill_with(|| chance.next_number() as u8);
            }
        }
        let damaged_store = tempfile::tempdir_in(dir.path()).unwrap();
        copy_dir(&copy, damaged_store.path());
        let _ = fs::remove_file(damaged_store.path().join("rath.db-shm"));
        fs::write(damaged_store.path().join("rath.db-wal"), bytes).unwrap();
        assert!(is_valid(damaged_store.path(), &format!("round {round}")), "round {round}: byte {at}");
        let left = all_ids(damaged_store.path()).unwrap();
        assert!(ids.starts_with(&left), "round {round}: byte {at}");
        shorter += usize::from(left.len() < ids.len());
    }
    assert!(shorter > 10, "only {shorter} logs had something to lose");
}

/// After a checkpoint, a WAL that was damaged later makes SQLite read old pages together with new ones. That is
/// reported. The database without the WAL is complete.
#[test]
fn damage_to_a_checkpointed_wal_is_reported_and_the_wal_can_be_removed() {
    let (store, dir) = fresh();
    sample_sessions(&store);
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let other = rusqlite::Connection::open(path.join("rath.db")).unwrap();
    other.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    copy_dir(&path, &copy);
    let log = fs::read(copy.join("rath.db-wal")).unwrap();
    let ids: Vec<RecordId> = all_ids(&path).unwrap();
    let mut chance = SeededRng::new(5);
    let mut damaged = 0;
    for round in 0..40 {
        let at = chance.below(log.len() as u64) as usize;
        let mut bytes = log.clone();
        bytes[at] ^= 0x10;
        let damaged_store = tempfile::tempdir_in(dir.path()).unwrap();
        copy_dir(&copy, damaged_store.path());
        let _ = fs::remove_file(damaged_store.path().join("rath.db-shm"));
        fs::write(damaged_store.path().join("rath.db-wal"), bytes).unwrap();
        match is_valid(damaged_store.path(), &format!("round {round}")) {
            true => assert!(ids.starts_with(&all_ids(damaged_store.path()).unwrap()), "round {round}: byte {at}"),
            false => damaged += 1,
        }
        let without = tempfile::tempdir_in(dir.path()).unwrap();
        copy_dir(&copy, without.path());
        for log in ["rath.db-wal", "rath.db-shm"] {
            let _ = fs::remove_file(without.path().join(log));
        }
        assert!(is_valid(without.path(), "without its log"));
        assert_eq!(all_ids(without.path()).unwrap(), ids);
    }
    assert!(damaged > 0, "no log did any harm");
}
