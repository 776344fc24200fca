//! Stores of older formats are brought to the current one when they are first written to, and the old database is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use rath_core::store::Query;
use rath_core::{Actor, Session, Store};
use rath_store::{Embedded, FORMAT, Raised};
use rusqlite::Connection;
use serde_json::Value;

use crate::corpus::{corpus, describe};
use crate::support::{child, child_dir, verify};
use rath_testkit::copy_dir;

/// The stores of the corpus with an older format, by format.
fn older() -> Vec<(i64, PathBuf)> {
    let dirs =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).filter(|dir| dir.join("store").is_dir());
    let mut stores: Vec<_> = dirs.map(|dir| (format(&dir.join("store")), dir)).filter(|(of, _)| *of < FORMAT).collect();
    stores.sort();
    assert!(stores.len() >= 2, "the corpus has lost its older stores");
    stores
}

/// The format, read without anything being changed.
fn format(store: &Path) -> i64 {
    let bytes = fs::read(store.join("rath.db")).unwrap();
    i64::from(u32::from_be_bytes(bytes[60..64].try_into().unwrap()))
}

fn health_format(store: &Path) -> i64 {
    Embedded::open_here(store, "test").unwrap().health().unwrap().format
}

fn write(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::program("test"));
    session.note("a word in the current format")?;
    block_on(session.publish())
}

/// Opens the store for one that listens.
fn opened(path: &Path) -> (Arc<dyn Store>, Arc<Mutex<Vec<Raised>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let store =
        Embedded::open_here(path, "test").unwrap().telling(move |raised| hears.lock().unwrap().push(raised.clone()));
    (Arc::new(store), told)
}

/// A store with the backup in place of the database.
fn gone_back(store: &Path, backup: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(backup, dir.path().join("rath.db")).unwrap();
    if store.join("packs").exists() {
        copy_dir(&store.join("packs"), &dir.path().join("packs"));
    }
    dir
}

fn unfinished(store: &Path) -> usize {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".new")).count()
}

#[test]
fn every_older_store_is_raised_once_and_its_old_database_is_kept() {
    for (from, dir) in older() {
        let expected: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&dir.join("store"), copy.path());
        let (store, told) = opened(copy.path());
        block_on(store.sessions(Query::default())).unwrap();
        assert!(told.lock().unwrap().is_empty(), "reading changes nothing");
        write(&store).unwrap();
        write(&store).unwrap();
        let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
        assert_eq!(*told.lock().unwrap(), [Raised { from, to: FORMAT, backup: backup.clone() }]);
        drop(store);
        assert!(verify(copy.path()).is_sound());
        let health = Embedded::open_here(copy.path(), "test").unwrap().health().unwrap();
        assert_eq!(health.format, FORMAT);
        assert_eq!((health.backups[0].format, &health.backups[0].path), (from, &backup));
        // Who goes back has the store that there was, as an older version opens it.
        let old = gone_back(copy.path(), &backup);
        assert_eq!(health_format(old.path()), from);
        assert!(verify(old.path()).is_sound());
        assert_eq!(describe(old.path()), expected);
        let journal: String = Connection::open(old.path().join("rath.db"))
            .unwrap()
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .unwrap();
        assert_eq!(journal, "wal");
        // And it can be raised again.
        let (store, told) = opened(old.path());
        write(&store).unwrap();
        assert_eq!(told.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_current_store_has_no_backup() {
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&corpus().join("format-5").join("store"), copy.path());
    let (store, told) = opened(copy.path());
    write(&store).unwrap();
    assert!(told.lock().unwrap().is_empty());
    assert!(Embedded::open_here(copy.path(), "test").unwrap().health().unwrap().backups.is_empty());
}

#[test]
fn without_a_backup_nothing_is_raised() {
    for (from, dir) in older() {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&dir.join("store"), copy.path());
        let in_the_way = copy.path().join(format!("rath.db.format-{from}.backup"));
        fs::create_dir_all(in_the_way.join("full")).unwrap();
        let store = Embedded::open(copy.path()).unwrap();
        let error = write(&store).unwrap_err();
        assert!(error.to_string().contains("The store is as it was"), "{error}");
        drop(store);
        assert_eq!((health_format(copy.path()), unfinished(copy.path())), (from, 0));
        assert!(verify(copy.path()).is_sound());
        fs::remove_dir_all(in_the_way).unwrap();
        write(&Embedded::open(copy.path()).unwrap()).unwrap();
        assert_eq!(health_format(copy.path()), FORMAT);
    }
}

/// Writes one record and says so.
#[test]
fn raiser() {
    let Some(dir) = child_dir() else { return };
    match write(&Embedded::open(dir).unwrap()) {
        Ok(()) => println!("\nraised"),
        Err(error) => println!("\nfailed: {error}"),
    }
}

#[test]
fn a_disk_without_room_for_the_backup_leaves_the_store_as_it_was() {
    let (from, dir) = older().pop().unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), copy.path());
    // No file may grow beyond 40 kB: the log fits, the copy does not.
    let script = "trap '' XFSZ; ulimit -f 80; exec \"$0\" --exact raising::raiser --nocapture --test-threads=1";
    let mut run = Command::new("sh");
    run.args(["-c", script]).arg(std::env::current_exe().unwrap()).env("RATH_TEST_CHILD", copy.path());
    let out = run.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("keeping a copy of the database of format") && said.contains("make room for"), "{said}");
    assert_eq!((health_format(copy.path()), unfinished(copy.path())), (from, 0));
    assert!(Embedded::open_here(copy.path(), "test").unwrap().health().unwrap().backups.is_empty());
    assert!(verify(copy.path()).is_sound());
}

#[test]
fn of_four_processes_that_raise_a_store_one_does() {
    let (from, dir) = older().remove(0);
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), copy.path());
    let before = block_on(Embedded::open(copy.path()).unwrap().sessions(Query::default())).unwrap().len();
    let raisers: Vec<_> = (0..4).map(|_| child("raising::raiser", copy.path())).collect();
    for raiser in raisers {
        let out = raiser.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&out.stdout).contains("\nraised"), "{out:?}");
    }
    assert_eq!(verify(copy.path()).sessions, before as u64 + 4);
    let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
    let old = gone_back(copy.path(), &backup);
    let kept = block_on(Embedded::open(old.path()).unwrap().sessions(Query::default())).unwrap().len();
    assert_eq!((health_format(old.path()), kept), (from, before), "no writer came before the backup");
}

#[test]
fn who_is_killed_leaves_the_old_store_or_the_new_one() {
    let rounds = u64::from(rath_testkit::scaled(24));
    let (from, dir) = older().pop().unwrap();
    let expected: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
    // Larger, so that the copy takes a while.
    let large = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), large.path());
    let pad = "CREATE TABLE padding AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
        SELECT i, randomblob(4000) FROM n; PRAGMA wal_checkpoint(TRUNCATE);";
    Connection::open(large.path().join("rath.db")).unwrap().execute_batch(pad).unwrap();
    let (mut old, mut new) = (0, 0);
    for round in 0..rounds {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(large.path(), copy.path());
        let mut raiser = child("raising::raiser", copy.path());
        std::thread::sleep(Duration::from_millis(2 + round * 7 % 80));
        raiser.kill().unwrap();
        raiser.wait().unwrap();
        let now = health_format(copy.path());
        assert!([from, FORMAT].contains(&now), "{now}");
        let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
        match now == FORMAT {
            true => {
                new += 1;
                assert_eq!(describe(gone_back(copy.path(), &backup).path()), expected);
            }
            false => {
                old += 1;
                assert_eq!(describe(copy.path()), expected);
            }
        }
        // Whoever comes next ends it, and sweeps up.
        write(&Embedded::open(copy.path()).unwrap()).unwrap();
        assert_eq!((health_format(copy.path()), unfinished(copy.path())), (FORMAT, 0));
        assert!(backup.is_file());
    }
    eprintln!("{rounds} rounds: {old} left the old store, {new} the new one");
}
