use pollster::block_on;
use proptest::prelude::*;
use rath_core::files::{Change, FilePath, diff, with_changes};

use super::test_files::{DirEntry, DirTree, TestFiles, any_trees, file, tree_of};

fn listed(before: &DirTree, after: &DirTree) -> Vec<String> {
    let test_files = TestFiles::new();
    let changes =
        block_on(diff(&test_files.tree_store(), &test_files.write(before), &test_files.write(after))).unwrap();
    changes.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect()
}

fn directory(mode: u32) -> DirEntry {
    DirEntry::Directory(mode, DirTree::new())
}

#[test]
fn a_change_deep_down_lists_the_file_alone() {
    let before = tree_of([("a/b/c", file("1\n")), ("a/b/d", file("")), ("a-", file(""))]);
    let after = tree_of([("a/b/c", file("2\n")), ("a/b/d", file("")), ("a-", file("x"))]);
    assert_eq!(listed(&before, &after), ["M a/b/c", "M a-"]);
    assert!(listed(&after, &after).is_empty());
}

#[test]
fn directories_are_listed_when_they_come_go_or_change_their_mode() {
    let before = tree_of([("old/x", file("")), ("moded/x", file("")), ("kind/x", file(""))]);
    let mut after = tree_of([("new/empty", directory(0o755)), ("kind", file("")), ("moded/x", file(""))]);
    let Some(DirEntry::Directory(mode, _)) = after.get_mut(&FilePath::from("moded")) else { panic!() };
    *mode = 0o700;
    let expected = ["T kind", "D kind/x", "M moded", "A new", "A new/empty", "D old", "D old/x"];
    assert_eq!(listed(&before, &after), expected);
    let changes = [("moded", true), ("kind", false), ("kind/x", false), ("old", true)]
        .map(|(path, is)| (FilePath::from(path), is));
    let test_files = TestFiles::new();
    let found =
        block_on(diff(&test_files.tree_store(), &test_files.write(&before), &test_files.write(&after))).unwrap();
    for (path, is_directory) in changes {
        assert_eq!(found.iter().find(|change| change.path == path).unwrap().is_directory(), is_directory, "{path}");
    }
}

#[test]
fn with_changes_creates_parents_and_keeps_emptied_directories() {
    let test_files = TestFiles::new();
    let tree_store = test_files.tree_store();
    let base = test_files.write(&tree_of([("d/x", file("x")), ("gone/a/b", file("b")), ("f", file("f"))]));
    let moved = block_on(tree_store.at(&base, &"d/x".into())).unwrap();
    let change = |path: &str, after| Change { path: path.into(), before: None, after };
    let changes = [
        change("d/x", None),
        change("gone", None),
        change("gone/new", moved),
        change("f/below", moved),
        change("new/deep/x", moved),
        change("missing/too", None),
    ];
    let grafted = block_on(with_changes(&tree_store, &base, &changes)).unwrap();
    let expected =
        tree_of([("d", directory(0o755)), ("gone/new", file("x")), ("f/below", file("x")), ("new/deep/x", file("x"))]);
    assert_eq!(test_files.read(&grafted), expected);
    let taken = change("copy", block_on(tree_store.at(&base, &"gone".into())).unwrap());
    let grafted = block_on(with_changes(&tree_store, &grafted, &[taken])).unwrap();
    assert_eq!(block_on(tree_store.at(&grafted, &"copy/a/b".into())).unwrap().unwrap().size, 1);
    let everything_gone = block_on(with_changes(&tree_store, &base, &[change("", None)])).unwrap();
    assert_eq!(test_files.read(&everything_gone), DirTree::new());
}

#[test]
fn a_path_that_leads_out_is_refused() {
    let test_files = TestFiles::new();
    let base = test_files.write(&tree_of([("f", file("f"))]));
    let node = block_on(test_files.tree_store().at(&base, &"f".into())).unwrap();
    for path in ["../f", "a/./f", "a\0"] {
        let change = Change { path: path.into(), before: None, after: node };
        let error = block_on(with_changes(&test_files.tree_store(), &base, &[change])).unwrap_err();
        assert!(error.to_string().contains("is not a valid file name"), "{error}");
    }
    let root = Change { path: FilePath::root(), before: None, after: node };
    assert!(block_on(with_changes(&test_files.tree_store(), &base, &[root])).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn applying_a_difference_gives_the_other_version(before in any_trees(), after in any_trees()) {
        let test_files = TestFiles::new();
        let tree_store = test_files.tree_store();
        let (old, new) = (test_files.write(&before), test_files.write(&after));
        let changes = block_on(diff(&tree_store, &old, &new)).unwrap();
        prop_assert_eq!(&block_on(with_changes(&tree_store, &old, &changes)).unwrap(), &new);
        // Changes apply in any order, and in reverse.
        let reversed: Vec<Change> = changes.iter().rev().cloned().collect();
        prop_assert_eq!(&block_on(with_changes(&tree_store, &old, &reversed)).unwrap(), &new);
        let back = block_on(diff(&tree_store, &new, &old)).unwrap();
        let swapped = changes.iter().cloned().map(|Change { path, before, after }| Change { path, before: after, after: before });
        prop_assert_eq!(back, swapped.collect::<Vec<_>>());
        // Changes are in tree order, each matches the versions, and none is a no-op.
        let parts = |change: &Change| change.path.parts().collect::<Vec<_>>();
        prop_assert!(changes.windows(2).all(|pair| parts(&pair[0]) < parts(&pair[1])));
        for change in &changes {
            prop_assert_ne!(change.before, change.after);
            prop_assert_eq!(block_on(tree_store.at(&old, &change.path)).unwrap(), change.before);
            prop_assert_eq!(block_on(tree_store.at(&new, &change.path)).unwrap(), change.after);
            if let (Some(before), Some(after), true) = (change.before, change.after, change.is_directory()) {
                prop_assert_ne!(before.mode, after.mode);
            }
        }
    }
}
