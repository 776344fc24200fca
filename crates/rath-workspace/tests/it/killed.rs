//! Sends SIGKILL during saves and restores.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::Duration;

use rath_core::files::{FilePath, Version};
use rath_store::Embedded;
use rath_workspace::{Options, RecoveredRestore, Workspace};

use super::{DiskEntry, Files, Fixture, Random, assert_same, chmod, in_version, temporaries};
use crate::support::{child, child_dir, verify};

pub(super) fn rounds() -> u64 {
    rath_testkit::scaled(25).into()
}

fn open(dir: &Path) -> (Workspace, Option<RecoveredRestore>) {
    let store = Embedded::open(dir.join("store")).unwrap();
    Workspace::open(store, &dir.join("files"), &dir.join("state"), &Options::default()).unwrap()
}

/// Child process: restores one version after another until it is killed.
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

/// Child process: changes files and saves them until it is killed.
#[test]
fn saver() {
    let Some(dir) = child_dir() else { return };
    let (mut workspace, _) = open(&dir);
    println!("\nready");
    let mut chance = Random::new();
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

/// Runs a child, kills it some time after it is ready, and returns the lines that it printed.
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

/// Three versions whose differences cover each kind of change.
pub(super) fn three_versions(fixture: &Fixture) -> Vec<Version> {
    let mut workspace = fixture.open();
    for n in 0..1500 {
        fixture.write(&format!("d{}/{n}", n % 30), format!("{n} ").repeat(n % 50));
    }
    fixture.write("type/changes/often", "x");
    fixture.write("large", vec![7; 6 << 20]);
    let first = fixture.save(&mut workspace).version;
    for n in (0..1500).step_by(3) {
        fixture.write(&format!("d{}/{n}", n % 30), format!("{n} other "));
    }
    fs::remove_dir_all(fixture.path("type")).unwrap();
    fixture.write("type", "a file");
    fs::remove_dir_all(fixture.path("d7")).unwrap();
    chmod(&fixture.path("d8"), 0o700);
    for n in 0..100 {
        std::os::unix::fs::symlink("nowhere", fixture.path(format!("d8/link{n}"))).unwrap();
        chmod(&fixture.path("d1/1"), 0o600);
    }
    fixture.write("large", vec![8; 6 << 20]);
    let second = fixture.save(&mut workspace).version;
    for n in 0..30 {
        let _ = fs::remove_dir_all(fixture.path(format!("d{n}")));
        fixture.write(&format!("d{n}"), "a file now");
    }
    fs::remove_file(fixture.path("type")).unwrap();
    std::os::unix::fs::symlink("d1", fixture.path("type")).unwrap();
    fs::create_dir_all(fixture.path("many/empty/directories")).unwrap();
    chmod(&fixture.path("many/empty"), 0o500);
    let third = fixture.save(&mut workspace).version;
    vec![first, second, third]
}

/// The two versions in the restore journal.
fn under_way(fixture: &Fixture) -> Option<(Version, Version)> {
    let journal: serde_json::Value =
        serde_json::from_slice(&fs::read(fixture.state().join("restoring")).ok()?).unwrap();
    let version = |name: &str| serde_json::from_value(journal[name].clone()).unwrap();
    Some((version("from"), version("to")))
}

/// Whether a path has one of its two contents. A path that changes its kind may be missing, and a directory that is
/// being filled does not have its permissions yet.
fn is_one_of(found: Option<&DiskEntry>, from: Option<&DiskEntry>, to: Option<&DiskEntry>) -> bool {
    let is_directory = |thing: Option<&DiskEntry>| thing.is_some_and(DiskEntry::is_directory);
    found == from
        || found == to
        || (found.is_none() && is_directory(from) != is_directory(to))
        || (is_directory(found) && (is_directory(from) || is_directory(to)))
}

#[test]
fn a_killed_restore_is_completed() {
    let fixture = Fixture::new();
    let versions = three_versions(&fixture);
    fs::write(fixture.dir.path().join("versions"), serde_json::to_vec(&versions).unwrap()).unwrap();
    let all: Vec<Files> = versions.iter().map(|version| fixture.in_version(version)).collect();
    let files_of = |version: &Version| &all[versions.iter().position(|one| one.same_files(version)).unwrap()];
    let mut chance = Random::new();
    let (mut finished, mut kept_something) = (0, 0);
    // Depending on the machine, it may take more rounds until a restore is interrupted halfway.
    for round in 0.. {
        if round >= rounds() && (finished > 0 || round > 1000) {
            break;
        }
        killed("killed::restorer", fixture.dir.path(), Duration::from_micros(chance.below(250_000)));
        let found = fixture.on_disk();
        let journal = under_way(&fixture);
        let mut outside = None;
        if let Some((from, to)) = &journal {
            let (from, to) = (files_of(from), files_of(to));
            for path in from.keys().chain(to.keys()) {
                let (found, from, to) = (found.get(path), from.get(path), to.get(path));
                assert!(is_one_of(found, from, to), "round {round}: {path} is {found:?}, neither {from:?} nor {to:?}");
            }
            let new = |path: &&FilePath| !from.contains_key(*path) && !to.contains_key(*path);
            let strays: Vec<_> = found.keys().filter(new).filter(|path| !temporaries(&found).contains(path)).collect();
            assert!(strays.is_empty(), "round {round}: {strays:?}");
            // A file is changed before the next open.
            let files: Vec<_> = found
                .iter()
                .filter(|(path, thing)| {
                    matches!(thing, DiskEntry::File { .. })
                        && from.get(*path) != to.get(*path)
                        && !temporaries(&found).contains(path)
                })
                .collect();
            if round % 2 == 0 && !files.is_empty() {
                let (path, _) = files[chance.below(files.len() as u64) as usize];
                fs::write(fixture.path(path.as_bytes()), "from outside").unwrap();
                outside = Some(path.clone());
            }
        } else {
            assert!(all.contains(&found), "round {round}: without a journal it is one of the versions");
        }
        let (mut workspace, recovered) = fixture.try_open().unwrap();
        let disk = fixture.on_disk();
        assert_eq!(temporaries(&disk), Vec::<&FilePath>::new(), "round {round}");
        assert!(!fixture.state().join("restoring").exists());
        // A restore that had changed nothing when it was killed is not reported.
        let has_begun = journal.as_ref().is_some_and(|(from, _)| {
            let strays: BTreeSet<&FilePath> = temporaries(&found).into_iter().collect();
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
            let kept: BTreeSet<FilePath> = recovered.kept.into_iter().collect();
            // A file that was left alone may be where a directory should be. Then the paths below it are reported too.
            let excused = |path: &FilePath| {
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
                    assert_eq!(fs::read(fixture.path(outside.as_bytes())).unwrap(), b"from outside", "round {round}");
                }
                None => assert!(kept.is_empty(), "round {round}: {kept:?}"),
            }
            assert_same(&fixture.in_version(&recovered.version), &disk, "recovered");
        }
        fixture.save(&mut workspace);
        let next = chance.below(3) as usize;
        fixture.restore(&mut workspace, &versions[next]);
    }
    assert!(finished > 0, "no restore was interrupted");
    eprintln!("{} rounds, {finished} restores finished, {kept_something} files kept", rounds());
    let report = verify(&fixture.dir.path().join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[test]
fn a_killed_save_leaves_no_partial_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    drop(Embedded::create(path.join("store")).unwrap());
    for n in 0..20 {
        fs::create_dir_all(path.join(format!("files/d{n}"))).unwrap();
    }
    let mut chance = Random::new();
    let mut acknowledged = 0;
    // A slow machine may need more rounds until a child lives long enough to save.
    for round in 0.. {
        if round >= rounds() && (acknowledged > 0 || round > 1000) {
            break;
        }
        let lines = killed("killed::saver", path, Duration::from_micros(chance.below(120_000)));
        let store = Embedded::open(path.join("store")).unwrap();
        for line in lines.iter().filter_map(|line| line.strip_prefix("saved ")) {
            // A truncated line is not an acknowledged version.
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
    assert!(report.is_valid(), "{:?}", report.findings);
}

/// A killed restore in a read-only directory: the next open sets the permissions of the directory.
#[test]
fn read_only_directories_get_their_permissions_back() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("d/a", "one");
    chmod(&fixture.path("d"), 0o555);
    let from = fixture.save(&mut workspace).version;
    fixture.write("d/a", "two");
    let to = fixture.save(&mut workspace).version;
    drop(workspace);
    // The state after the kill: the directory is writable, and no file was changed.
    fixture.write("d/a", "one");
    chmod(&fixture.path("d"), 0o755);
    let journal = serde_json::json!({"from": from, "to": to, "opened": [["d", 0o555]]});
    fs::write(fixture.state().join("restoring"), journal.to_string()).unwrap();
    let (mut workspace, recovered) = fixture.try_open().unwrap();
    assert_eq!(recovered.unwrap().kept, []);
    assert_same(&fixture.on_disk(), &fixture.in_version(&to), "recovered");
    assert!(fixture.save(&mut workspace).version.same_files(&to));
}

/// The workspace can be opened again even if the directory was replaced after the crash.
#[test]
fn a_replaced_directory_is_left_alone() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("a", "a file");
    fixture.write("b/sub/c", "x");
    let from = fixture.save(&mut workspace).version;
    fs::remove_file(fixture.path("a")).unwrap();
    fs::remove_dir_all(fixture.path("b")).unwrap();
    fixture.write("a/sub/deep/x", "x");
    fs::create_dir_all(fixture.path("a/empty/dirs")).unwrap();
    fixture.write("b", "a file");
    let to = fixture.save(&mut workspace).version;
    drop(workspace);
    for (path, content) in [("a", "from outside"), ("b/sub/new", "from outside")] {
        fs::remove_dir_all(fixture.root()).unwrap();
        fs::create_dir(fixture.root()).unwrap();
        fixture.write(path, content);
        let journal = serde_json::json!({"from": from, "to": to});
        fs::write(fixture.state().join("restoring"), journal.to_string()).unwrap();
        let (mut workspace, recovered) = fixture.try_open().unwrap();
        let kept = recovered.unwrap().kept;
        assert!(!kept.is_empty());
        assert_eq!(fs::read(fixture.path(path)).unwrap(), content.as_bytes(), "{kept:?}");
        fixture.save(&mut workspace);
    }
}
