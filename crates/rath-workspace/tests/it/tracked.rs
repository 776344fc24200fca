//! What stays versioned when an ignore rule comes to match it, and what does not.

use std::collections::BTreeSet;
use std::fs;

use rath_core::files::{Name, Version};
use rath_workspace::{Options, Saved, Workspace};

use super::Place;
use super::layers::{Layers, can_mount};

fn paths(place: &Place, version: &Version) -> BTreeSet<String> {
    place.in_version(version).into_keys().map(|path| path.lossy().into_owned()).collect()
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// A workspace with two versioned files, one of them in a directory, whose files stem from its first version.
fn begun(place: &Place) -> (Workspace, Version) {
    place.write("app.conf", "one\n");
    place.write("src/a", "one\n");
    let mut workspace = place.open();
    workspace.track(Vec::new());
    let first = place.save(&mut workspace).version;
    (workspace, first)
}

#[test]
fn a_versioned_file_that_comes_to_be_ignored_stays_versioned() {
    let place = Place::new();
    let (mut workspace, first) = begun(&place);
    place.write(".gitignore", "app.conf\nsrc/\nnew\n");
    place.write("app.conf", "two\n");
    place.write("src/a", "two\n");
    place.write("src/b", "ignored\n");
    place.write("src/deep/c", "ignored\n");
    place.write("new", "ignored\n");
    let kept = set(&[".gitignore", "app.conf", "src", "src/a"]);
    let second = workspace.save().unwrap().version;
    assert_eq!(paths(&place, &second), kept);
    let changed: Vec<_> = workspace.changes(&first, &second).unwrap();
    assert!(changed.iter().all(|change| change.after.is_some()), "nothing was removed: {changed:?}");
    assert_eq!(place.in_version(&second)[&Name::from("src/a")], place.on_disk()[&Name::from("src/a")]);
    // The next save, with the index at hand, with the index of another process, and without any.
    assert!(workspace.save().unwrap().version.same_files(&second));
    place.write("app.conf", "three\n");
    let third = workspace.save().unwrap().version;
    assert_eq!(paths(&place, &third), kept);
    drop(workspace);
    for forget in [false, true] {
        if forget {
            fs::remove_file(place.state().join("index")).unwrap();
        }
        let mut workspace = place.open();
        workspace.track(vec![third.clone()]);
        assert!(workspace.save().unwrap().version.same_files(&third), "{forget}");
    }
    // Whoever begins there does not take it in, whatever the index remembers.
    let mut workspace = place.open();
    assert_eq!(paths(&place, &workspace.save().unwrap().version), set(&[".gitignore"]));
    drop(workspace);
    // Removed and made again it is a new file, which is ignored.
    let mut workspace = place.open();
    workspace.track(vec![third]);
    fs::remove_file(place.path("app.conf")).unwrap();
    assert_eq!(paths(&place, &workspace.save().unwrap().version), set(&[".gitignore", "src", "src/a"]));
    place.write("app.conf", "new\n");
    assert_eq!(paths(&place, &workspace.save().unwrap().version), set(&[".gitignore", "src", "src/a"]));
}

#[test]
fn restores_set_ignored_files_that_are_versioned() {
    let place = Place::new();
    let (mut workspace, first) = begun(&place);
    place.write(".gitignore", "app.conf\nsrc/\n");
    place.write("app.conf", "two\n");
    place.write("src/b", "ignored\n");
    let second = workspace.save().unwrap().version;
    assert!(workspace.restore(Some(&second), &first).unwrap().version.same_files(&first));
    assert_eq!(fs::read(place.path("app.conf")).unwrap(), b"one\n");
    assert!(place.path("src/b").exists(), "what is ignored is left alone");
    fs::remove_file(place.path("src/b")).unwrap();
    assert!(workspace.restore(Some(&first), &second).unwrap().version.same_files(&second));
    assert_eq!(fs::read(place.path("app.conf")).unwrap(), b"two\n");
    // A plain copy of it has it too, and so has one that is made from nothing.
    let copy = Place::with(place.store.clone(), tempfile::TempDir::new().unwrap());
    let mut workspace = copy.open();
    workspace.track(vec![second.clone()]);
    assert!(workspace.restore(None, &second).unwrap().version.same_files(&second));
    assert!(workspace.save().unwrap().version.same_files(&second));
}

#[test]
fn the_same_holds_for_layers() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let first = layers.version(&[("app.conf", "one\n"), ("src/a", "one\n"), ("src/b", "one\n")]);
    let mut workspace = layers.lay("0", &first);
    let script = "printf 'app.conf\\nsrc/\\nnew\\n' > .gitignore; echo two > app.conf; echo x > src/c; echo x > new";
    layers.run(&workspace, script);
    let names = |version: &Version| -> BTreeSet<String> {
        layers.in_version(version).into_keys().map(|path| path.lossy().into_owned()).collect()
    };
    let all = set(&[".gitignore", "app.conf", "src", "src/a", "src/b"]);
    let second = workspace.save().unwrap().version;
    assert_eq!(names(&second), all);
    // Sealed, by both who stand on the layer, and opened again.
    workspace.seal_for(&layers.state("1")).unwrap();
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
    // A checkout of such a version begins with all of it.
    assert!(layers.lay("2", &third).save().unwrap().version.same_files(&third));
}

#[test]
fn what_is_hidden_leaves_the_versions_and_stays_where_it_is() {
    let mut place = Place::new();
    let (workspace, first) = begun(&place);
    drop(workspace);
    place.options = Options { hidden: vec!["src".into(), "key".into()], ..Options::default() };
    place.write("key", "secret\n");
    let mut workspace = place.open();
    workspace.track(vec![first.clone()]);
    let Saved { version: second, .. } = workspace.save().unwrap();
    assert_eq!(paths(&place, &second), set(&["app.conf"]));
    assert!(workspace.changes(&first, &second).unwrap().is_empty(), "hiding is no change of the files");
    place.write("src/a", "changed\n");
    place.write("app.conf", "two\n");
    let third = workspace.save().unwrap().version;
    // Going back to a version that has it leaves it as it is, and is refused for no change of it.
    let restored = workspace.restore(Some(&third), &first).unwrap();
    assert_eq!(paths(&place, &restored.version), set(&["app.conf"]));
    assert_eq!(fs::read(place.path("app.conf")).unwrap(), b"one\n");
    assert_eq!(fs::read(place.path("src/a")).unwrap(), b"changed\n");
    assert_eq!(fs::read(place.path("key")).unwrap(), b"secret\n");
    workspace.restore(Some(&first), &third).unwrap();
    assert_eq!(fs::read(place.path("src/a")).unwrap(), b"changed\n");
}

#[test]
fn what_is_hidden_leaves_layers_too() {
    if !can_mount() {
        return;
    }
    let mut layers = Layers::new();
    let first = layers.version(&[("a", "one\n"), ("inner/k", "secret\n"), ("inner/l", "one\n")]);
    drop(layers.lay("0", &first));
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
    assert_eq!(names(&layers, &layers.lay("1", &first).save().unwrap().version), left);
}
