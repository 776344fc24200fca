//! Garbage: what no record names goes, what one names stays, whatever happens in between.

use std::fs;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::time::Duration;

use pollster::block_on;
use rath_core::body::Placed;
use rath_core::files::{Forest, Version};
use rath_core::{Actor, Session, Store};
use rath_store::{Embedded, Garbage};
use rath_workspace::{Options, Workspace};

use super::{Chance, Place, Thing, assert_same, in_version};
use crate::support::{child, child_dir, verify};

fn store_of(place: &Place) -> PathBuf {
    place.dir.path().join("store")
}

/// A place whose state is where the collector looks for it.
fn open(place: &Place) -> Workspace {
    let state = store_of(place).join("workspaces/one");
    Workspace::open(place.store.clone(), &place.root(), &state, &Options::default()).unwrap().0
}

fn collect(place: &Place) -> Garbage {
    Embedded::open_here(store_of(place), "test").unwrap().collect(false, &mut |_| {}).unwrap()
}

/// Writes a record that names a version.
fn name_it(store: &std::sync::Arc<dyn Store>, version: &Version) {
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

fn is_there(place: &Place, version: &Version) -> bool {
    block_on(Forest::new(&*place.store).list(version)).is_ok()
}

/// The process that writes has its pack locked: a new one has a look at what is left.
fn reopened(place: &mut Place) {
    place.store = Embedded::open(store_of(place)).unwrap();
}

#[test]
fn what_nobody_names_goes() {
    let mut place = Place::new();
    let mut versions = Vec::new();
    for n in 0..6 {
        let mut workspace = open(&place);
        for file in 0..40 {
            place.write(&format!("d{}/{file}", file % 3), format!("{n} {file} ").repeat(200));
        }
        place.write(
            "large",
            (0..6_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761 + n) >> 13) as u8).collect::<Vec<_>>(),
        );
        versions.push((place.save(&mut workspace).version, place.on_disk()));
        drop(workspace);
        reopened(&mut place);
    }
    for named in [1, 4] {
        name_it(&place.store, &versions[named].0);
    }
    reopened(&mut place);
    let dry = Embedded::open_here(store_of(&place), "test").unwrap().collect(true, &mut |_| {}).unwrap();
    assert!(dry.dead > 0 && dry.freed == 0);
    assert!(versions.iter().all(|(version, _)| is_there(&place, version)));
    let done = collect(&place);
    assert_eq!((done.live, done.dead, done.dead_bytes), (dry.live, dry.dead, dry.dead_bytes));
    assert!(done.packs > 0 && done.freed > 0, "{done:?}");
    for (at, (version, files)) in versions.iter().enumerate() {
        assert_eq!(is_there(&place, version), [1, 4].contains(&at), "{at}");
        if is_there(&place, version) {
            assert_same(&place.in_version(version), files, "named");
        }
    }
    let again = collect(&place);
    assert_eq!(again.dead, 0);
    // What was collected is stored again, though no file changed.
    let mut workspace = open(&place);
    let saved = place.save(&mut workspace);
    assert!(saved.version.same_files(&versions[5].0));
    for at in [4, 1] {
        place.restore(&mut workspace, &versions[at].0);
    }
    let report = verify(&store_of(&place));
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// What is saved for a record comes into the store with it, with the next save, or not at all.
#[test]
fn what_waits_for_a_record_comes_with_it_or_is_saved_again() {
    let mut place = Place::new();
    let another = Embedded::open(store_of(&place)).unwrap();
    let others_see = |version: &Version| block_on(Forest::new(&*another).list(version)).is_ok();
    let mut workspace = place.open();
    place.write("d/short", "one");
    let first = workspace.save_for_record().unwrap().version;
    assert!(!others_see(&first));
    assert_same(&place.in_version(&first), &place.on_disk(), "read here at once");
    name_it(&place.store, &first);
    assert!(others_see(&first));

    place.write("d/short", "two");
    let second = workspace.save_for_record().unwrap().version;
    assert!(!others_see(&second));
    assert_eq!(workspace.save().unwrap().version, second);
    assert!(others_see(&second), "nothing changed, and what waited is there");

    place.write("d/long", (0..100_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>());
    let third = workspace.save_for_record().unwrap().version;
    assert!(others_see(&third), "that is too much to wait");

    // The process dies before the record comes.
    place.write("d/short", "four");
    let lost = workspace.save_for_record().unwrap().version;
    drop(workspace);
    std::mem::forget(place.store.clone());
    reopened(&mut place);
    assert!(!is_there(&place, &lost) && !others_see(&lost));
    assert_eq!(place.save(&mut place.open()).version, lost);
    assert_same(&place.in_version(&lost), &place.on_disk(), "saved again");

    // One that ends in order leaves nothing behind.
    place.write("d/short", "five");
    let last = place.open().save_for_record().unwrap().version;
    assert!(!others_see(&last));
    reopened(&mut place);
    assert!(others_see(&last));
}

/// Calls that follow each other write the index once; whoever lets the workspace go writes it, and so does every other
/// save. Who dies before leaves an older one, and what changed since is read again.
#[test]
fn the_index_may_be_behind_for_a_moment() {
    let place = Place::new();
    let index = || std::fs::read(place.state().join("index")).unwrap();
    let mut workspace = place.open();
    for n in 0..30 {
        place.write(&format!("d/{n}"), format!("{n}"));
    }
    while workspace.save().unwrap().read > 0 {}
    // On a machine that stands still for a second it is not.
    let stays_behind = |workspace: &mut Workspace, content: &str| {
        (0..20).find_map(|n| {
            place.write("d/7", format!("{content} {n}, first"));
            workspace.save().unwrap();
            let before = index();
            place.write("d/7", format!("{content} {n}, then"));
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

    // As if the process had died instead.
    std::fs::write(place.state().join("index"), before).unwrap();
    let again = place.open().save().unwrap();
    assert_eq!(again.version, last);
    assert!((1..30).contains(&again.read), "{}", again.read);
}

/// A workspace that lives through a collection does not believe what it remembers.
#[test]
fn an_index_that_outlives_its_version() {
    let place = Place::new();
    let mut workspace = place.open();
    for n in 0..30 {
        place.write(&format!("d/{n}"), format!("{n}"));
    }
    let first = place.save(&mut workspace).version;
    while workspace.save().unwrap().read > 0 {}
    drop(workspace);
    // A collection forgets the indexes below the store, and this one is elsewhere.
    collect(&place);
    assert!(!is_there(&place, &first));
    assert!(place.save(&mut place.open()).version.same_files(&first));
}

/// The power fails after the index was written and before the store's last commits were.
#[test]
fn a_store_that_went_back() {
    let mut place = Place::new();
    place.write("a", "one");
    place.save(&mut place.open());
    reopened(&mut place);
    let copy = |from: &str, to: &str| {
        let _ = fs::remove_dir_all(place.dir.path().join(to));
        let (from, to) = (place.dir.path().join(from), place.dir.path().join(to));
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
    place.write("d/e/b", "two");
    let mut workspace = place.open();
    let version = place.save(&mut workspace).version;
    while workspace.save().unwrap().read > 0 {}
    drop(workspace);
    copy("copy", "store");
    reopened(&mut place);
    assert!(!is_there(&place, &version));
    assert!(place.save(&mut place.open()).version.same_files(&version));
}

#[test]
fn nothing_is_collected_while_somebody_saves() {
    let place = Place::new();
    place.write("a", "x");
    let version = place.save(&mut place.open()).version;
    let store = Embedded::open_here(store_of(&place), "test").unwrap();
    // No option is needed for it: an open workspace is enough.
    let (workspace, guard) = (place.open(), place.store.gc_guard().unwrap());
    assert!(store.collect(false, &mut |_| {}).is_err());
    assert!(store.collect(true, &mut |_| {}).is_ok());
    drop(guard);
    assert!(store.collect(false, &mut |_| {}).is_err());
    assert!(is_there(&place, &version));
    drop(workspace);
    assert!(store.collect(false, &mut |_| {}).is_ok());
    assert!(!is_there(&place, &version));
}

/// A file that holds the bytes of a directory does not hide what is in the directory.
#[test]
fn a_file_with_the_bytes_of_a_tree() {
    for copy in ["a-copy", "z-copy", "m/copy"] {
        let place = Place::new();
        place.write("m/x", "only here");
        place.write("d/y", "only there");
        let mut workspace = place.open();
        let version = place.save(&mut workspace).version;
        let forest = Forest::new(&*place.store);
        for (directory, file) in [("d", copy.to_owned()), ("m", format!("{copy}-2"))] {
            let node = block_on(forest.at(&version, &directory.into())).unwrap().unwrap();
            place.write(&file, &*block_on(forest.content(node.sha256)).unwrap());
        }
        let version = place.save(&mut workspace).version;
        let files = place.on_disk();
        name_it(&place.store, &version);
        drop(workspace);
        collect(&place);
        assert_same(&place.in_version(&version), &files, "after a collection");
    }
}

/// What a restore that was interrupted goes from and to is needed by nobody else.
#[test]
fn an_interrupted_restore_keeps_both_versions() {
    let place = Place::new();
    let mut workspace = open(&place);
    let write = |a: &str, b: &str| {
        place.write("a", a);
        place.write("b", b);
    };
    write("one", "one");
    let from = place.save(&mut workspace).version;
    write("two", "two");
    let to = place.save(&mut workspace).version;
    write("three", "three");
    let other = place.save(&mut workspace).version;
    drop(workspace);
    write("one", "two");
    let journal = serde_json::json!({"from": from, "to": to}).to_string();
    fs::write(store_of(&place).join("workspaces/one/restoring"), journal).unwrap();
    collect(&place);
    assert!(is_there(&place, &from) && is_there(&place, &to) && !is_there(&place, &other));
    drop(open(&place));
    assert_eq!(place.on_disk()[&"a".into()], Thing::File { mode: 0o644, content: b"two".into() });
}

/// Makes garbage and collects it until it is killed.
#[test]
fn collector() {
    let Some(dir) = child_dir() else { return };
    let mut chance = Chance::new();
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
                    name_it(&store, &version);
                }
            }
        }
        println!("\ncollecting {round}");
        Embedded::open_here(dir.join("store"), "test").unwrap().collect(false, &mut |_| {}).unwrap();
    }
}

#[test]
fn a_collection_that_is_killed() {
    let rounds = u64::from(rath_testkit::scaled(10));
    let place = Place::new();
    place.write("kept", "for ever");
    let mut workspace = place.open();
    let version = place.save(&mut workspace).version;
    name_it(&place.store, &version);
    drop(workspace);
    let files = place.on_disk();
    let Place { dir, store, .. } = place;
    drop(store);
    let mut chance = Chance::new();
    for round in 0..rounds {
        let mut child = child("collecting::collector", dir.path());
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let begun = 1 + chance.below(3) as usize;
        assert_eq!(lines.by_ref().filter(|line| line.starts_with("collecting")).take(begun).count(), begun);
        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = verify(&dir.path().join("store"));
        assert!(report.is_sound(), "round {round}: {:?}", report.findings);
        let store = Embedded::open(dir.path().join("store")).unwrap();
        assert_same(&in_version(&store, &version), &files, "named");
    }
    let store = Embedded::open_here(dir.path().join("store"), "test").unwrap();
    store.collect(false, &mut |_| {}).unwrap();
    assert_eq!(store.collect(false, &mut |_| {}).unwrap().dead, 0);
    // Nothing is left but what the index names.
    let listed = store.health().unwrap().packs.len();
    let there = fs::read_dir(dir.path().join("store/packs")).unwrap().count();
    assert_eq!(there, listed);
}
