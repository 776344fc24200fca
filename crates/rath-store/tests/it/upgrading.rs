//! The first write upgrades a store of an older format and keeps a backup of the old database.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use rath_core::store::Query;
use rath_core::{Actor, Session, Store};
use rath_store::{Embedded, FORMAT, FormatUpgrade};
use rusqlite::Connection;
use serde_json::Value;

use crate::corpus::{corpus, describe};
use crate::support::{child, child_dir, verify};
use rath_testkit::copy_dir;

/// The stores of the corpus with an older format, sorted by format.
fn older() -> Vec<(i64, PathBuf)> {
    let dirs =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).filter(|dir| dir.join("store").is_dir());
    let mut stores: Vec<_> = dirs.map(|dir| (format(&dir.join("store")), dir)).filter(|(of, _)| *of < FORMAT).collect();
    stores.sort();
    assert!(stores.len() >= 2, "the corpus has lost its older stores");
    stores
}

/// The format, read from the header of the database file.
fn format(store: &Path) -> i64 {
    let bytes = fs::read(store.join("rath.db")).unwrap();
    i64::from(u32::from_be_bytes(bytes[60..64].try_into().unwrap()))
}

fn health_format(store: &Path) -> i64 {
    Embedded::open_as(store, "test").unwrap().health().unwrap().format
}

fn write(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::program("test"));
    session.note("a record in the current format")?;
    block_on(session.publish())
}

/// Opens a store and collects its upgrade notifications.
fn opened(path: &Path) -> (Arc<dyn Store>, Arc<Mutex<Vec<FormatUpgrade>>>) {
    let notified = Arc::new(Mutex::new(Vec::new()));
    let sender = notified.clone();
    let store = Embedded::open_as(path, "test")
        .unwrap()
        .on_upgrade(move |upgrade| sender.lock().unwrap().push(upgrade.clone()));
    (Arc::new(store), notified)
}

/// A copy of the store with the backup as its database.
fn restore_backup(store: &Path, backup: &Path) -> tempfile::TempDir {
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
fn every_older_store_is_upgraded_once_and_keeps_a_backup() {
    for (from, dir) in older() {
        let expected: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&dir.join("store"), copy.path());
        let (store, notified) = opened(copy.path());
        block_on(store.sessions(Query::default())).unwrap();
        assert!(notified.lock().unwrap().is_empty(), "reading changes nothing");
        write(&store).unwrap();
        write(&store).unwrap();
        let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
        assert_eq!(*notified.lock().unwrap(), [FormatUpgrade { from, to: FORMAT, backup: backup.clone() }]);
        drop(store);
        assert!(verify(copy.path()).is_valid());
        let health = Embedded::open_as(copy.path(), "test").unwrap().health().unwrap();
        assert_eq!(health.format, FORMAT);
        assert_eq!((health.backups[0].format, &health.backups[0].path), (from, &backup));
        // The backup is the old store, as an older version opens it.
        let old = restore_backup(copy.path(), &backup);
        assert_eq!(health_format(old.path()), from);
        assert!(verify(old.path()).is_valid());
        assert_eq!(describe(old.path()), expected);
        let journal: String = Connection::open(old.path().join("rath.db"))
            .unwrap()
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .unwrap();
        assert_eq!(journal, "wal");
        // It can be upgraded again.
        let (store, notified) = opened(old.path());
        write(&store).unwrap();
        assert_eq!(notified.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_current_store_has_no_backup() {
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&corpus().join(format!("format-{FORMAT}")).join("store"), copy.path());
    let (store, notified) = opened(copy.path());
    write(&store).unwrap();
    assert!(notified.lock().unwrap().is_empty());
    assert!(Embedded::open_as(copy.path(), "test").unwrap().health().unwrap().backups.is_empty());
}

#[test]
fn a_store_is_not_upgraded_without_a_backup() {
    for (from, dir) in older() {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&dir.join("store"), copy.path());
        let in_the_way = copy.path().join(format!("rath.db.format-{from}.backup"));
        fs::create_dir_all(in_the_way.join("full")).unwrap();
        let store = Embedded::open(copy.path()).unwrap();
        let error = write(&store).unwrap_err();
        assert!(error.to_string().contains("the store was not changed"), "{error}");
        drop(store);
        assert_eq!((health_format(copy.path()), unfinished(copy.path())), (from, 0));
        assert!(verify(copy.path()).is_valid());
        fs::remove_dir_all(in_the_way).unwrap();
        write(&Embedded::open(copy.path()).unwrap()).unwrap();
        assert_eq!(health_format(copy.path()), FORMAT);
    }
}

/// Child process: writes one record and prints the result.
#[test]
fn upgrader() {
    let Some(dir) = child_dir() else { return };
    match write(&Embedded::open(dir).unwrap()) {
        Ok(()) => println!("\nupgraded"),
        Err(error) => println!("\nfailed: {error}"),
    }
}

#[test]
fn a_disk_without_room_for_the_backup_leaves_the_store_as_it_was() {
    let (from, dir) = older().pop().unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), copy.path());
    // With a file size limit of 40 kB, the WAL can be written, but the copy cannot.
    let script = "trap '' XFSZ; ulimit -f 80; exec \"$0\" --exact upgrading::upgrader --nocapture --test-threads=1";
    let mut run = Command::new("sh");
    run.args(["-c", script]).arg(std::env::current_exe().unwrap()).env("RATH_TEST_CHILD", copy.path());
    let out = run.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("backing up the database of format") && said.contains("help: free "), "{said}");
    assert_eq!((health_format(copy.path()), unfinished(copy.path())), (from, 0));
    assert!(Embedded::open_as(copy.path(), "test").unwrap().health().unwrap().backups.is_empty());
    assert!(verify(copy.path()).is_valid());
}

#[test]
fn of_four_concurrent_upgrades_one_runs() {
    let (from, dir) = older().remove(0);
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), copy.path());
    let before = block_on(Embedded::open(copy.path()).unwrap().sessions(Query::default())).unwrap().len();
    let upgraders: Vec<_> = (0..4).map(|_| child("upgrading::upgrader", copy.path())).collect();
    for upgrader in upgraders {
        let out = upgrader.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&out.stdout).contains("\nupgraded"), "{out:?}");
    }
    assert_eq!(verify(copy.path()).sessions, before as u64 + 4);
    let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
    let old = restore_backup(copy.path(), &backup);
    let kept = block_on(Embedded::open(old.path()).unwrap().sessions(Query::default())).unwrap().len();
    assert_eq!((health_format(old.path()), kept), (from, before), "a record was written before the backup");
}

#[test]
fn a_killed_upgrade_leaves_the_old_store_or_the_new_one() {
    let rounds = u64::from(rath_testkit::scaled(24));
    let (from, dir) = older().pop().unwrap();
    let expected: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
    // Make the database larger, so that the copy takes longer.
    let large = tempfile::tempdir().unwrap();
    copy_dir(&dir.join("store"), large.path());
    let pad = "CREATE TABLE padding AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
        SELECT i, randomblob(4000) FROM n; PRAGMA wal_checkpoint(TRUNCATE);";
    Connection::open(large.path().join("rath.db")).unwrap().execute_batch(pad).unwrap();
    let (mut old, mut new) = (0, 0);
    for round in 0..rounds {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(large.path(), copy.path());
        let mut upgrader = child("upgrading::upgrader", copy.path());
        std::thread::sleep(Duration::from_millis(2 + round * 7 % 80));
        upgrader.kill().unwrap();
        upgrader.wait().unwrap();
        let now = health_format(copy.path());
        assert!([from, FORMAT].contains(&now), "{now}");
        let backup = copy.path().join(format!("rath.db.format-{from}.backup"));
        match now == FORMAT {
            true => {
                new += 1;
                assert_eq!(describe(restore_backup(copy.path(), &backup).path()), expected);
            }
            false => {
                old += 1;
                assert_eq!(describe(copy.path()), expected);
            }
        }
        // The next write completes the upgrade and removes leftovers.
        write(&Embedded::open(copy.path()).unwrap()).unwrap();
        assert_eq!((health_format(copy.path()), unfinished(copy.path())), (FORMAT, 0));
        assert!(backup.is_file());
    }
    eprintln!("{rounds} rounds: {old} left the old store, {new} the new one");
}
