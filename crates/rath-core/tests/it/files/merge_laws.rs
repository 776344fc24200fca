//! Merges compared with a simple model, and properties of all merges.

use std::collections::BTreeMap;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::files::{ConflictKind, Drivers, FilePath, merge};

use super::test_files::{DirEntry, DirTree, TestFiles, any_trees, leaves, put};

/// A file of the model: a mode, and either a text of three separate blocks or binary content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaf {
    mode: u32,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Text([u8; 3]),
    Binary(u8),
}

type Model = BTreeMap<&'static str, Leaf>;

const PATHS: &[&str] = &["a", "d/x", "d/y", "d/e/z", "d-", "f/x"];

fn models() -> impl Strategy<Value = Model> {
    let content = prop_oneof![
        6 => prop::array::uniform3(0u8..3).prop_map(Content::Text),
        1 => (0u8..3).prop_map(Content::Binary),
    ];
    let leaf =
        (prop::sample::select(&[0o644, 0o755, 0o600][..]), content).prop_map(|(mode, content)| Leaf { mode, content });
    prop::collection::btree_map(prop::sample::select(PATHS), leaf, 0..PATHS.len())
}

fn written(model: &Model) -> DirTree {
    let mut tree = DirTree::new();
    for (path, leaf) in model {
        let content = match leaf.content {
            Content::Text(blocks) => {
                let block = |block: usize| {
                    let lines = "changed\n".repeat(blocks[block].into());
                    format!("before {block}\nfirst {block}\n{block}: {}\n{lines}last {block}\n", blocks[block])
                };
                (block(0) + &block(1) + &block(2)).into_bytes()
            }
            Content::Binary(byte) => vec![byte, 0, byte],
        };
        put(&mut tree, &FilePath::from(*path), DirEntry::File(leaf.mode, content));
    }
    tree
}

fn three_way<T: PartialEq + Copy>(base: T, ours: T, theirs: T) -> Option<T> {
    match () {
        () if ours == theirs || theirs == base => Some(ours),
        () if ours == base => Some(theirs),
        () => None,
    }
}

fn expected_merge(
    base: Option<Leaf>,
    ours: Option<Leaf>,
    theirs: Option<Leaf>,
) -> (Option<Leaf>, Option<ConflictKind>) {
    if let Some(settled) = three_way(base, ours, theirs) {
        return (settled, None);
    }
    let (Some(o), Some(t)) = (ours, theirs) else { return (ours, Some(ConflictKind::ModifyDelete)) };
    let Some(b) = base else {
        let kind = if o.content == t.content { ConflictKind::Mode } else { ConflictKind::AddAdd };
        return (ours, Some(kind));
    };
    let content = three_way(b.content, o.content, t.content).ok_or(ConflictKind::Binary).or_else(|kind| {
        let (Content::Text(b), Content::Text(o), Content::Text(t)) = (b.content, o.content, t.content) else {
            return Err(kind);
        };
        let blocks = [0, 1, 2].map(|at| three_way(b[at], o[at], t[at]));
        let [Some(one), Some(two), Some(three)] = blocks else { return Err(ConflictKind::Content) };
        Ok(Content::Text([one, two, three]))
    });
    let mode = three_way(b.mode, o.mode, t.mode);
    let leaf = Leaf { mode: mode.unwrap_or(o.mode), content: content.unwrap_or(o.content) };
    (Some(leaf), content.err().or(mode.is_none().then_some(ConflictKind::Mode)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_path_is_as_the_model_says(base in models(), ours in models(), theirs in models()) {
        let (mut merged, mut conflicts) = (Model::new(), BTreeMap::new());
        for path in PATHS {
            let (leaf, conflict) = expected_merge(base.get(path).copied(), ours.get(path).copied(), theirs.get(path).copied());
            merged.extend(leaf.map(|leaf| (*path, leaf)));
            conflicts.extend(conflict.map(|kind| (FilePath::from(*path), kind)));
        }
        let test_files = TestFiles::new();
        let (found, merge) = test_files.merge(&written(&base), &written(&ours), &written(&theirs));
        prop_assert_eq!(leaves(&found), leaves(&written(&merged)));
        prop_assert_eq!(merge.conflicts.into_iter().map(|c| (c.path, c.kind)).collect::<BTreeMap<_, _>>(), conflicts);
    }

    #[test]
    fn a_side_that_changed_nothing_changes_nothing(base in any_trees(), changed in any_trees()) {
        let test_files = TestFiles::new();
        for (ours, theirs) in [(&changed, &base), (&base, &changed), (&changed, &changed)] {
            let (_, merge) = test_files.merge(&base, ours, theirs);
            prop_assert_eq!(&merge.version, &test_files.write(&changed));
            prop_assert!(merge.conflicts.is_empty());
        }
        let [base, changed] = [&base, &changed].map(|tree| test_files.write(tree));
        let nothing = test_files.write(&DirTree::new());
        let without = block_on(merge(&test_files.tree_store(), None, &changed, &base, &Drivers::default(), None)).unwrap();
        let with = block_on(merge(&test_files.tree_store(), Some(&nothing), &changed, &base, &Drivers::default(), None)).unwrap();
        prop_assert_eq!(without, with);
    }

    #[test]
    fn no_path_is_made_up_or_lost(base in any_trees(), ours in any_trees(), theirs in any_trees()) {
        let test_files = TestFiles::new();
        let (found, merge) = test_files.merge(&base, &ours, &theirs);
        let (swapped, other) = test_files.merge(&base, &theirs, &ours);
        prop_assert_eq!(merge.conflicts.len(), other.conflicts.len());
        if merge.conflicts.is_empty() {
            prop_assert_eq!(&found, &swapped);
        }
        let near = |path: &FilePath, other: &FilePath| {
            let (path, other) = (path.parts().collect::<Vec<_>>(), other.parts().collect::<Vec<_>>());
            path.starts_with(&other) || other.starts_with(&path)
        };
        let [base, ours, theirs, found] = [&base, &ours, &theirs, &found].map(leaves);
        for path in base.keys().chain(ours.keys()).chain(theirs.keys()).chain(found.keys()) {
            if merge.conflicts.iter().any(|conflict| near(path, &conflict.path)) {
                continue;
            }
            let [base, ours, theirs, found] = [&base, &ours, &theirs, &found].map(|leaves| leaves.get(path));
            match three_way(base, ours, theirs) {
                Some(settled) => prop_assert_eq!(found, settled, "{}", path),
                None => prop_assert!(matches!((ours, theirs, found), (Some(_), Some(_), Some(_))), "{}", path),
            }
        }
        for conflict in &merge.conflicts {
            let stays = block_on(test_files.tree_store().at(&merge.version, &conflict.path)).unwrap();
            match conflict.kind {
                ConflictKind::Mode => prop_assert_eq!(stays.map(|node| node.mode), conflict.ours.map(|node| node.mode)),
                _ => prop_assert_eq!(stays.map(|node| node.sha256), conflict.ours.map(|node| node.sha256)),
            }
        }
        let mut paths: Vec<&FilePath> = merge.conflicts.iter().map(|conflict| &conflict.path).collect();
        paths.dedup();
        prop_assert_eq!(paths.len(), merge.conflicts.len());
    }
}
