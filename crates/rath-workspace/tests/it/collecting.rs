//! Garbage collection: versions that a record names are kept, all others are removed.

use std::fs;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::time::Duration;

use pollster::block_on;
use rath_core::body::Placed;
use rath_core::files::{TreeStore, Version};
use rath_core::{Actor, Session, Store};
use rath_store::{Embedded, GcReport};
use rath_workspace::{Options, Workspace};

use super::{DiskEntry, Fixture, Random, assert_same, in_version};
use crate::support::{child, child_dir, verify};

fn store_of(fixture: &Fixture) -> PathBuf {
    fixture.dir.path().join("store")
}

/// Opens a workspace whose state directory is below the store, where the collector finds it.
fn open(fixture: &Fixture) -> Workspace {
    let state = store_of(fixture).join("workspaces/one");
    Workspace::open(fixture.store.clone(), &fixture.root(), &state, &Options::default()).unwrap().0
}

fn collect(fixture: &Fixture) -> GcReport {
    Embedded::open_as(store_of(fixture), "test").unwrap().collect(false, &mut |_| {}).unwrap()
}

/// Writes a record that names a version.
fn record_version(store: &std::sync::Arc<dyn Store>, version: &Version) {
    let mut session = Session::create(store, Actor::program("test"));
    let placed = Placed {
        backend: "host".into(),
        isolated: false,
        origin: None,
        in_place: false,
        workspace: Some(version.clone()),
        base: None,
        setup: None,
        why: None,
    };
    session.append(placed).unwrap();
    block_on(session.publish()).unwrap();
}

fn is_stored(fixture: &Fixture, version: &Version) -> bool {
    block_on(TreeStore::new(&*fixture.store).list(version)).is_ok()
}

/// Reopens the store. The writing process locks its pack file, so the collector skips it until then.
fn reopened(fixture: &mut Fixture) {
    fixture.store = Embedded::open(store_of(fixture)).unwrap();
}

#[test]
fn unreferenced_versions_are_collected() {
    let mut fixture = Fixture::new();
    let mut versions = Vec::new();
    for n in 0..6 {
        let mut workspace = open(&fixture);
        for file in 0..40 {
            fixture.write(&format!("d{}/{file}", file % 3), format!("{n} {file} ").repeat(200));
        }
        fixture.write(
            "large",
            (0..6_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761 + n) >> 13) as u8).collect::<Vec<_>>(),
        );
        versions.push((fixture.save(&mut workspace).version, fixture.on_disk()));
        drop(workspace);
        reopened(&mut fixture);
    }
    for named in [1, 4] {
        record_version(&fixture.store, &versions[named].0);
    }
    reopened(&mut fixture);
    let dry = Embedded::open_as(store_of(&fixture), "test").unwrap().collect(true, &mut |_| {}).unwrap();
    assert!(dry.dead > 0 && dry.freed == 0);
    assert!(versions.iter().all(|(version, _)| is_stored(&fixture, version)));
    let done = collect(&fixture);
    assert_eq!((done.live, done.dead, done.dead_bytes), (dry.live, dry.dead, dry.dead_bytes));
    assert!(done.packs > 0 && done.freed > 0, "{done:?}");
    for (at, (version, files)) in versions.iter().enumerate() {
        assert_eq!(is_stored(&fixture, version), [1, 4].contains(&at), "{at}");
        if is_stored(&fixture, version) {
            assert_same(&fixture.in_version(version), files, "named");
        }
    }
    let again = collect(&fixture);
    assert_eq!(again.dead, 0);
    // The next save stores collected blobs again, although no file changed.
    let mut workspace = open(&fixture);
    let saved = fixture.save(&mut workspace);
    assert!(saved.version.same_files(&versions[5].0));
    for at in [4, 1] {
        fixture.restore(&mut workspace, &versions[at].0);
    }
    let report = verify(&store_of(&fixture));
    assert!(report.is_valid(), "{:?}", report.findings);
}

/// Blobs of `save_for_record` are written with the next commit or the next save, or are lost.
#[test]
fn blobs_deferred_to_a_commit_are_stored_with_it_or_saved_again() {
    let mut fixture = Fixture::new();
    let another = Embedded::open(store_of(&fixture)).unwrap();
    let others_see = |version: &Version| block_on(TreeStore::new(&*another).list(version)).is_ok();
    let mut workspace = fixture.open();
    fixture.write("d/short", "one");
    let first = workspace.save_for_record().unwrap().version;
    assert!(!others_see(&first));
    assert_same(&fixture.in_version(&first), &fixture.on_disk(), "read here at once");
    record_version(&fixture.store, &first);
    assert!(others_see(&first));

    fixture.write("d/short", "two");
    let second = workspace.save_for_record().unwrap().version;
    assert!(!others_see(&second));
    assert_eq!(workspace.save().unwrap().version, second);
    assert!(others_see(&second), "nothing changed, and what waited is there");

    fixture.write("d/long", (0..100_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>());
    let third = workspace.save_for_record().unwrap().version;
    assert!(others_see(&third), "that is too much to wait");

    // The process dies before the commit.
    fixture.write("d/short", "four");
    let lost = workspace.save_for_record().unwrap().version;
    drop(workspace);
    std::mem::forget(fixture.store.clone());
    reopened(&mut fixture);
    assert!(!is_stored(&fixture, &lost) && !others_see(&lost));
    assert_eq!(fixture.save(&mut fixture.open()).version, lost);
    assert_same(&fixture.in_version(&lost), &fixture.on_disk(), "saved again");

    // A process that exits normally writes the index.
    fixture.write("d/short", "five");
    let last = fixture.open().save_for_record().unwrap().version;
    assert!(!others_see(&last));
    reopened(&mut fixture);
    assert!(others_see(&last));
}

/// A series of `save_for_record` calls writes the index at most once a second. Dropping the workspace writes it, and so
/// does each `save`. After a crash, the index is older, and files that changed since are read again.
#[test]
fn index_writes_are_throttled_during_a_series_of_calls() {
    let fixture = Fixture::new();
    let index = || std::fs::read(fixture.state().join("index")).unwrap();
    let mut workspace = fixture.open();
    for n in 0..30 {
        fixture.write(&format!("d/{n}"), format!("{n}"));
    }
    while workspace.save().unwrap().read > 0 {}
    // On a machine that stalls for a second, the index is written more often.
    let stays_behind = |workspace: &mut Workspace, content: &str| {
        (0..20).find_map(|n| {
            fixture.write("d/7", format!("{content} {n}, first"));
            workspace.save().unwrap();
            let before = index();
            fixture.write("d/7", format!("{content} {n}, then"));
            let version = workspace.save_for_record().unwrap().version;
            (index() == before).then_some((before, version))
        })
    };
    let (before, changed) = stays_behind(&mut workspace, "seven").unwrap();
    assert_eq!(workspace.save().unwrap().version, changed);
    assert_ne!(index(), before);

    let (before, last) = stays_behind(&mut workspace, "eight").unwrap();
    drop(workspace);
    assert_ne!(index(), before);

    // Simulates a crash.
    std::fs::write(fixture.state().join("index"), before).unwrap();
    let again = fixture.open().save().unwrap();
    assert_eq!(again.version, last);
    assert!((1..30).contains(&again.read), "{}", again.read);
}

#[test]
fn an_index_of_a_collected_version_is_dropped() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    for n in 0..30 {
        fixture.write(&format!("d/{n}"), format!("{n}"));
    }
    let first = fixture.save(&mut workspace).version;
    while workspace.save().unwrap().read > 0 {}
    drop(workspace);
    // A collection removes the indexes below the store. This index is outside of it.
    collect(&fixture);
    assert!(!is_stored(&fixture, &first));
    assert!(fixture.save(&mut fixture.open()).version.same_files(&first));
}

/// A power failure after the index was written and before the last commits of the store were.
#[test]
fn a_store_that_lost_its_last_commits_gets_a_full_save() {
    let mut fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.save(&mut fixture.open());
    reopened(&mut fixture);
    let copy = |from: &str, to: &str| {
        let _ = fs::remove_dir_all(fixture.dir.path().join(to));
        let (from, to) = (fixture.dir.path().join(from), fixture.dir.path().join(to));
        fs::create_dir_all(to.join("packs")).unwrap();
        for part in ["", "packs"] {
            for entry in fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    fs::copy(entry.path(), to.join(part).join(entry.file_name())).unwrap();
                }
            }
        }
    };
    copy("store", "copy");
    fixture.write("d/e/b", "two");
    let mut workspace = fixture.open();
    let version = fixture.save(&mut workspace).version;
    while workspace.save().unwrap().read > 0 {}
    drop(workspace);
    copy("copy", "store");
    reopened(&mut fixture);
    assert!(!is_stored(&fixture, &version));
    assert!(fixture.save(&mut fixture.open()).version.same_files(&version));
}

#[test]
fn an_open_workspace_blocks_collection() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    let version = fixture.save(&mut fixture.open()).version;
    let store = Embedded::open_as(store_of(&fixture), "test").unwrap();
    // Without any option: an open workspace is enough.
    let (workspace, guard) = (fixture.open(), fixture.store.gc_guard().unwrap());
    assert!(store.collect(false, &mut |_| {}).is_err());
    assert!(store.collect(true, &mut |_| {}).is_ok());
    drop(guard);
    assert!(store.collect(false, &mut |_| {}).is_err());
    assert!(is_stored(&fixture, &version));
    drop(workspace);
    assert!(store.collect(false, &mut |_| {}).is_ok());
    assert!(!is_stored(&fixture, &version));
}

/// The collector follows a tree's references even if a file has the same bytes, and so the same digest.
#[test]
fn a_file_with_the_bytes_of_a_tree_keeps_the_tree_alive() {
    for copy in ["a-copy", "z-copy", "m/copy"] {
        let fixture = Fixture::new();
        fixture.write("m/x", "only here");
        fixture.write("d/y", "only there");
        let mut workspace = fixture.open();
        let version = fixture.save(&mut workspace).version;
        let forest = TreeStore::new(&*fixture.store);
        for (directory, file) in [("d", copy.to_owned()), ("m", format!("{copy}-2"))] {
            let node = block_on(forest.at(&version, &directory.into())).unwrap().unwrap();
            fixture.write(&file, &*block_on(forest.content(node.sha256)).unwrap());
        }
        let version = fixture.save(&mut workspace).version;
        let files = fixture.on_disk();
        record_version(&fixture.store, &version);
        drop(workspace);
        collect(&fixture);
        assert_same(&fixture.in_version(&version), &files, "after a collection");
    }
}

/// Only the journal names the two versions of an interrupted restore.
#[test]
fn an_interrupted_restore_keeps_both_versions() {
    let fixture = Fixture::new();
    let mut workspace = open(&fixture);
    let write = |a: &str, b: &str| {
        fixture.write("a", a);
        fixture.write("b", b);
    };
    write("one", "one");
    let from = fixture.save(&mut workspace).version;
    write("two", "two");
    let to = fixture.save(&mut workspace).version;
    write("three", "three");
    let other = fixture.save(&mut workspace).version;
    drop(workspace);
    write("one", "two");
    let journal = serde_json::json!({"from": from, "to": to}).to_string();
    fs::write(store_of(&fixture).join("workspaces/one/restoring"), journal).unwrap();
    collect(&fixture);
    assert!(is_stored(&fixture, &from) && is_stored(&fixture, &to) && !is_stored(&fixture, &other));
    drop(open(&fixture));
    assert_eq!(fixture.on_disk()[&"a".into()], DiskEntry::File { mode: 0o644, content: b"two".into() });
}

/// Child process: creates garbage and collects it until it is killed.
#[test]
fn collector() {
    let Some(dir) = child_dir() else { return };
    let mut chance = Random::new();
    for round in 0u64.. {
        {
            let store = Embedded::open(dir.join("store")).unwrap();
            let state = dir.join("store/workspaces/one");
            let (mut workspace, _) =
                Workspace::open(store.clone(), &dir.join("files"), &state, &Options::default()).unwrap();
            for _ in 0..3 {
                for n in 0..40 {
                    fs::write(dir.join(format!("files/{n}")), format!("{} ", chance.below(1 << 20)).repeat(2000))
                        .unwrap();
                }
                let version = workspace.save().unwrap().version;
                if chance.below(3) == 0 {
                    record_version(&store, &version);
                }
            }
        }
        println!("\ncollecting {round}");
        Embedded::open_as(dir.join("store"), "test").unwrap().collect(false, &mut |_| {}).unwrap();
    }
}

#[test]
fn a_killed_collection_loses_nothing() {
    let rounds = u64::from(rath_testkit::scaled(10));
    let fixture = Fixture::new();
    fixture.write("kept", "forever");
    let mut workspace = fixture.open();
    let version = fixture.save(&mut workspace).version;
    record_version(&fixture.store, &version);
    drop(workspace);
    let files = fixture.on_disk();
    let Fixture { dir, store, .. } = fixture;
    drop(store);
    let mut chance = Random::new();
    for round in 0..rounds {
        let mut child = child("collecting::collector", dir.path());
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let tracked_workspace = 1 + chance.below(3) as usize;
        assert_eq!(
            lines.by_ref().filter(|line| line.starts_with("collecting")).take(tracked_workspace).count(),
            tracked_workspace
        );
        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = verify(&dir.path().join("store"));
        assert!(report.is_valid(), "round {round}: {:?}", report.findings);
        let store = Embedded::open(dir.path().join("store")).unwrap();
        assert_same(&in_version(&store, &version), &files, "named");
    }
    let store = Embedded::open_as(dir.path().join("store"), "test").unwrap();
    store.collect(false, &mut |_| {}).unwrap();
    assert_eq!(store.collect(false, &mut |_| {}).unwrap().dead, 0);
    // Everything that is left is named by the index.
    let listed = store.health().unwrap().packs.len();
    let there = fs::read_dir(dir.path().join("store/packs")).unwrap().count();
    assert_eq!(there, listed);
}
