//! Forks of stacks, what they share, and what nobody needs any more.

use std::fs;
use std::path::Path;

use rath_core::files::Name;
use rath_workspace::{Budget, Error, Options, Workspace, collect_layers};

use super::layers::{Layers, can_mount};
use super::{Thing, assert_same};

const FILES: &[(&str, &str)] = &[("a", "one"), ("d/b", "two"), ("d/e/c", "three"), (".gitignore", "*.log\n")];

/// Names below a directory of the home.
fn names(layers: &Layers, kind: &str) -> Vec<String> {
    let entries = fs::read_dir(layers.home().join(kind)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn text(files: &super::Files, path: &str) -> Option<String> {
    match files.get(&Name::from(path)) {
        Some(Thing::File { content, .. }) => Some(String::from_utf8(content.clone()).unwrap()),
        _ => None,
    }
}

#[test]
fn a_checkout_is_made_once() {
    let layers = Layers::new();
    let version = layers.version(FILES);
    let lay = |name: &str| {
        Workspace::lay(layers.store.clone(), &layers.home(), &layers.state(name), &version, &layers.options).unwrap()
    };
    let (mut first, laid) = lay("one");
    assert!(!laid.reused && laid.files == 6 && laid.bytes == 17, "{laid:?}");
    let (mut second, laid) = lay("two");
    assert!(laid.reused && laid.files == 0, "{laid:?}");
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
    let again = Workspace::lay(layers.store.clone(), &layers.home(), &layers.state("one"), &version, &layers.options);
    assert!(matches!(again, Err(Error::Busy { .. })));
    drop(first);
    let again = Workspace::lay(layers.store.clone(), &layers.home(), &layers.state("one"), &version, &layers.options);
    assert_eq!(again.map(drop).unwrap_err().code(), "machine");
}

/// Many lay the same version at once: one of them makes it, all of them have it.
#[test]
fn who_lays_the_same_version_does_not_meet_half_of_it() {
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
                let mut workspace = layers.lay(&name, version);
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
fn forks_go_their_own_ways_and_carry_what_is_ignored() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut root = layers.lay("root", &layers.version(FILES));
    layers.run(&root, "echo root > a; echo kept > d/noise.log; rm d/b; mkdir new; echo x > new/x");
    let sealed = root.seal_for(&layers.state("child")).unwrap();
    assert!(sealed.sealed && !sealed.squashed);
    let mut child = layers.open("child");
    assert_eq!(child.save().unwrap().version, sealed.saved.version);
    assert_same(&layers.view(&child), &layers.view(&root), "a fork");
    layers.run(&child, "echo child > a; rm -r new; echo b > d/b");
    let sealed = child.seal_for(&layers.state("grandchild")).unwrap();
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
        seen.remove(&Name::from("d/noise.log"));
        assert_same(&layers.in_version(&workspace.save().unwrap().version), &seen, "saved");
    }
    // Nothing new: nothing is sealed.
    let before = names(&layers, "layers").len();
    assert!(root.seal_for(&layers.state("other")).unwrap().sealed);
    assert!(!layers.open("other").seal_for(&layers.state("third")).unwrap().sealed);
    assert_eq!(names(&layers, "layers").len(), before + 1);
}

#[test]
fn deep_stacks_are_made_shallow() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.lay("0", &layers.version(FILES));
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
        let sealed = workspace.seal_for(&layers.state(&format!("{n}"))).unwrap();
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
fn only_what_nobody_stands_on_is_collected() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    assert_eq!(collect_layers(&layers.home(), false).unwrap().removed.len(), 0);
    let mut one = layers.lay("one", &layers.version(FILES));
    let two = layers.lay("two", &layers.version(&[("other", "file")]));
    layers.run(&one, "echo x > a; mkdir -p closed/in; echo x > closed/in/f; chmod 555 closed/in closed");
    one.seal_for(&layers.state("child")).unwrap();
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
    assert_same(&layers.view(&one), &before, "what is in use");
    drop(one);
    for site in ["one", "child"] {
        assert_same(&layers.view(&layers.open(site)), &before, "what is in use");
        rath_workspace::remove_tree(&layers.state(site)).unwrap();
    }
    // Closed directories go as well.
    assert_eq!(collect_layers(&layers.home(), false).unwrap().removed.len(), 2);
    // What a broken site names is not known: then nothing goes.
    let version = layers.version(FILES);
    drop(layers.lay("broken", &version));
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
    let mut workspace = layers.lay("0", &layers.version(FILES));
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
    assert!(saved.restless.is_empty());
    if is_root {
        let mut view = layers.view(&workspace);
        view.remove(&Name::from("pipe"));
        assert_same(&layers.in_version(&saved.version), &view, "saved");
    }
    let sealed = workspace.seal_for(&layers.state("1")).unwrap();
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

/// Attributes that the kernel or somebody else leaves in the upper are nothing to us.
#[test]
fn foreign_attributes_stay() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let layers = Layers::new();
    let mut workspace = layers.lay("0", &layers.version(FILES));
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
fn what_is_ignored_is_left_alone_or_in_the_way() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.lay("0", &layers.version(FILES));
    layers.run(&workspace, "echo below > d/e/below.log");
    let first = workspace.seal_for(&layers.state("1")).unwrap().saved.version;
    layers.run(&workspace, "rm -r d/e/c; echo above > d/above.log");
    let hollow = workspace.save().unwrap().version;
    assert_eq!(text(&layers.in_version(&hollow), "d/b"), Some("two".into()));
    assert!(!layers.in_version(&hollow).contains_key(&Name::from("d/e")));
    layers.run(&workspace, "rm d/e/below.log; rmdir d/e; echo file > d/e");
    let file = workspace.save().unwrap().version;
    workspace.restore(None, &first).unwrap();
    let view = layers.view(&workspace);
    assert_eq!(text(&view, "d/above.log"), Some("above\n".into()));
    // What was removed and ignored does not come back.
    assert_eq!(text(&view, "d/e/below.log"), None);
    layers.run(&workspace, "echo mine > d/e/mine.log");
    match workspace.restore(None, &file) {
        Err(Error::InTheWay { paths }) => assert_eq!(paths, [Name::from("d/e/mine.log")]),
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&layers.view(&workspace), "d/e/mine.log"), Some("mine\n".into()));
    assert_eq!(workspace.save().unwrap().version, first);
}

#[test]
fn more_than_the_budget_allows() {
    let mut layers = Layers::new();
    let version = layers.version(FILES);
    layers.options.budget = Budget { files: 8, ..Budget::default() };
    let mut workspace = layers.lay("0", &version);
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
    let laid = Workspace::lay(layers.store.clone(), &layers.home(), &layers.state("0"), &hooks, &layers.options);
    assert_eq!(laid.map(drop).unwrap_err().code(), "in-the-way");
    // Other rules than it was saved with: what is versioned stays so, and what is new is ignored.
    let version = layers.version(&[("a", "x"), ("b.tmp", "x"), ("only/c.tmp", "x")]);
    layers.options = Options { ignore: vec!["*.tmp".into()], ..Options::default() };
    let mut workspace = layers.lay("1", &version);
    fs::write(workspace.overlay().unwrap().upper.join("new.tmp"), "x").unwrap();
    assert!(workspace.save().unwrap().version.same_files(&version));
    fs::remove_file(workspace.overlay().unwrap().upper.join("new.tmp")).unwrap();
    drop(workspace);
    layers.options = Options::default();
    assert!(layers.open("1").save().unwrap().version.same_files(&version));
}

/// As a plain user too: directories that may not be written to are filled, emptied and sealed.
#[test]
fn directories_that_are_closed() {
    if !can_mount() {
        return;
    }
    let layers = Layers::new();
    let mut workspace = layers.lay("0", &layers.version(FILES));
    layers.run(&workspace, "chmod 555 d/e; chmod 500 d; echo x > x");
    let first = workspace.seal_for(&layers.state("1")).unwrap().saved.version;
    layers.run(&workspace, "chmod 755 d; rm -r d/e; echo new > d/b; echo n > d/n; chmod 555 d; chmod 500 .");
    let second = workspace.seal_for(&layers.state("2")).unwrap().saved.version;
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

/// A restore that cannot be done is taken back, at once or at the next open.
#[test]
fn a_restore_that_fails_is_taken_back() {
    let layers = Layers::new();
    let version = layers.version(FILES);
    let mut workspace = layers.lay("0", &version);
    let upper = workspace.overlay().unwrap().upper;
    fs::write(upper.join("a"), "changed").unwrap();
    fs::write(upper.join("new"), "new").unwrap();
    let present = workspace.save().unwrap().version;
    let lost = {
        use rath_core::files::{Change, Forest, Node, NodeKind, graft};
        let sha256 = rath_core::Digest::of(b"never stored");
        let after = Some(Node { kind: NodeKind::File, mode: 0o644, sha256, size: 12 });
        let change = Change { path: "zzz".into(), before: None, after };
        pollster::block_on(graft(&Forest::new(&*layers.store), &version, &[change])).unwrap()
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
