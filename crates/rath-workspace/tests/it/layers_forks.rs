//! Forks of layered workspaces, shared layers, and their collection.

use std::fs;
use std::path::Path;

use rath_core::files::FilePath;
use rath_workspace::{Error, Options, Workspace, WorkspaceBudget, collect_layers};

use super::layers::{Layers, can_mount};
use super::{DiskEntry, assert_same};

const FILES: &[(&str, &str)] = &[("a", "one"), ("d/b", "two"), ("d/e/c", "three"), (".gitignore", "*.log\n")];

/// Names of the checkouts or layers that exist.
fn names(layers: &Layers, kind: &str) -> Vec<String> {
    let entries = fs::read_dir(layers.home().join(kind)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn text(files: &super::Files, path: &str) -> Option<String> {
    match files.get(&FilePath::from(path)) {
        Some(DiskEntry::File { content, .. }) => Some(String::from_utf8(content.clone()).unwrap()),
        _ => None,
    }
}

#[test]
fn a_checkout_is_written_once() {
    let layers = Layers::new();
    let version = layers.version(FILES);
    let create = |name: &str| {
        Workspace::create_layered(layers.store.clone(), &layers.home(), &layers.state(name), &version, &layers.options)
            .unwrap()
    };
    let (mut first, stats) = create("one");
    assert!(!stats.reused && stats.files == 6 && stats.bytes == 17, "{stats:?}");
    let (mut second, stats) = create("two");
    assert!(stats.reused && stats.files == 0, "{stats:?}");
    assert_eq!(first.overlay().unwrap().lowers, second.overlay().unwrap().lowers);
    for workspace in [&mut first, &mut second] {
        let saved = workspace.save().unwrap();
        assert_eq!(saved.version, version);
        assert_eq!((saved.files, saved.bytes, saved.read), (6, 17, 0));
    }
    assert!(Workspace::is_layered(&layers.state("one")));
    assert!(!Workspace::is_layered(&layers.state("three")));
    assert!(
        Workspace::open_layered(layers.store.clone(), &layers.home(), &layers.state("three"), &layers.options).is_err()
    );
    let again = Workspace::create_layered(
        layers.store.clone(),
        &layers.home(),
        &layers.state("one"),
        &version,
        &layers.options,
    );
    assert!(matches!(again, Err(Error::Busy { .. })));
    drop(first);
    let again = Workspace::create_layered(
        layers.store.clone(),
        &layers.home(),
        &layers.state("one"),
        &version,
        &layers.options,
    );
    assert_eq!(again.map(drop).unwrap_err().code(), "machine");
}

/// Several threads create workspaces of the same version: one of them writes the checkout, all of them use it.
#[test]
fn concurrent_checkouts_of_one_version_are_complete() {
    let layers = Layers::new();
    let files: Vec<_> = (0..300).map(|n| (format!("d{}/{n}", n % 9), format!("{n}"))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let version = layers.version(&files);
    let whole = layers.in_version(&version);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (layers, version, whole) = (&layers, &version, &whole);
            scope.spawn(move || {
                let name = format!("{n}");
                let mut workspace = layers.create_layered(&name, version);
                let checkout = &workspace.overlay().unwrap().lowers[0];
                assert_same(&super::on_disk(checkout), whole, "the checkout");
                assert_eq!(workspace.save().unwrap().version, *version);
                collect_layers(&layers.home(), false).unwrap();
            });
        }
    });
    assert_eq!(names(&layers, "checkouts").len(), 1);
    for n in 0..8 {
        assert_eq!(layers.open(&format!("{n}")).save().unwrap().version, version);
    }
}

#[test]
fn forks_are_independent_and_keep_ignored_files() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut root = layers.create_layered("root", &layers.version(FILES));
    layers.run(&root, "echo root > a; echo kept > d/noise.log; rm d/b; mkdir new; echo x > new/x");
    let sealed = root.fork_into(&layers.state("child")).unwrap();
    assert!(sealed.sealed && !sealed.squashed);
    let mut child = layers.open("child");
    assert_eq!(child.save().unwrap().version, sealed.saved.version);
    assert_same(&layers.view(&child), &layers.view(&root), "a fork");
    layers.run(&child, "echo child > a; rm -r new; echo b > d/b");
    let sealed = child.fork_into(&layers.state("grandchild")).unwrap();
    let mut grandchild = layers.open("grandchild");
    layers.run(&grandchild, "echo grandchild > a; rm d/noise.log; mkdir new");
    layers.run(&root, "echo again > a");
    assert_eq!(child.save().unwrap().version, sealed.saved.version);
    let views = [&root, &child, &grandchild].map(|workspace| layers.view(workspace));
    let column = |path: &str| views.iter().map(|view| text(view, path)).collect::<Vec<_>>();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(column("a"), [some("again\n"), some("child\n"), some("grandchild\n")]);
    assert_eq!(column("d/noise.log"), [some("kept\n"), some("kept\n"), None]);
    assert_eq!(column("d/b"), [None, some("b\n"), some("b\n")]);
    assert_eq!(column("new/x"), [some("x\n"), None, None]);
    for (workspace, view) in [&mut root, &mut child, &mut grandchild].into_iter().zip(&views) {
        let mut seen = view.clone();
        seen.remove(&FilePath::from("d/noise.log"));
        assert_same(&layers.in_version(&workspace.save().unwrap().version), &seen, "saved");
    }
    // Without changes, nothing is sealed.
    let before = names(&layers, "layers").len();
    assert!(root.fork_into(&layers.state("other")).unwrap().sealed);
    assert!(!layers.open("other").fork_into(&layers.state("third")).unwrap().sealed);
    assert_eq!(names(&layers, "layers").len(), before + 1);
}

#[test]
fn deep_stacks_are_squashed() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.create_layered("0", &layers.version(FILES));
    let mut versions = Vec::new();
    let mut depths = Vec::new();
    for n in 1..=20 {
        let script = format!(
            "echo {n} > f{n}; rm -f f{}; echo {n} > d/e/c; echo {n} > {n}.log
             case {n} in
             2|11) rm -r d/e; mkdir d/e; echo new > d/e/n{n};;
             3|12) rm -r d; echo file > d;;
             4|13) rm d; mkdir d; mkdir d/e; echo x > d/x;;
             5) chmod 700 d; ln -s nowhere d/link; ln a d/again;;
             6) rm a;;
             14) rm -r d;;
             esac; true",
            n - 3
        );
        layers.run(&workspace, script);
        let before = layers.view(&workspace);
        let sealed = workspace.fork_into(&layers.state(&format!("{n}"))).unwrap();
        let depth = workspace.overlay().unwrap().lowers.len();
        assert_eq!(sealed.squashed, depth == 2 && n > 1);
        depths.push(depth);
        assert_same(&layers.view(&workspace), &before, "sealed");
        assert_eq!(workspace.save().unwrap().version, sealed.saved.version);
        versions.push((sealed.saved.version, before));
    }
    assert_eq!(*depths.iter().max().unwrap(), 8);
    collect_layers(&layers.home(), false).unwrap();
    for (n, (version, view)) in versions.iter().enumerate() {
        let mut fork = layers.open(&format!("{}", n + 1));
        assert_same(&layers.view(&fork), view, "a fork");
        assert_eq!(fork.save().unwrap().version, *version);
        let (first, _) = &versions[0];
        assert!(fork.restore(None, first).unwrap().version.same_files(first));
    }
}

#[test]
fn only_unused_layers_are_collected() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    assert_eq!(collect_layers(&layers.home(), false).unwrap().removed.len(), 0);
    let mut one = layers.create_layered("one", &layers.version(FILES));
    let two = layers.create_layered("two", &layers.version(&[("other", "file")]));
    layers.run(&one, "echo x > a; mkdir -p closed/in; echo x > closed/in/f; chmod 555 closed/in closed");
    one.fork_into(&layers.state("child")).unwrap();
    let before = layers.view(&one);
    fs::create_dir_all(layers.home().join("layers/.new-half/d")).unwrap();
    fs::create_dir_all(layers.home().join("checkouts/.new-half/d")).unwrap();
    fs::create_dir_all(layers.home().join("layers/forgotten/d")).unwrap();
    drop(two);
    rath_workspace::remove_tree(&layers.state("two")).unwrap();
    let would = collect_layers(&layers.home(), true).unwrap();
    assert_eq!(would.removed.len(), 4, "{would:?}");
    assert!(would.bytes > 0 && would.removed.iter().all(|path| path.is_dir()));
    assert_eq!(collect_layers(&layers.home(), false).unwrap(), would);
    assert!(would.removed.iter().all(|path| !path.exists()));
    assert_eq!(collect_layers(&layers.home(), false).unwrap().removed, Vec::<&Path>::new());
    assert_same(&layers.view(&one), &before, "layers in use");
    drop(one);
    for name in ["one", "child"] {
        assert_same(&layers.view(&layers.open(name)), &before, "layers in use");
        rath_workspace::remove_tree(&layers.state(name)).unwrap();
    }
    // Read-only directories are removed too.
    assert_eq!(collect_layers(&layers.home(), false).unwrap().removed.len(), 2);
    // An unreadable manifest could name any layer, so nothing is removed.
    let version = layers.version(FILES);
    drop(layers.create_layered("broken", &version));
    fs::write(layers.state("broken").join("stack.json"), "{").unwrap();
    assert!(collect_layers(&layers.home(), false).is_err());
    assert_eq!(names(&layers, "checkouts").len(), 1);
}

#[test]
fn hostile_names_deep_trees_and_closed_files() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.create_layered("0", &layers.version(FILES));
    let first = workspace.save().unwrap().version;
    let script = b"
        printf x > 'new
line'; printf x > '\xff\xfe'; printf x > .wh.a; printf x > .wh..wh..opq; : > user.overlay.whiteout; : > d/.wh.b
        p=deep; for n in $(seq 200); do p=$p/n; done; mkdir -p $p; printf x > $p/bottom
        printf x > closed; chmod 000 closed; mkdir locked; printf x > locked/in; chmod 000 locked
        mkdir empty; mkfifo pipe; touch -h -d @0 a; ln -s '\xff' link; printf x > d/two; ln d/two d/names
        rm .gitignore; mkdir .gitignore; printf x > .gitignore/file";
    layers.run(&workspace, script);
    let is_root = rustix::process::geteuid().is_root();
    let saved = workspace.save().unwrap();
    let skipped: Vec<_> = saved.skipped.iter().map(|skipped| skipped.path.to_string()).collect();
    match is_root {
        true => assert_eq!(skipped, ["pipe"]),
        false => assert!(skipped.contains(&"closed".to_owned()) && skipped.contains(&"locked".to_owned())),
    }
    assert!(saved.unstable.is_empty());
    if is_root {
        let mut view = layers.view(&workspace);
        view.remove(&FilePath::from("pipe"));
        assert_same(&layers.in_version(&saved.version), &view, "saved");
    }
    let sealed = workspace.fork_into(&layers.state("1")).unwrap();
    assert_eq!(sealed.saved.version, saved.version);
    let mut fork = layers.open("1");
    assert_eq!(fork.save().unwrap().version, saved.version);
    assert_eq!(fork.save().unwrap().skipped.len(), saved.skipped.len());
    layers.run(&fork, "rm -rf deep locked closed pipe; echo x > deep");
    assert!(fork.save().unwrap().skipped.is_empty());
    if is_root {
        let restored = fork.restore(None, &saved.version).unwrap();
        assert!(restored.version.same_files(&saved.version));
        assert_same(&layers.in_version(&saved.version), &layers.view(&fork), "set back");
    }
    let restored = fork.restore(None, &first).unwrap();
    assert_eq!(restored.version, first);
    assert_same(&layers.view(&fork), &layers.in_version(&first), "set back to the first");
}

/// Extended attributes that overlayfs or other programs leave in the upper directory.
#[test]
fn foreign_extended_attributes_are_ignored() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let layers = Layers::new();
    let mut workspace = layers.create_layered("0", &layers.version(FILES));
    let upper = workspace.overlay().unwrap().upper;
    fs::create_dir(upper.join("d")).unwrap();
    fs::write(upper.join("d/b"), "two").unwrap();
    for (path, name) in [("d", "user.overlay.impure"), ("d/b", "user.overlay.origin"), ("d/b", "user.mine")] {
        setxattr(upper.join(path), name, b"y", XattrFlags::empty()).unwrap();
    }
    let first = workspace.save().unwrap().version;
    assert_eq!(first, layers.version(FILES));
    fs::write(upper.join("d/more"), "more").unwrap();
    workspace.save().unwrap();
    workspace.restore(None, &first).unwrap();
    assert!(!upper.join("d/more").exists());
    assert_eq!(getxattr(upper.join("d"), "user.overlay.impure", &mut [0; 8]), Ok(1));
    assert_eq!(getxattr(upper.join("d/b"), "user.mine", &mut [0; 8]), Ok(1));
}

#[test]
fn ignored_files_are_kept_or_in_the_way() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.create_layered("0", &layers.version(FILES));
    layers.run(&workspace, "echo below > d/e/below.log");
    let first = workspace.fork_into(&layers.state("1")).unwrap().saved.version;
    layers.run(&workspace, "rm -r d/e/c; echo above > d/above.log");
    let hollow = workspace.save().unwrap().version;
    assert_eq!(text(&layers.in_version(&hollow), "d/b"), Some("two".into()));
    assert!(!layers.in_version(&hollow).contains_key(&FilePath::from("d/e")));
    layers.run(&workspace, "rm d/e/below.log; rmdir d/e; echo file > d/e");
    let file = workspace.save().unwrap().version;
    workspace.restore(None, &first).unwrap();
    let view = layers.view(&workspace);
    assert_eq!(text(&view, "d/above.log"), Some("above\n".into()));
    // Ignored files that were removed are not restored.
    assert_eq!(text(&view, "d/e/below.log"), None);
    layers.run(&workspace, "echo mine > d/e/mine.log");
    match workspace.restore(None, &file) {
        Err(Error::InTheWay { paths }) => assert_eq!(paths, [FilePath::from("d/e/mine.log")]),
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&layers.view(&workspace), "d/e/mine.log"), Some("mine\n".into()));
    assert_eq!(workspace.save().unwrap().version, first);
}

#[test]
fn a_workspace_over_budget_is_refused() {
    let mut layers = Layers::new();
    let version = layers.version(FILES);
    layers.options.budget = WorkspaceBudget { files: 8, ..WorkspaceBudget::default() };
    let mut workspace = layers.create_layered("0", &version);
    let upper = workspace.overlay().unwrap().upper;
    for n in 0..2 {
        fs::write(upper.join(format!("{n}")), "x").unwrap();
    }
    assert_eq!(workspace.save().unwrap().files, 8);
    fs::write(upper.join("2"), "x").unwrap();
    assert_eq!(workspace.save().unwrap_err().code(), "over-budget");
    fs::rename(upper.join("2"), upper.join("a")).unwrap();
    let saved = workspace.save().unwrap();
    assert_eq!((saved.files, saved.bytes), (8, 17 - 3 + 1 + 2));
}

#[test]
fn versions_with_forbidden_or_ignored_files() {
    let mut layers = Layers::new();
    layers.options = Options { ignore: vec!["!.git".into()], ..Options::default() };
    let hooks = layers.version(&[("a", "x"), (".git/hooks/evil", "x")]);
    layers.options = Options::default();
    let stats =
        Workspace::create_layered(layers.store.clone(), &layers.home(), &layers.state("0"), &hooks, &layers.options);
    assert_eq!(stats.map(drop).unwrap_err().code(), "in-the-way");
    // With other rules than the version was saved with: versioned files stay versioned, and new files are ignored.
    let version = layers.version(&[("a", "x"), ("b.tmp", "x"), ("only/c.tmp", "x")]);
    layers.options = Options { ignore: vec!["*.tmp".into()], ..Options::default() };
    let mut workspace = layers.create_layered("1", &version);
    fs::write(workspace.overlay().unwrap().upper.join("new.tmp"), "x").unwrap();
    assert!(workspace.save().unwrap().version.same_files(&version));
    fs::remove_file(workspace.overlay().unwrap().upper.join("new.tmp")).unwrap();
    drop(workspace);
    layers.options = Options::default();
    assert!(layers.open("1").save().unwrap().version.same_files(&version));
}

/// Read-only directories are filled, emptied and sealed. This also runs as a user other than root.
#[test]
fn read_only_directories_are_restored() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.create_layered("0", &layers.version(FILES));
    layers.run(&workspace, "chmod 555 d/e; chmod 500 d; echo x > x");
    let first = workspace.fork_into(&layers.state("1")).unwrap().saved.version;
    layers.run(&workspace, "chmod 755 d; rm -r d/e; echo new > d/b; echo n > d/n; chmod 555 d; chmod 500 .");
    let second = workspace.fork_into(&layers.state("2")).unwrap().saved.version;
    layers.run(
        &workspace,
        "chmod 700 .; chmod 755 d; rm -r d; mkdir -p d/e; echo 3 > d/e/c; echo 3 > d/q; chmod 111 d/e d",
    );
    layers.run(&workspace, "chmod 555 d d/e");
    let third = workspace.save().unwrap().version;
    for version in [&first, &third, &second, &third, &first, &second] {
        let restored = workspace.restore(None, version).unwrap();
        assert_eq!((restored.kept, &restored.version), (Vec::new(), version));
        assert_same(&layers.view(&workspace), &layers.in_version(version), "restored");
    }
}

/// A failed restore is undone, immediately or at the next open.
#[test]
fn a_failed_restore_is_undone() {
    let layers = Layers::new();
    let version = layers.version(FILES);
    let mut workspace = layers.create_layered("0", &version);
    let upper = workspace.overlay().unwrap().upper;
    fs::write(upper.join("a"), "changed").unwrap();
    fs::write(upper.join("new"), "new").unwrap();
    let present = workspace.save().unwrap().version;
    let lost = {
        use rath_core::files::{Change, Node, NodeKind, TreeStore, with_changes};
        let sha256 = rath_core::Digest::of(b"never stored");
        let after = Some(Node { kind: NodeKind::File, mode: 0o644, sha256, size: 12 });
        let change = Change { path: "zzz".into(), before: None, after };
        pollster::block_on(with_changes(&TreeStore::new(&*layers.store), &version, &[change])).unwrap()
    };
    assert_eq!(workspace.restore(None, &lost).unwrap_err().code(), "not-found");
    assert!(!layers.state("0").join("restoring").exists());
    assert_eq!(workspace.save().unwrap().version, present);
    drop(workspace);
    let journal = serde_json::json!({ "from": present, "to": lost });
    fs::write(layers.state("0").join("restoring"), journal.to_string()).unwrap();
    fs::remove_file(upper.join("a")).unwrap();
    let opened = Workspace::open_layered(layers.store.clone(), &layers.home(), &layers.state("0"), &layers.options);
    let (mut workspace, recovered) = opened.unwrap();
    let recovered = recovered.unwrap();
    assert!(recovered.to.same_files(&present) && recovered.version.same_files(&present));
    assert_eq!(workspace.save().unwrap().version, present);
}
