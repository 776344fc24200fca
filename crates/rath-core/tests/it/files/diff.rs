use pollster::block_on;
use proptest::prelude::*;
use rath_core::files::{Change, Name, diff, graft};

use super::garden::{Bed, Garden, Plant, bed_of, beds, file};

fn listed(before: &Bed, after: &Bed) -> Vec<String> {
    let garden = Garden::new();
    let changes = block_on(diff(&garden.forest(), &garden.plant(before), &garden.plant(after))).unwrap();
    changes.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect()
}

fn directory(mode: u32) -> Plant {
    Plant::Directory(mode, Bed::new())
}

#[test]
fn a_change_deep_down_lists_the_file_alone() {
    let before = bed_of([("a/b/c", file("1\n")), ("a/b/d", file("")), ("a-", file(""))]);
    let after = bed_of([("a/b/c", file("2\n")), ("a/b/d", file("")), ("a-", file("x"))]);
    assert_eq!(listed(&before, &after), ["M a/b/c", "M a-"]);
    assert!(listed(&after, &after).is_empty());
}

#[test]
fn directories_are_listed_when_they_come_go_or_change_their_mode() {
    let before = bed_of([("old/x", file("")), ("moded/x", file("")), ("kind/x", file(""))]);
    let mut after = bed_of([("new/empty", directory(0o755)), ("kind", file("")), ("moded/x", file(""))]);
    let Some(Plant::Directory(mode, _)) = after.get_mut(&Name::from("moded")) else { panic!() };
    *mode = 0o700;
    let expected = ["T kind", "D kind/x", "M moded", "A new", "A new/empty", "D old", "D old/x"];
    assert_eq!(listed(&before, &after), expected);
    let changes =
        [("moded", true), ("kind", false), ("kind/x", false), ("old", true)].map(|(path, is)| (Name::from(path), is));
    let garden = Garden::new();
    let found = block_on(diff(&garden.forest(), &garden.plant(&before), &garden.plant(&after))).unwrap();
    for (path, is_directory) in changes {
        assert_eq!(found.iter().find(|change| change.path == path).unwrap().is_directory(), is_directory, "{path}");
    }
}

#[test]
fn a_graft_makes_parents_and_keeps_emptied_directories() {
    let garden = Garden::new();
    let forest = garden.forest();
    let base = garden.plant(&bed_of([("d/x", file("x")), ("gone/a/b", file("b")), ("f", file("f"))]));
    let moved = block_on(forest.at(&base, &"d/x".into())).unwrap();
    let change = |path: &str, after| Change { path: path.into(), before: None, after };
    let changes = [
        change("d/x", None),
        change("gone", None),
        change("gone/new", moved),
        change("f/below", moved),
        change("new/deep/x", moved),
        change("missing/too", None),
    ];
    let grafted = block_on(graft(&forest, &base, &changes)).unwrap();
    let expected =
        bed_of([("d", directory(0o755)), ("gone/new", file("x")), ("f/below", file("x")), ("new/deep/x", file("x"))]);
    assert_eq!(garden.read(&grafted), expected);
    let taken = change("copy", block_on(forest.at(&base, &"gone".into())).unwrap());
    let grafted = block_on(graft(&forest, &grafted, &[taken])).unwrap();
    assert_eq!(block_on(forest.at(&grafted, &"copy/a/b".into())).unwrap().unwrap().size, 1);
    let everything_gone = block_on(graft(&forest, &base, &[change("", None)])).unwrap();
    assert_eq!(garden.read(&everything_gone), Bed::new());
}

#[test]
fn a_path_that_leads_out_is_refused() {
    let garden = Garden::new();
    let base = garden.plant(&bed_of([("f", file("f"))]));
    let node = block_on(garden.forest().at(&base, &"f".into())).unwrap();
    for path in ["../f", "a/./f", "a\0"] {
        let change = Change { path: path.into(), before: None, after: node };
        let error = block_on(graft(&garden.forest(), &base, &[change])).unwrap_err();
        assert!(error.to_string().contains("cannot be the name of a file"), "{error}");
    }
    let root = Change { path: Name::root(), before: None, after: node };
    assert!(block_on(graft(&garden.forest(), &base, &[root])).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_difference_leads_from_one_to_the_other(before in beds(), after in beds()) {
        let garden = Garden::new();
        let forest = garden.forest();
        let (old, new) = (garden.plant(&before), garden.plant(&after));
        let changes = block_on(diff(&forest, &old, &new)).unwrap();
        prop_assert_eq!(&block_on(graft(&forest, &old, &changes)).unwrap(), &new);
        // In any order, and back again.
        let reversed: Vec<Change> = changes.iter().rev().cloned().collect();
        prop_assert_eq!(&block_on(graft(&forest, &old, &reversed)).unwrap(), &new);
        let back = block_on(diff(&forest, &new, &old)).unwrap();
        let swapped = changes.iter().cloned().map(|Change { path, before, after }| Change { path, before: after, after: before });
        prop_assert_eq!(back, swapped.collect::<Vec<_>>());
        // In the order of a walk, each with what stands in the versions, and none that is not one.
        let parts = |change: &Change| change.path.parts().collect::<Vec<_>>();
        prop_assert!(changes.windows(2).all(|pair| parts(&pair[0]) < parts(&pair[1])));
        for change in &changes {
            prop_assert_ne!(change.before, change.after);
            prop_assert_eq!(block_on(forest.at(&old, &change.path)).unwrap(), change.before);
            prop_assert_eq!(block_on(forest.at(&new, &change.path)).unwrap(), change.after);
            if let (Some(before), Some(after), true) = (change.before, change.after, change.is_directory()) {
                prop_assert_ne!(before.mode, after.mode);
            }
        }
    }
}
