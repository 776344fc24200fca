//! Versioned paths that an ignore rule starts to match.

use std::collections::BTreeSet;
use std::fs;

use rath_core::files::{FilePath, Version};
use rath_workspace::{Options, Saved, Workspace};

use super::Fixture;
use super::layers::{Layers, can_mount};

fn paths(fixture: &Fixture, version: &Version) -> BTreeSet<String> {
    fixture.in_version(version).into_keys().map(|path| path.lossy().into_owned()).collect()
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// A workspace with two versioned files, one of them in a directory, that tracks its first version.
fn tracked_workspace(fixture: &Fixture) -> (Workspace, Version) {
    fixture.write("app.conf", "one\n");
    fixture.write("src/a", "one\n");
    let mut workspace = fixture.open();
    workspace.track(Vec::new());
    let first = fixture.save(&mut workspace).version;
    (workspace, first)
}

#[test]
fn a_versioned_file_stays_versioned_when_it_is_ignored() {
    let fixture = Fixture::new();
    let (mut workspace, first) = tracked_workspace(&fixture);
    fixture.write(".gitignore", "app.conf\nsrc/\nnew\n");
    fixture.write("app.conf", "two\n");
    fixture.write("src/a", "two\n");
    fixture.write("src/b", "ignored\n");
    fixture.write("src/deep/c", "ignored\n");
    fixture.write("new", "ignored\n");
    let kept = set(&[".gitignore", "app.conf", "src", "src/a"]);
    let second = workspace.save().unwrap().version;
    assert_eq!(paths(&fixture, &second), kept);
    let changed: Vec<_> = workspace.changes(&first, &second).unwrap();
    assert!(changed.iter().all(|change| change.after.is_some()), "nothing was removed: {changed:?}");
    assert_eq!(fixture.in_version(&second)[&FilePath::from("src/a")], fixture.on_disk()[&FilePath::from("src/a")]);
    // Save again with the index in memory, with the index on disk, and without an index.
    assert!(workspace.save().unwrap().version.same_files(&second));
    fixture.write("app.conf", "three\n");
    let third = workspace.save().unwrap().version;
    assert_eq!(paths(&fixture, &third), kept);
    drop(workspace);
    for forget in [false, true] {
        if forget {
            fs::remove_file(fixture.state().join("index")).unwrap();
        }
        let mut workspace = fixture.open();
        workspace.track(vec![third.clone()]);
        assert!(workspace.save().unwrap().version.same_files(&third), "{forget}");
    }
    // A workspace that tracks another version does not have the ignored paths, even if the index has them.
    let mut workspace = fixture.open();
    assert_eq!(paths(&fixture, &workspace.save().unwrap().version), set(&[".gitignore"]));
    drop(workspace);
    // After it was removed and created again, it is a new file, which is ignored.
    let mut workspace = fixture.open();
    workspace.track(vec![third]);
    fs::remove_file(fixture.path("app.conf")).unwrap();
    assert_eq!(paths(&fixture, &workspace.save().unwrap().version), set(&[".gitignore", "src", "src/a"]));
    fixture.write("app.conf", "new\n");
    assert_eq!(paths(&fixture, &workspace.save().unwrap().version), set(&[".gitignore", "src", "src/a"]));
}

#[test]
fn restores_write_ignored_files_that_are_versioned() {
    let fixture = Fixture::new();
    let (mut workspace, first) = tracked_workspace(&fixture);
    fixture.write(".gitignore", "app.conf\nsrc/\n");
    fixture.write("app.conf", "two\n");
    fixture.write("src/b", "ignored\n");
    let second = workspace.save().unwrap().version;
    assert!(workspace.restore(Some(&second), &first).unwrap().version.same_files(&first));
    assert_eq!(fs::read(fixture.path("app.conf")).unwrap(), b"one\n");
    assert!(fixture.path("src/b").exists(), "what is ignored is left alone");
    fs::remove_file(fixture.path("src/b")).unwrap();
    assert!(workspace.restore(Some(&first), &second).unwrap().version.same_files(&second));
    assert_eq!(fs::read(fixture.path("app.conf")).unwrap(), b"two\n");
    // A copy of the directory has the same versioned files, and so does an empty directory after a restore.
    let copy = Fixture::with(fixture.store.clone(), tempfile::TempDir::new().unwrap());
    let mut workspace = copy.open();
    workspace.track(vec![second.clone()]);
    assert!(workspace.restore(None, &second).unwrap().version.same_files(&second));
    assert!(workspace.save().unwrap().version.same_files(&second));
}

#[test]
fn layered_workspaces_keep_versioned_files_too() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let first = layers.version(&[("app.conf", "one\n"), ("src/a", "one\n"), ("src/b", "one\n")]);
    let mut workspace = layers.create_layered("0", &first);
    let script = "printf 'app.conf\\nsrc/\\nnew\\n' > .gitignore; echo two > app.conf; echo x > src/c; echo x > new";
    layers.run(&workspace, script);
    let names = |version: &Version| -> BTreeSet<String> {
        layers.in_version(version).into_keys().map(|path| path.lossy().into_owned()).collect()
    };
    let all = set(&[".gitignore", "app.conf", "src", "src/a", "src/b"]);
    let second = workspace.save().unwrap().version;
    assert_eq!(names(&second), all);
    // After sealing, in both workspaces that are based on the layer, and after opening them again.
    workspace.fork_into(&layers.state("1")).unwrap();
    assert!(workspace.save().unwrap().version.same_files(&second));
    let mut fork = layers.open("1");
    assert!(fork.save().unwrap().version.same_files(&second));
    layers.run(&fork, "echo three > app.conf; rm src/a; echo x > src/d");
    fork.track(vec![second.clone()]);
    let third = fork.save().unwrap().version;
    assert_eq!(names(&third), set(&[".gitignore", "app.conf", "src", "src/b"]));
    layers.run(&fork, "rm src/c src/d new");
    assert!(fork.restore(Some(&third), &first).unwrap().version.same_files(&first));
    assert!(fork.restore(Some(&first), &third).unwrap().version.same_files(&third));
    drop(fork);
    let mut fork = layers.open("1");
    fork.track(vec![third.clone()]);
    assert!(fork.save().unwrap().version.same_files(&third));
    // A checkout of such a version has all of its files.
    assert!(layers.create_layered("2", &third).save().unwrap().version.same_files(&third));
}

#[test]
fn hidden_paths_leave_the_versions_and_stay_on_disk() {
    let mut fixture = Fixture::new();
    let (workspace, first) = tracked_workspace(&fixture);
    drop(workspace);
    fixture.options = Options { hidden: vec!["src".into(), "key".into()], ..Options::default() };
    fixture.write("key", "secret\n");
    let mut workspace = fixture.open();
    workspace.track(vec![first.clone()]);
    let Saved { version: second, .. } = workspace.save().unwrap();
    assert_eq!(paths(&fixture, &second), set(&["app.conf"]));
    assert!(workspace.changes(&first, &second).unwrap().is_empty(), "hiding is no change of the files");
    fixture.write("src/a", "changed\n");
    fixture.write("app.conf", "two\n");
    let third = workspace.save().unwrap().version;
    // A restore of a version that contains hidden paths leaves them alone, and their changes do not stop it.
    let restored = workspace.restore(Some(&third), &first).unwrap();
    assert_eq!(paths(&fixture, &restored.version), set(&["app.conf"]));
    assert_eq!(fs::read(fixture.path("app.conf")).unwrap(), b"one\n");
    assert_eq!(fs::read(fixture.path("src/a")).unwrap(), b"changed\n");
    assert_eq!(fs::read(fixture.path("key")).unwrap(), b"secret\n");
    workspace.restore(Some(&first), &third).unwrap();
    assert_eq!(fs::read(fixture.path("src/a")).unwrap(), b"changed\n");
}

#[test]
fn hidden_paths_leave_layered_versions_too() {
    if !can_mount() {
        return;
    }
    let mut layers = Layers::new();
    let first = layers.version(&[("a", "one\n"), ("inner/k", "secret\n"), ("inner/l", "one\n")]);
    drop(layers.create_layered("0", &first));
    layers.options = Options { hidden: vec!["inner/k".into()], ..Options::default() };
    let names = |layers: &Layers, version: &Version| -> BTreeSet<String> {
        layers.in_version(version).into_keys().map(|path| path.lossy().into_owned()).collect()
    };
    let left = set(&["a", "inner", "inner/l"]);
    let mut workspace = layers.open("0");
    workspace.track(vec![first.clone()]);
    let second = workspace.save().unwrap().version;
    assert_eq!(names(&layers, &second), left);
    layers.run(&workspace, "echo two > inner/k; echo two > a");
    assert_eq!(names(&layers, &workspace.save().unwrap().version), left);
    let present = workspace.save().unwrap().version;
    let restored = workspace.restore(Some(&present), &first).unwrap();
    assert_eq!(names(&layers, &restored.version), left);
    assert_eq!(names(&layers, &layers.create_layered("1", &first).save().unwrap().version), left);
}
