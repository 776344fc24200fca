//! What a restore must not do, and how it behaves when other processes change files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollster::block_on;
use rath_core::Blob;
use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeEntry, TreeStore, Version};
use rath_workspace::{Error, Options, Workspace};

use super::{DiskEntry, Fixture, assert_same, chmod, temporaries};

/// The paths that are reported to be in the way. Checks that nothing was changed.
#[track_caller]
fn refused(fixture: &Fixture, workspace: &mut Workspace, to: &Version) -> Vec<String> {
    let before = fixture.on_disk();
    let error = workspace.restore(None, to).unwrap_err();
    assert_same(&fixture.on_disk(), &before, "refused");
    assert!(!fixture.state().join("restoring").exists());
    match error {
        Error::InTheWay { paths } => paths.iter().map(ToString::to_string).collect(),
        error => panic!("{error}"),
    }
}

#[test]
fn outside_changes_stop_a_restore() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("a", "one");
    fixture.write("d/b", "one");
    let first = fixture.save(&mut workspace).version;
    fixture.write("a", "two");
    let second = fixture.save(&mut workspace).version;
    fixture.write("a", "outside");
    fixture.write("new", "outside");
    fs::remove_file(fixture.path("d/b")).unwrap();
    let before = fixture.on_disk();
    let Err(Error::OutsideChanges { changes }) = workspace.restore(Some(&second), &first) else { panic!() };
    let said: Vec<_> = changes.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect();
    assert_eq!(said, ["M a", "D d/b", "A new"]);
    assert_same(&fixture.on_disk(), &before, "stopped");
    let restored = workspace.restore(None, &first).unwrap();
    assert_same(&fixture.in_version(&restored.from), &before, "what was there is in the store");
    assert_same(&fixture.on_disk(), &fixture.in_version(&first), "restored");
    // The overwritten version can be restored.
    fixture.restore(&mut workspace, &restored.from);
    assert_same(&fixture.on_disk(), &before, "had again");
}

#[test]
fn two_sessions_in_one_directory_detect_each_others_changes() {
    let fixture = Fixture::new();
    let other = fixture.dir.path().join("other");
    let mut one = fixture.open();
    let (mut two, _) = Workspace::open(fixture.store.clone(), &fixture.root(), &other, &fixture.options).unwrap();
    fixture.write("a", "one");
    let of_one = fixture.save(&mut one).version;
    fixture.write("a", "two");
    let of_two = fixture.save(&mut two).version;
    assert!(matches!(one.restore(Some(&of_one), &of_one), Err(Error::OutsideChanges { .. })));
    one.restore(None, &of_one).unwrap();
    assert!(matches!(two.restore(Some(&of_two), &of_two), Err(Error::OutsideChanges { .. })));
    assert!(two.save().unwrap().version.same_files(&of_one));
    fixture.restore(&mut two, &of_two);
    assert!(fixture.save(&mut one).version.same_files(&of_two));
}

#[test]
fn unversioned_files_are_in_the_way() {
    let mut fixture = Fixture::new();
    fixture.options = Options { ignore: vec!["*.ign".into()], ..Options::default() };
    let mut workspace = fixture.open();
    fixture.write("keep", "x");
    fixture.write("f", "a file");
    fixture.write("g/h", "a file");
    fixture.write("link", "a file");
    let files = fixture.save(&mut workspace).version;
    for path in ["f", "g/h", "link"] {
        fs::remove_file(fixture.path(path)).unwrap();
    }
    fs::remove_dir(fixture.path("g")).unwrap();
    let bare = fixture.save(&mut workspace).version;

    // An ignored file in a directory that must become a file.
    fixture.write("f/deep/x.ign", "ignored");
    assert_eq!(refused(&fixture, &mut workspace, &files), ["f"]);
    fixture.write("f/deep/y", "versioned");
    assert_eq!(refused(&fixture, &mut workspace, &files), ["f/deep/x.ign"]);
    fs::remove_dir_all(fixture.path("f")).unwrap();

    // Special files where a file or a directory must be written.
    let socket = UnixListener::bind(fixture.path("f")).unwrap();
    assert_eq!(refused(&fixture, &mut workspace, &files), ["f"]);
    drop(socket);
    fs::remove_file(fixture.path("f")).unwrap();
    let _socket = UnixListener::bind(fixture.path("g")).unwrap();
    assert_eq!(refused(&fixture, &mut workspace, &files), ["g"]);
    fs::remove_file(fixture.path("g")).unwrap();
    fixture.restore(&mut workspace, &bare);
    fixture.restore(&mut workspace, &files);
}

#[test]
fn newly_ignored_files_are_adopted_or_in_the_way() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("x.log", "content");
    symlink("there", fixture.path("l.log")).unwrap();
    let all = fixture.save(&mut workspace).version;
    fixture.write(".gitignore", "*.log\n");
    let without = workspace.save().unwrap().version;
    assert_eq!(fixture.in_version(&without).len(), 1);
    // The file has the wanted content, with other permissions.
    chmod(&fixture.path("x.log"), 0o600);
    fixture.restore(&mut workspace, &all);
    fixture.write(".gitignore", "*.log\n");
    workspace.save().unwrap();
    fixture.write("x.log", "changed");
    assert_eq!(refused(&fixture, &mut workspace, &all), ["x.log"]);
    fs::remove_file(fixture.path("x.log")).unwrap();
    fs::remove_file(fixture.path("l.log")).unwrap();
    symlink("elsewhere", fixture.path("l.log")).unwrap();
    assert_eq!(refused(&fixture, &mut workspace, &all), ["l.log"]);
}

#[test]
fn ignored_files_stay_where_they_are() {
    let mut fixture = Fixture::new();
    fixture.options = Options { ignore: vec!["*.ign".into(), "target/".into()], ..Options::default() };
    let mut workspace = fixture.open();
    fixture.write("d/e/f", "x");
    let with = fixture.save(&mut workspace).version;
    fs::remove_dir_all(fixture.path("d")).unwrap();
    let without = fixture.save(&mut workspace).version;
    fixture.restore(&mut workspace, &with);
    fixture.write("d/e/kept.ign", "ignored");
    fixture.write("d/target/out", "ignored");
    assert!(workspace.restore(None, &without).unwrap().version.same_files(&without));
    assert_eq!(fs::read(fixture.path("d/e/kept.ign")).unwrap(), b"ignored");
    assert_eq!(fs::read(fixture.path("d/target/out")).unwrap(), b"ignored");
    assert!(!fixture.path("d/e/f").exists());
    assert!(workspace.save().unwrap().version.same_files(&without));
    assert!(workspace.restore(None, &with).unwrap().version.same_files(&with));
    assert_eq!(fs::read(fixture.path("d/e/kept.ign")).unwrap(), b"ignored");
}

#[test]
fn a_file_becomes_a_directory_and_back() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("a", "a file");
    fixture.write("b/c/d", "deep");
    symlink("b", fixture.path("l")).unwrap();
    let first = fixture.save(&mut workspace).version;
    fs::remove_file(fixture.path("a")).unwrap();
    fixture.write("a/b/c", "below what was a file");
    fs::remove_dir_all(fixture.path("b")).unwrap();
    symlink("a", fixture.path("b")).unwrap();
    fs::remove_file(fixture.path("l")).unwrap();
    fs::create_dir(fixture.path("l")).unwrap();
    let second = fixture.save(&mut workspace).version;
    for _ in 0..3 {
        fixture.restore(&mut workspace, &first);
        fixture.restore(&mut workspace, &second);
        workspace = {
            drop(workspace);
            fixture.open()
        };
    }
}

/// Hard links are separate files in a version.
#[test]
fn hard_links_are_restored_as_separate_files() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("x", "same");
    fixture.write("y", "same");
    fixture.write("z", "other");
    chmod(&fixture.path("y"), 0o600);
    let apart = fixture.save(&mut workspace).version;
    for name in ["y", "z"] {
        fs::remove_file(fixture.path(name)).unwrap();
        fs::hard_link(fixture.path("x"), fixture.path(name)).unwrap();
    }
    let together = fixture.save(&mut workspace).version;
    fixture.restore(&mut workspace, &apart);
    assert_eq!(fixture.path("x").metadata().unwrap().nlink(), 1);
    fixture.restore(&mut workspace, &together);
    // Remove all of them, then change all of them.
    for name in ["x", "y", "z"] {
        fs::remove_file(fixture.path(name)).unwrap();
    }
    let none = fixture.save(&mut workspace).version;
    fixture.write("x", "new");
    fs::hard_link(fixture.path("x"), fixture.path("y")).unwrap();
    fs::hard_link(fixture.path("x"), fixture.path("z")).unwrap();
    fixture.restore(&mut workspace, &apart);
    fixture.restore(&mut workspace, &none);
}

#[test]
fn a_planted_link_is_not_followed() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    chmod(&outside.join("f"), 0o640);
    let mut workspace = fixture.open();
    fixture.write("d/f", "inside");
    let first = fixture.save(&mut workspace).version;
    fs::remove_dir_all(fixture.path("d")).unwrap();
    symlink(&outside, fixture.path("d")).unwrap();
    symlink(outside.join("f"), fixture.path("e")).unwrap();
    let second = fixture.save(&mut workspace).version;
    for version in [&first, &second, &first] {
        fixture.restore(&mut workspace, version);
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"outside");
        assert_eq!(outside.join("f").metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
}

/// A version that was not saved from a directory.
fn version_of(fixture: &Fixture, entries: Vec<TreeEntry>) -> Version {
    let tree = block_on(TreeStore::new(&*fixture.store).put(Tree { entries })).unwrap();
    Version { tree, rules: None }
}

fn put(fixture: &Fixture, kind: NodeKind, mode: u32, content: &[u8]) -> Node {
    let blob = Blob::new(content, "application/octet-stream");
    let node = Node { kind, mode, sha256: blob.reference.digest, size: content.len() as u64 };
    block_on(fixture.store.blob_put(vec![blob])).unwrap();
    node
}

#[test]
fn a_version_that_no_directory_can_represent_is_normalized() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("a", "x");
    workspace.save().unwrap();
    let link = TreeEntry { name: FilePath::from("l"), node: put(&fixture, NodeKind::Symlink, 0o644, b"a") };
    let version = version_of(&fixture, vec![link]);
    let restored = workspace.restore(None, &version).unwrap();
    assert!(!restored.version.same_files(&version));
    assert_same(&fixture.on_disk(), &fixture.in_version(&restored.version), "what there is, is in the store");
}

#[test]
fn no_version_can_write_git_hooks() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path(".git/hooks")).unwrap();
    let mut workspace = fixture.open();
    for path in [".git", ".git/hooks", ".rath", "sub/.git", ".rath-x.tmp"] {
        let mut node = put(&fixture, NodeKind::File, 0o755, b"#!/bin/sh\n");
        let mut entries = vec![TreeEntry { name: FilePath::from("hook"), node }];
        for name in path.split('/').rev() {
            let tree = block_on(TreeStore::new(&*fixture.store).put(Tree { entries })).unwrap();
            node = Node { kind: NodeKind::Directory, mode: 0o755, sha256: tree.digest, size: tree.bytes };
            entries = vec![TreeEntry { name: FilePath::from(name), node }];
        }
        let version = version_of(&fixture, entries);
        let paths = refused(&fixture, &mut workspace, &version);
        assert!(paths.iter().any(|refused| refused.ends_with("hook")), "{paths:?}");
    }
}

#[test]
fn a_missing_content_is_reported() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("a", "x");
    let there = fixture.save(&mut workspace).version;
    let missing = Node { kind: NodeKind::File, mode: 0o644, sha256: rath_core::Digest::of(b"nowhere"), size: 7 };
    let version = version_of(&fixture, vec![TreeEntry { name: FilePath::from("a"), node: missing }]);
    assert!(matches!(workspace.restore(None, &version), Err(Error::Store(_))));
    assert_eq!(fs::read(fixture.path("a")).unwrap(), b"x");
    assert!(temporaries(&fixture.on_disk()).is_empty());
    // The other version can still be restored.
    fixture.restore(&mut workspace, &there);
}

/// Another thread rewrites a file continuously, in place and by rename.
#[test]
fn a_file_that_changes_during_a_restore_is_kept_or_restored() {
    for renames in [false, true] {
        let fixture = Fixture::new();
        let mut workspace = fixture.open();
        fixture.write("busy", "the first version");
        for n in 0..40 {
            fixture.write(&format!("d/{n}"), "one");
        }
        let first = fixture.save(&mut workspace).version;
        for n in 0..40 {
            fixture.write(&format!("d/{n}"), "two");
        }
        fixture.write("busy", "v".repeat(2000));
        let second = fixture.save(&mut workspace).version;
        let stop = AtomicBool::new(false);
        let path = fixture.path("busy");
        let temporary = fixture.dir.path().join("temporary");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let content = format!("{n:08} ").repeat(300);
                    match renames {
                        true => fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, &path)).unwrap(),
                        false => fs::write(&path, content).unwrap(),
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            for version in [&first, &second].into_iter().cycle().take(12) {
                let restored = workspace.restore(None, version).unwrap();
                let others = |files: super::Files| -> super::Files {
                    files.into_iter().filter(|(path, _)| *path != FilePath::from("busy")).collect()
                };
                assert_same(&others(fixture.on_disk()), &others(fixture.in_version(version)), "the others");
                assert!(restored.kept.iter().all(|path| *path == FilePath::from("busy")), "{:?}", restored.kept);
                let Some(DiskEntry::File { content, .. }) =
                    fixture.in_version(&restored.from).remove(&FilePath::from("busy"))
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
        fixture.restore(&mut workspace, &first);
    }
}

/// Directories without write permission are filled too.
#[test]
fn read_only_directories_are_restored() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("d/a", "one");
    fixture.write("d/e/b", "one");
    chmod(&fixture.path("d/e"), 0o555);
    chmod(&fixture.path("d"), 0o555);
    let first = fixture.save(&mut workspace).version;
    chmod(&fixture.path("d"), 0o755);
    chmod(&fixture.path("d/e"), 0o755);
    fs::remove_dir_all(fixture.path("d")).unwrap();
    let second = fixture.save(&mut workspace).version;
    fixture.write("d/a", "two");
    fixture.write("d/e/b", "two");
    chmod(&fixture.path("d/e"), 0o555);
    chmod(&fixture.path("d"), 0o555);
    let third = fixture.save(&mut workspace).version;
    for version in [&first, &third, &second, &third, &first, &second] {
        fixture.restore(&mut workspace, version);
    }
}

/// Runs the tests about permissions as a user other than root, because root may do everything.
#[test]
fn as_a_plain_user() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let tests = [
        "restoring::read_only_directories_are_restored",
        "odd::unreadable_files_are_reported_and_kept",
        "layers_forks::hostile_names_deep_trees_and_closed_files",
        "layers_forks::read_only_directories_are_restored",
        "layers_forks::only_unused_layers_are_collected",
        "layers_forks::deep_stacks_are_squashed",
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

/// A version with a file whose content is missing in the store.
fn with_a_lost_content(fixture: &Fixture, version: &Version) -> Version {
    let forest = TreeStore::new(&*fixture.store);
    let mut tree = (*block_on(forest.tree(version.id())).unwrap()).clone();
    let lost = Blob::new(&b"never stored"[..], "text/plain").reference;
    let node = Node { kind: NodeKind::File, mode: 0o644, sha256: lost.digest, size: lost.bytes };
    tree.entries.push(TreeEntry { name: "zzz".into(), node });
    Version { tree: block_on(forest.put(tree)).unwrap(), rules: None }
}

#[test]
fn a_restore_that_fails_halfway_is_undone() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    for n in 0..20 {
        fixture.write(&format!("d{n}/file"), "one");
    }
    fixture.write("becomes a directory", "one");
    let first = fixture.save(&mut workspace).version;
    for n in 0..20 {
        fixture.write(&format!("d{n}/file"), "two");
    }
    fs::remove_file(fixture.path("becomes a directory")).unwrap();
    fixture.write("becomes a directory/file", "two");
    fixture.save(&mut workspace);
    let before = fixture.on_disk();
    let bad = with_a_lost_content(&fixture, &first);
    let error = workspace.restore(None, &bad).unwrap_err();
    assert_eq!(error.code(), "not-found");
    assert_same(&fixture.on_disk(), &before, "undone");
    assert!(!fixture.state().join("restoring").exists());
    // The same after a crash halfway through: the next open undoes the restore.
    let present = fixture.save(&mut workspace).version;
    drop(workspace);
    let journal = serde_json::json!({ "from": present, "to": bad });
    fs::write(fixture.state().join("restoring"), journal.to_string()).unwrap();
    fixture.write("d3/file", "one");
    let (mut workspace, recovered) = fixture.try_open().unwrap();
    let recovered = recovered.unwrap();
    assert!(recovered.to.same_files(&present) && recovered.version.same_files(&present));
    assert_same(&fixture.on_disk(), &before, "undone at the next open");
    fixture.restore(&mut workspace, &first);
}
