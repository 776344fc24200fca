//! Writing versions from plain values and reading them back.

use std::collections::BTreeMap;
use std::sync::Arc;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::files::{Drivers, FilePath, MergeOutcome, Node, NodeKind, Tree, TreeEntry, TreeStore, Version, merge};
use rath_core::store::{BoxFuture, Store};
use rath_core::{Blob, InMemory};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirEntry {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Directory(u32, DirTree),
}

/// A directory with all that it contains.
pub(crate) type DirTree = BTreeMap<FilePath, DirEntry>;

/// A store to write and read versions.
pub(crate) struct TestFiles {
    store: Arc<dyn Store>,
}

impl TestFiles {
    pub(crate) fn new() -> Self {
        Self { store: InMemory::new() }
    }

    pub(crate) fn tree_store(&self) -> TreeStore<'_> {
        TreeStore::new(&*self.store)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn write(&self, tree: &DirTree) -> Version {
        let tree_store = self.tree_store();
        let tree = block_on(async { tree_store.put(write_tree(&tree_store, tree).await).await.unwrap() });
        Version { tree, rules: None }
    }

    pub(crate) fn read(&self, version: &Version) -> DirTree {
        let tree_store = self.tree_store();
        block_on(read_tree(&tree_store, version.id()))
    }

    pub(crate) fn merge(&self, base: &DirTree, ours: &DirTree, theirs: &DirTree) -> (DirTree, MergeOutcome) {
        self.merge_by(base, ours, theirs, &Drivers::default())
    }

    pub(crate) fn merge_by(
        &self,
        base: &DirTree,
        ours: &DirTree,
        theirs: &DirTree,
        drivers: &Drivers,
    ) -> (DirTree, MergeOutcome) {
        let [base, ours, theirs] = [base, ours, theirs].map(|tree| self.write(tree));
        let merge = block_on(merge(&self.tree_store(), Some(&base), &ours, &theirs, drivers, None)).unwrap();
        (self.read(&merge.version), merge)
    }
}

fn write_tree<'a>(tree_store: &'a TreeStore<'_>, dir: &'a DirTree) -> BoxFuture<'a, Tree> {
    Box::pin(async move {
        let mut tree = Tree::default();
        for (name, entry) in dir {
            let (kind, mode, blob) = match entry {
                DirEntry::File(mode, content) => (NodeKind::File, *mode, Blob::new(content.clone(), "text/plain")),
                DirEntry::Link(target) => (NodeKind::Symlink, 0o777, Blob::new(target.clone(), "text/plain")),
                DirEntry::Directory(mode, below) => {
                    (NodeKind::Directory, *mode, write_tree(tree_store, below).await.to_blob())
                }
            };
            let node = Node { kind, mode, sha256: blob.reference.digest, size: blob.reference.bytes };
            tree_store.blobs().blob_put(vec![blob]).await.unwrap();
            tree.entries.push(TreeEntry { name: name.clone(), node });
        }
        tree
    })
}

fn read_tree<'a>(tree_store: &'a TreeStore<'_>, digest: rath_core::Digest) -> BoxFuture<'a, DirTree> {
    Box::pin(async move {
        let mut tree = DirTree::new();
        for TreeEntry { name, node } in &tree_store.tree(digest).await.unwrap().entries {
            let content = async || tree_store.content(node.sha256).await.unwrap().to_vec();
            let entry = match node.kind {
                NodeKind::File => DirEntry::File(node.mode, content().await),
                NodeKind::Symlink => DirEntry::Link(content().await),
                NodeKind::Directory => DirEntry::Directory(node.mode, read_tree(tree_store, node.sha256).await),
            };
            tree.insert(name.clone(), entry);
        }
        tree
    })
}

/// A directory with these paths in it.
pub(crate) fn tree_of<const N: usize>(paths: [(&str, DirEntry); N]) -> DirTree {
    let mut tree = DirTree::new();
    for (path, entry) in paths {
        put(&mut tree, &FilePath::from(path), entry);
    }
    tree
}

pub(crate) fn put(tree: &mut DirTree, path: &FilePath, entry: DirEntry) {
    let mut parts: Vec<FilePath> = path.parts().collect();
    let last = parts.pop().unwrap();
    let mut at = tree;
    for part in parts {
        let DirEntry::Directory(_, below) =
            at.entry(part).or_insert_with(|| DirEntry::Directory(0o755, DirTree::new()))
        else {
            panic!("{path} is below a file");
        };
        at = below;
    }
    at.insert(last, entry);
}

pub(crate) fn file(content: &str) -> DirEntry {
    DirEntry::File(0o644, content.into())
}

/// The files and links of a directory by path.
pub(crate) fn leaves(tree: &DirTree) -> BTreeMap<FilePath, DirEntry> {
    fn walk(path: &FilePath, tree: &DirTree, found: &mut BTreeMap<FilePath, DirEntry>) {
        for (name, entry) in tree {
            let path = path.join(name);
            match entry {
                DirEntry::Directory(_, below) => walk(&path, below, found),
                leaf => drop(found.insert(path, leaf.clone())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&FilePath::root(), tree, &mut found);
    found
}

/// Random directories with few names and few contents, so that two of them have much in common.
pub(crate) fn any_tree(
    names: &'static [&'static [u8]],
    modes: &'static [u32],
    directory_modes: &'static [u32],
) -> impl Strategy<Value = DirTree> {
    const CONTENTS: &[&str] =
        &["", "one\n", "one", "1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n1\n2\n3\n4\n5\n6\n7\n8"];
    const TARGETS: &[&str] = &["target", "../a b", "new\nline", "ends\n"];
    let content = prop::sample::select(CONTENTS).prop_map(|content| content.as_bytes().to_vec());
    let leaf = prop_oneof![
        5 => (prop::sample::select(modes), content).prop_map(|(mode, content)| DirEntry::File(mode, content)),
        1 => prop::sample::select(TARGETS).prop_map(|target| DirEntry::Link(target.into())),
    ];
    let name = prop::sample::select(names).prop_map(FilePath::from);
    let inner_names = name.clone();
    let entry = leaf.prop_recursive(3, 24, 4, move |inner| {
        let tree = prop::collection::btree_map(inner_names.clone(), inner, 0..4);
        (prop::sample::select(directory_modes), tree).prop_map(|(mode, tree)| DirEntry::Directory(mode, tree))
    });
    prop::collection::btree_map(name, entry, 0..6)
}

/// Random directories with all kinds of entries.
pub(crate) fn any_trees() -> impl Strategy<Value = DirTree> {
    any_tree(&[b"a", b"b", b"a-", b"c"], &[0o644, 0o755, 0o600], &[0o755, 0o700])
}
