//! SIGKILL in the middle of a save and of a restore.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::Duration;

use rath_core::files::{Name, Version};
use rath_store::Embedded;
use rath_workspace::{Options, Recovered, Workspace};

use super::{Chance, Files, Place, Thing, assert_same, chmod, in_version, temporaries};
use crate::support::{child, child_dir, verify};

pub(super) fn rounds() -> u64 {
    rath_testkit::scaled(25).into()
}

fn open(dir: &Path) -> (Workspace, Option<Recovered>) {
    let store = Embedded::open(dir.join("store")).unwrap();
    Workspace::open(store, &dir.join("files"), &dir.join("state"), &Options::default()).unwrap()
}

/// Goes from version to version until it is killed.
#[test]
fn restorer() {
    let Some(dir) = child_dir() else { return };
    let versions: Vec<Version> = serde_json::from_slice(&fs::read(dir.join("versions")).unwrap()).unwrap();
    let (mut workspace, _) = open(&dir);
    println!("\nready");
    for version in versions.iter().cycle() {
        assert_eq!(workspace.restore(None, version).unwrap().kept, []);
    }
}

/// Changes files and saves them until it is killed.
#[test]
fn saver() {
    let Some(dir) = child_dir() else { return };
    let (mut workspace, _) = open(&dir);
    println!("\nready");
    let mut chance = Chance::new();
    loop {
        for _ in 0..chance.below(400) {
            let path = dir.join(format!("files/d{}/{}", chance.below(20), chance.below(100)));
            match chance.below(4) {
                0 => drop(fs::remove_file(path)),
                _ => fs::write(path, format!("{} ", chance.below(1000)).repeat(chance.below(2000) as usize)).unwrap(),
            }
        }
        let version = workspace.save().unwrap().version;
        let line = format!("\nsaved {}\n", serde_json::to_string(&version).unwrap());
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs a child, kills it some time after it is ready, and returns the lines it wrote.
pub(super) fn killed(test: &str, dir: &Path, wait: Duration) -> Vec<String> {
    let mut child = child(test, dir);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line == "ready"), "it did not begin");
    let reading = std::thread::spawn(move || lines.collect());
    std::thread::sleep(wait);
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap()
}

/// Three versions with something of every kind between them.
pub(super) fn three_versions(place: &Place) -> Vec<Version> {
    let mut workspace = place.open();
    for n in 0..1500 {
        place.write(&format!("d{}/{n}", n % 30), format!("{n} ").repeat(n % 50));
    }
    place.write("type/changes/often", "x");
    place.write("large", vec![7; 6 << 20]);
    let first = place.save(&mut workspace).version;
    for n in (0..1500).step_by(3) {
        place.write(&format!("d{}/{n}", n % 30), format!("{n} other "));
    }
    fs::remove_dir_all(place.path("type")).unwrap();
    place.write("type", "a file");
    fs::remove_dir_all(place.path("d7")).unwrap();
    chmod(&place.path("d8"), 0o700);
    for n in 0..100 {
        std::os::unix::fs::symlink("nowhere", place.path(format!("d8/link{n}"))).unwrap();
        chmod(&place.path("d1/1"), 0o600);
    }
    place.write("large", vec![8; 6 << 20]);
    let second = place.save(&mut workspace).version;
    for n in 0..30 {
        let _ = fs::remove_dir_all(place.path(format!("d{n}")));
        place.write(&format!("d{n}"), "a file now");
    }
    fs::remove_file(place.path("type")).unwrap();
    std::os::unix::fs::symlink("d1", place.path("type")).unwrap();
    fs::create_dir_all(place.path("many/empty/directories")).unwrap();
    chmod(&place.path("many/empty"), 0o500);
    let third = place.save(&mut workspace).version;
    vec![first, second, third]
}

/// What the journal says is under way.
fn under_way(place: &Place) -> Option<(Version, Version)> {
    let journal: serde_json::Value = serde_json::from_slice(&fs::read(place.state().join("restoring")).ok()?).unwrap();
    let version = |name: &str| serde_json::from_value(journal[name].clone()).unwrap();
    Some((version("from"), version("to")))
}

/// Whether a path has one of its two contents; a path between two kinds may be empty, and a directory that is being
/// filled has no permissions of its own yet.
fn is_one_of(found: Option<&Thing>, from: Option<&Thing>, to: Option<&Thing>) -> bool {
    let is_directory = |thing: Option<&Thing>| thing.is_some_and(Thing::is_directory);
    found == from
        || found == to
        || (found.is_none() && is_directory(from) != is_directory(to))
        || (is_directory(found) && (is_directory(from) || is_directory(to)))
}

#[test]
fn a_restore_that_is_killed_is_finished() {
    let place = Place::new();
    let versions = three_versions(&place);
    fs::write(place.dir.path().join("versions"), serde_json::to_vec(&versions).unwrap()).unwrap();
    let all: Vec<Files> = versions.iter().map(|version| place.in_version(version)).collect();
    let files_of = |version: &Version| &all[versions.iter().position(|one| one.same_files(version)).unwrap()];
    let mut chance = Chance::new();
    let (mut finished, mut kept_something) = (0, 0);
    // A fast or slow machine may need more rounds before one is interrupted in the middle.
    for round in 0.. {
        if round >= rounds() && (finished > 0 || round > 1000) {
            break;
        }
        killed("killed::restorer", place.dir.path(), Duration::from_micros(chance.below(250_000)));
        let found = place.on_disk();
        let journal = under_way(&place);
        let mut outside = None;
        if let Some((from, to)) = &journal {
            let (from, to) = (files_of(from), files_of(to));
            for path in from.keys().chain(to.keys()) {
                let (found, from, to) = (found.get(path), from.get(path), to.get(path));
                assert!(is_one_of(found, from, to), "round {round}: {path} is {found:?}, neither {from:?} nor {to:?}");
            }
            let new = |path: &&Name| !from.contains_key(*path) && !to.contains_key(*path);
            let strays: Vec<_> = found.keys().filter(new).filter(|path| !temporaries(&found).contains(path)).collect();
            assert!(strays.is_empty(), "round {round}: {strays:?}");
            // Somebody changes a file before anybody looks.
            let files: Vec<_> = found
                .iter()
                .filter(|(path, thing)| {
                    matches!(thing, Thing::File { .. })
                        && from.get(*path) != to.get(*path)
                        && !temporaries(&found).contains(path)
                })
                .collect();
            if round % 2 == 0 && !files.is_empty() {
                let (path, _) = files[chance.below(files.len() as u64) as usize];
                fs::write(place.path(path.as_bytes()), "from outside").unwrap();
                outside = Some(path.clone());
            }
        } else {
            assert!(all.contains(&found), "round {round}: without a journal it is one of the versions");
        }
        let (mut workspace, recovered) = place.try_open().unwrap();
        let disk = place.on_disk();
        assert_eq!(temporaries(&disk), Vec::<&Name>::new(), "round {round}");
        assert!(!place.state().join("restoring").exists());
        // One that had not begun when it was killed did not happen.
        let has_begun = journal.as_ref().is_some_and(|(from, _)| {
            let strays: BTreeSet<&Name> = temporaries(&found).into_iter().collect();
            let found: Files = found
                .iter()
                .filter(|(path, _)| !strays.contains(path))
                .map(|(path, thing)| (path.clone(), thing.clone()))
                .collect();
            outside.is_some() || found != *files_of(from)
        });
        assert_eq!(recovered.is_some(), has_begun, "round {round}");
        if let (Some(recovered), Some((_, to))) = (recovered, journal) {
            finished += 1;
            assert!(recovered.to.same_files(&to));
            let expected = files_of(&to);
            let kept: BTreeSet<Name> = recovered.kept.into_iter().collect();
            // A file that was kept may stand where directories should be: what was to go there is named as well.
            let excused = |path: &Name| {
                kept.contains(path)
                    || outside.as_ref().is_some_and(|outside| {
                        path.as_bytes().starts_with(outside.as_bytes())
                            || outside.as_bytes().starts_with(path.as_bytes())
                    })
            };
            for path in disk.keys().chain(expected.keys()) {
                assert!(
                    disk.get(path) == expected.get(path) || excused(path),
                    "round {round}: {path} is {:?}, not {:?}",
                    disk.get(path),
                    expected.get(path)
                );
            }
            match &outside {
                Some(outside) => {
                    kept_something += 1;
                    assert!(kept.contains(outside), "round {round}: {outside} is not named");
                    assert_eq!(fs::read(place.path(outside.as_bytes())).unwrap(), b"from outside", "round {round}");
                }
                None => assert!(kept.is_empty(), "round {round}: {kept:?}"),
            }
            assert_same(&place.in_version(&recovered.version), &disk, "recovered");
        }
        place.save(&mut workspace);
        let next = chance.below(3) as usize;
        place.restore(&mut workspace, &versions[next]);
    }
    assert!(finished > 0, "no restore was interrupted");
    eprintln!("{} rounds, {finished} restores finished, {kept_something} files kept", rounds());
    let report = verify(&place.dir.path().join("store"));
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn a_save_that_is_killed_leaves_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    drop(Embedded::create(path.join("store")).unwrap());
    for n in 0..20 {
        fs::create_dir_all(path.join(format!("files/d{n}"))).unwrap();
    }
    let mut chance = Chance::new();
    let mut acknowledged = 0;
    // A slow machine may need more rounds before one is late enough to have saved.
    for round in 0.. {
        if round >= rounds() && (acknowledged > 0 || round > 1000) {
            break;
        }
        let lines = killed("killed::saver", path, Duration::from_micros(chance.below(120_000)));
        let store = Embedded::open(path.join("store")).unwrap();
        for line in lines.iter().filter_map(|line| line.strip_prefix("saved ")) {
            // A line that is cut off was not acknowledged.
            let Ok(version) = serde_json::from_str::<Version>(line) else { continue };
            acknowledged += 1;
            in_version(&store, &version);
        }
        let (mut workspace, recovered) = open(path);
        assert!(recovered.is_none());
        let saved = workspace.save().unwrap();
        assert_same(
            &in_version(&store, &saved.version),
            &super::on_disk(&path.join("files")),
            &format!("round {round}"),
        );
    }
    assert!(acknowledged > 0);
    let report = verify(&path.join("store"));
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// A restore into a directory that was closed, killed in the middle, leaves it as it shall be.
#[test]
fn closed_directories_are_closed_again() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("d/a", "one");
    chmod(&place.path("d"), 0o555);
    let from = place.save(&mut workspace).version;
    place.write("d/a", "two");
    let to = place.save(&mut workspace).version;
    drop(workspace);
    // As the process left it: opened, and nothing done yet.
    place.write("d/a", "one");
    chmod(&place.path("d"), 0o755);
    let journal = serde_json::json!({"from": from, "to": to, "opened": [["d", 0o555]]});
    fs::write(place.state().join("restoring"), journal.to_string()).unwrap();
    let (mut workspace, recovered) = place.try_open().unwrap();
    assert_eq!(recovered.unwrap().kept, []);
    assert_same(&place.on_disk(), &place.in_version(&to), "recovered");
    assert!(place.save(&mut workspace).version.same_files(&to));
}

/// Whatever somebody did to the directory in between, it can be opened again.
#[test]
fn a_directory_that_is_quite_another_one_is_left_alone() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("a", "a file");
    place.write("b/sub/c", "x");
    let from = place.save(&mut workspace).version;
    fs::remove_file(place.path("a")).unwrap();
    fs::remove_dir_all(place.path("b")).unwrap();
    place.write("a/sub/deep/x", "x");
    fs::create_dir_all(place.path("a/empty/dirs")).unwrap();
    place.write("b", "a file");
    let to = place.save(&mut workspace).version;
    drop(workspace);
    for (path, content) in [("a", "from outside"), ("b/sub/new", "from outside")] {
        fs::remove_dir_all(place.root()).unwrap();
        fs::create_dir(place.root()).unwrap();
        place.write(path, content);
        let journal = serde_json::json!({"from": from, "to": to});
        fs::write(place.state().join("restoring"), journal.to_string()).unwrap();
        let (mut workspace, recovered) = place.try_open().unwrap();
        let kept = recovered.unwrap().kept;
        assert!(!kept.is_empty());
        assert_eq!(fs::read(place.path(path)).unwrap(), content.as_bytes(), "{kept:?}");
        place.save(&mut workspace);
    }
}
