//! What a restore must not do, and what it does when somebody else is at work.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollster::block_on;
use rath_core::Blob;
use rath_core::files::{Entry, Forest, Name, Node, NodeKind, Tree, Version};
use rath_workspace::{Error, Options, Workspace};

use super::{Place, Thing, assert_same, chmod, temporaries};

/// The paths that were in the way; nothing was touched.
#[track_caller]
fn refused(place: &Place, workspace: &mut Workspace, to: &Version) -> Vec<String> {
    let before = place.on_disk();
    let error = workspace.restore(None, to).unwrap_err();
    assert_same(&place.on_disk(), &before, "refused");
    assert!(!place.state().join("restoring").exists());
    match error {
        Error::InTheWay { paths } => paths.iter().map(ToString::to_string).collect(),
        error => panic!("{error}"),
    }
}

#[test]
fn changes_from_outside_stop_it() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("a", "one");
    place.write("d/b", "one");
    let first = place.save(&mut workspace).version;
    place.write("a", "two");
    let second = place.save(&mut workspace).version;
    place.write("a", "outside");
    place.write("new", "outside");
    fs::remove_file(place.path("d/b")).unwrap();
    let before = place.on_disk();
    let Err(Error::OutsideChanges { changes }) = workspace.restore(Some(&second), &first) else { panic!() };
    let said: Vec<_> = changes.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect();
    assert_eq!(said, ["M a", "D d/b", "A new"]);
    assert_same(&place.on_disk(), &before, "stopped");
    let restored = workspace.restore(None, &first).unwrap();
    assert_same(&place.in_version(&restored.from), &before, "what was there is in the store");
    assert_same(&place.on_disk(), &place.in_version(&first), "restored");
    // What was overwritten can be had again.
    place.restore(&mut workspace, &restored.from);
    assert_same(&place.on_disk(), &before, "had again");
}

#[test]
fn two_that_share_a_directory_notice_each_other() {
    let place = Place::new();
    let other = place.dir.path().join("other");
    let mut one = place.open();
    let (mut two, _) = Workspace::open(place.store.clone(), &place.root(), &other, &place.options).unwrap();
    place.write("a", "one");
    let of_one = place.save(&mut one).version;
    place.write("a", "two");
    let of_two = place.save(&mut two).version;
    assert!(matches!(one.restore(Some(&of_one), &of_one), Err(Error::OutsideChanges { .. })));
    one.restore(None, &of_one).unwrap();
    assert!(matches!(two.restore(Some(&of_two), &of_two), Err(Error::OutsideChanges { .. })));
    assert!(two.save().unwrap().version.same_files(&of_one));
    place.restore(&mut two, &of_two);
    assert!(place.save(&mut one).version.same_files(&of_two));
}

#[test]
fn what_is_not_versioned_is_in_the_way() {
    let mut place = Place::new();
    place.options = Options { ignore: vec!["*.ign".into()], ..Options::default() };
    let mut workspace = place.open();
    place.write("keep", "x");
    place.write("f", "a file");
    place.write("g/h", "a file");
    place.write("link", "a file");
    let files = place.save(&mut workspace).version;
    for path in ["f", "g/h", "link"] {
        fs::remove_file(place.path(path)).unwrap();
    }
    fs::remove_dir(place.path("g")).unwrap();
    let bare = place.save(&mut workspace).version;

    // Something ignored in a directory that must become a file.
    place.write("f/deep/x.ign", "ignored");
    assert_eq!(refused(&place, &mut workspace, &files), ["f"]);
    place.write("f/deep/y", "versioned");
    assert_eq!(refused(&place, &mut workspace, &files), ["f/deep/x.ign"]);
    fs::remove_dir_all(place.path("f")).unwrap();

    // Special files, where a file and where a directory must go.
    let socket = UnixListener::bind(place.path("f")).unwrap();
    assert_eq!(refused(&place, &mut workspace, &files), ["f"]);
    drop(socket);
    fs::remove_file(place.path("f")).unwrap();
    let _socket = UnixListener::bind(place.path("g")).unwrap();
    assert_eq!(refused(&place, &mut workspace, &files), ["g"]);
    fs::remove_file(place.path("g")).unwrap();
    place.restore(&mut workspace, &bare);
    place.restore(&mut workspace, &files);
}

#[test]
fn what_came_to_be_ignored_is_adopted_or_in_the_way() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("x.log", "content");
    symlink("there", place.path("l.log")).unwrap();
    let all = place.save(&mut workspace).version;
    place.write(".gitignore", "*.log\n");
    let without = workspace.save().unwrap().version;
    assert_eq!(place.in_version(&without).len(), 1);
    // It is what it shall be, but for its permissions.
    chmod(&place.path("x.log"), 0o600);
    place.restore(&mut workspace, &all);
    place.write(".gitignore", "*.log\n");
    workspace.save().unwrap();
    place.write("x.log", "changed");
    assert_eq!(refused(&place, &mut workspace, &all), ["x.log"]);
    fs::remove_file(place.path("x.log")).unwrap();
    fs::remove_file(place.path("l.log")).unwrap();
    symlink("elsewhere", place.path("l.log")).unwrap();
    assert_eq!(refused(&place, &mut workspace, &all), ["l.log"]);
}

#[test]
fn ignored_files_stay_where_they_are() {
    let mut place = Place::new();
    place.options = Options { ignore: vec!["*.ign".into(), "target/".into()], ..Options::default() };
    let mut workspace = place.open();
    place.write("d/e/f", "x");
    let with = place.save(&mut workspace).version;
    fs::remove_dir_all(place.path("d")).unwrap();
    let without = place.save(&mut workspace).version;
    place.restore(&mut workspace, &with);
    place.write("d/e/kept.ign", "ignored");
    place.write("d/target/out", "ignored");
    assert!(workspace.restore(None, &without).unwrap().version.same_files(&without));
    assert_eq!(fs::read(place.path("d/e/kept.ign")).unwrap(), b"ignored");
    assert_eq!(fs::read(place.path("d/target/out")).unwrap(), b"ignored");
    assert!(!place.path("d/e/f").exists());
    assert!(workspace.save().unwrap().version.same_files(&without));
    assert!(workspace.restore(None, &with).unwrap().version.same_files(&with));
    assert_eq!(fs::read(place.path("d/e/kept.ign")).unwrap(), b"ignored");
}

#[test]
fn a_file_becomes_a_directory_and_back() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("a", "a file");
    place.write("b/c/d", "deep");
    symlink("b", place.path("l")).unwrap();
    let first = place.save(&mut workspace).version;
    fs::remove_file(place.path("a")).unwrap();
    place.write("a/b/c", "below what was a file");
    fs::remove_dir_all(place.path("b")).unwrap();
    symlink("a", place.path("b")).unwrap();
    fs::remove_file(place.path("l")).unwrap();
    fs::create_dir(place.path("l")).unwrap();
    let second = place.save(&mut workspace).version;
    for _ in 0..3 {
        place.restore(&mut workspace, &first);
        place.restore(&mut workspace, &second);
        workspace = {
            drop(workspace);
            place.open()
        };
    }
}

/// Files that share their content on disk are files of their own in a version.
#[test]
fn names_of_one_file_are_restored_each_for_itself() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("x", "same");
    place.write("y", "same");
    place.write("z", "other");
    chmod(&place.path("y"), 0o600);
    let apart = place.save(&mut workspace).version;
    for name in ["y", "z"] {
        fs::remove_file(place.path(name)).unwrap();
        fs::hard_link(place.path("x"), place.path(name)).unwrap();
    }
    let together = place.save(&mut workspace).version;
    place.restore(&mut workspace, &apart);
    assert_eq!(place.path("x").metadata().unwrap().nlink(), 1);
    place.restore(&mut workspace, &together);
    // All of them go at once, and all of them change at once.
    for name in ["x", "y", "z"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    let none = place.save(&mut workspace).version;
    place.write("x", "new");
    fs::hard_link(place.path("x"), place.path("y")).unwrap();
    fs::hard_link(place.path("x"), place.path("z")).unwrap();
    place.restore(&mut workspace, &apart);
    place.restore(&mut workspace, &none);
}

#[test]
fn a_link_that_is_planted_leads_nowhere() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    chmod(&outside.join("f"), 0o640);
    let mut workspace = place.open();
    place.write("d/f", "inside");
    let first = place.save(&mut workspace).version;
    fs::remove_dir_all(place.path("d")).unwrap();
    symlink(&outside, place.path("d")).unwrap();
    symlink(outside.join("f"), place.path("e")).unwrap();
    let second = place.save(&mut workspace).version;
    for version in [&first, &second, &first] {
        place.restore(&mut workspace, version);
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"outside");
        assert_eq!(outside.join("f").metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
}

/// A version that was not saved from a directory.
fn version_of(place: &Place, entries: Vec<Entry>) -> Version {
    let tree = block_on(Forest::new(&*place.store).put(Tree { entries })).unwrap();
    Version { tree, rules: None }
}

fn put(place: &Place, kind: NodeKind, mode: u32, content: &[u8]) -> Node {
    let blob = Blob::new(content, "application/octet-stream");
    let node = Node { kind, mode, sha256: blob.reference.digest, size: content.len() as u64 };
    block_on(place.store.blob_put(vec![blob])).unwrap();
    node
}

#[test]
fn a_version_that_no_directory_can_have_ends_in_one_that_it_has() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("a", "x");
    workspace.save().unwrap();
    let link = Entry { name: Name::from("l"), node: put(&place, NodeKind::Symlink, 0o644, b"a") };
    let version = version_of(&place, vec![link]);
    let restored = workspace.restore(None, &version).unwrap();
    assert!(!restored.version.same_files(&version));
    assert_same(&place.on_disk(), &place.in_version(&restored.version), "what there is, is in the store");
}

#[test]
fn no_version_brings_hooks() {
    let place = Place::new();
    fs::create_dir_all(place.path(".git/hooks")).unwrap();
    let mut workspace = place.open();
    for path in [".git", ".git/hooks", ".rath", "sub/.git", ".rath-x.tmp"] {
        let mut node = put(&place, NodeKind::File, 0o755, b"#!/bin/sh\n");
        let mut entries = vec![Entry { name: Name::from("hook"), node }];
        for name in path.split('/').rev() {
            let tree = block_on(Forest::new(&*place.store).put(Tree { entries })).unwrap();
            node = Node { kind: NodeKind::Directory, mode: 0o755, sha256: tree.digest, size: tree.bytes };
            entries = vec![Entry { name: Name::from(name), node }];
        }
        let version = version_of(&place, entries);
        let paths = refused(&place, &mut workspace, &version);
        assert!(paths.iter().any(|refused| refused.ends_with("hook")), "{paths:?}");
    }
}

#[test]
fn content_that_is_not_there_is_said() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("a", "x");
    let there = place.save(&mut workspace).version;
    let missing = Node { kind: NodeKind::File, mode: 0o644, sha256: rath_core::Digest::of(b"nowhere"), size: 7 };
    let version = version_of(&place, vec![Entry { name: Name::from("a"), node: missing }]);
    assert!(matches!(workspace.restore(None, &version), Err(Error::Store(_))));
    assert_eq!(fs::read(place.path("a")).unwrap(), b"x");
    assert!(temporaries(&place.on_disk()).is_empty());
    // The other way is still open.
    place.restore(&mut workspace, &there);
}

/// Somebody rewrites a file all the time, by writing and by renaming.
#[test]
fn a_file_that_changes_meanwhile_is_kept_or_restored() {
    for renames in [false, true] {
        let place = Place::new();
        let mut workspace = place.open();
        place.write("busy", "the first version");
        for n in 0..40 {
            place.write(&format!("d/{n}"), "one");
        }
        let first = place.save(&mut workspace).version;
        for n in 0..40 {
            place.write(&format!("d/{n}"), "two");
        }
        place.write("busy", "v".repeat(2000));
        let second = place.save(&mut workspace).version;
        let stop = AtomicBool::new(false);
        let path = place.path("busy");
        let beside = place.dir.path().join("beside");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let content = format!("{n:08} ").repeat(300);
                    match renames {
                        true => fs::write(&beside, content).and_then(|()| fs::rename(&beside, &path)).unwrap(),
                        false => fs::write(&path, content).unwrap(),
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            for version in [&first, &second].into_iter().cycle().take(12) {
                let restored = workspace.restore(None, version).unwrap();
                let others = |files: super::Files| -> super::Files {
                    files.into_iter().filter(|(path, _)| *path != Name::from("busy")).collect()
                };
                assert_same(&others(place.on_disk()), &others(place.in_version(version)), "the others");
                assert!(restored.kept.iter().all(|path| *path == Name::from("busy")), "{:?}", restored.kept);
                let Some(Thing::File { content, .. }) = place.in_version(&restored.from).remove(&Name::from("busy"))
                else {
                    panic!("it was there all the time")
                };
                let is_whole = |content: &[u8]| {
                    content == b"the first version"
                        || content == [b'v'; 2000]
                        || content.chunks(9).all(|word| *word == content[..9])
                };
                assert!(!renames || is_whole(&content));
            }
            stop.store(true, Ordering::Relaxed);
        });
        place.restore(&mut workspace, &first);
    }
}

/// Directories that nobody may write to are filled all the same.
#[test]
fn directories_that_are_closed() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("d/a", "one");
    place.write("d/e/b", "one");
    chmod(&place.path("d/e"), 0o555);
    chmod(&place.path("d"), 0o555);
    let first = place.save(&mut workspace).version;
    chmod(&place.path("d"), 0o755);
    chmod(&place.path("d/e"), 0o755);
    fs::remove_dir_all(place.path("d")).unwrap();
    let second = place.save(&mut workspace).version;
    place.write("d/a", "two");
    place.write("d/e/b", "two");
    chmod(&place.path("d/e"), 0o555);
    chmod(&place.path("d"), 0o555);
    let third = place.save(&mut workspace).version;
    for version in [&first, &third, &second, &third, &first, &second] {
        place.restore(&mut workspace, version);
    }
}

/// Runs the tests that root cannot fail as somebody else.
#[test]
fn as_a_plain_user() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let tests = [
        "restoring::directories_that_are_closed",
        "odd::what_cannot_be_read_is_named_and_not_gone",
        "layers_forks::hostile_names_deep_trees_and_closed_files",
        "layers_forks::directories_that_are_closed",
        "layers_forks::only_what_nobody_stands_on_is_collected",
        "layers_forks::deep_stacks_are_made_shallow",
    ];
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o777);
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .args(tests)
        .env("TMPDIR", dir.path())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output();
    match run {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => {
            rath_testkit::Requirement::PlainUser.skip(format_args!("another user cannot run this binary: {error}"))
        }
    }
}

/// A version with one file whose content the store does not have.
fn with_a_lost_content(place: &Place, version: &Version) -> Version {
    let forest = Forest::new(&*place.store);
    let mut tree = (*block_on(forest.tree(version.id())).unwrap()).clone();
    let lost = Blob::new(&b"never stored"[..], "text/plain").reference;
    let node = Node { kind: NodeKind::File, mode: 0o644, sha256: lost.digest, size: lost.bytes };
    tree.entries.push(Entry { name: "zzz".into(), node });
    Version { tree: block_on(forest.put(tree)).unwrap(), rules: None }
}

#[test]
fn a_restore_that_fails_in_the_middle_is_taken_back() {
    let place = Place::new();
    let mut workspace = place.open();
    for n in 0..20 {
        place.write(&format!("d{n}/file"), "one");
    }
    place.write("becomes a directory", "one");
    let first = place.save(&mut workspace).version;
    for n in 0..20 {
        place.write(&format!("d{n}/file"), "two");
    }
    fs::remove_file(place.path("becomes a directory")).unwrap();
    place.write("becomes a directory/file", "two");
    place.save(&mut workspace);
    let before = place.on_disk();
    let bad = with_a_lost_content(&place, &first);
    let error = workspace.restore(None, &bad).unwrap_err();
    assert_eq!(error.code(), "not-found");
    assert_same(&place.on_disk(), &before, "taken back");
    assert!(!place.state().join("restoring").exists());
    // And after a crash in the middle of such a restore: the next open takes it back, and nobody is stuck.
    let present = place.save(&mut workspace).version;
    drop(workspace);
    let journal = serde_json::json!({ "from": present, "to": bad });
    fs::write(place.state().join("restoring"), journal.to_string()).unwrap();
    place.write("d3/file", "one");
    let (mut workspace, recovered) = place.try_open().unwrap();
    let recovered = recovered.unwrap();
    assert!(recovered.to.same_files(&present) && recovered.version.same_files(&present));
    assert_same(&place.on_disk(), &before, "taken back at the next open");
    place.restore(&mut workspace, &first);
}
