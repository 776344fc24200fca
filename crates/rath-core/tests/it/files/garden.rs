//! Versions made from plain values, and read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::files::{Drivers, Entry, Forest, Merge, Name, Node, NodeKind, Tree, Version, merge};
use rath_core::store::{BoxFuture, Store};
use rath_core::{Blob, Memory};

/// What stands at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Directory(u32, Bed),
}

/// A directory's entries.
pub(crate) type Bed = BTreeMap<Name, Plant>;

/// A store of versions.
pub(crate) struct Garden {
    store: Arc<dyn Store>,
}

impl Garden {
    pub(crate) fn new() -> Self {
        Self { store: Memory::new() }
    }

    pub(crate) fn forest(&self) -> Forest<'_> {
        Forest::new(&*self.store)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn plant(&self, bed: &Bed) -> Version {
        let forest = self.forest();
        let tree = block_on(async { forest.put(tree(&forest, bed).await).await.unwrap() });
        Version { tree, rules: None }
    }

    pub(crate) fn read(&self, version: &Version) -> Bed {
        let forest = self.forest();
        block_on(bed(&forest, version.id()))
    }

    pub(crate) fn merge(&self, base: &Bed, ours: &Bed, theirs: &Bed) -> (Bed, Merge) {
        self.merge_by(base, ours, theirs, &Drivers::default())
    }

    pub(crate) fn merge_by(&self, base: &Bed, ours: &Bed, theirs: &Bed, drivers: &Drivers) -> (Bed, Merge) {
        let [base, ours, theirs] = [base, ours, theirs].map(|bed| self.plant(bed));
        let merge = block_on(merge(&self.forest(), Some(&base), &ours, &theirs, drivers, None)).unwrap();
        (self.read(&merge.version), merge)
    }
}

fn tree<'a>(forest: &'a Forest<'_>, bed: &'a Bed) -> BoxFuture<'a, Tree> {
    Box::pin(async move {
        let mut tree = Tree::default();
        for (name, plant) in bed {
            let (kind, mode, blob) = match plant {
                Plant::File(mode, content) => (NodeKind::File, *mode, Blob::new(content.clone(), "text/plain")),
                Plant::Link(target) => (NodeKind::Symlink, 0o777, Blob::new(target.clone(), "text/plain")),
                Plant::Directory(mode, below) => {
                    (NodeKind::Directory, *mode, self::tree(forest, below).await.to_blob())
                }
            };
            let node = Node { kind, mode, sha256: blob.reference.digest, size: blob.reference.bytes };
            forest.blobs().blob_put(vec![blob]).await.unwrap();
            tree.entries.push(Entry { name: name.clone(), node });
        }
        tree
    })
}

fn bed<'a>(forest: &'a Forest<'_>, digest: rath_core::Digest) -> BoxFuture<'a, Bed> {
    Box::pin(async move {
        let mut bed = Bed::new();
        for Entry { name, node } in &forest.tree(digest).await.unwrap().entries {
            let content = async || forest.content(node.sha256).await.unwrap().to_vec();
            let plant = match node.kind {
                NodeKind::File => Plant::File(node.mode, content().await),
                NodeKind::Symlink => Plant::Link(content().await),
                NodeKind::Directory => Plant::Directory(node.mode, self::bed(forest, node.sha256).await),
            };
            bed.insert(name.clone(), plant);
        }
        bed
    })
}

/// The directory with these paths in it, each a file unless it says otherwise.
pub(crate) fn bed_of<const N: usize>(paths: [(&str, Plant); N]) -> Bed {
    let mut bed = Bed::new();
    for (path, plant) in paths {
        put(&mut bed, &Name::from(path), plant);
    }
    bed
}

pub(crate) fn put(bed: &mut Bed, path: &Name, plant: Plant) {
    let mut parts: Vec<Name> = path.parts().collect();
    let last = parts.pop().unwrap();
    let mut at = bed;
    for part in parts {
        let Plant::Directory(_, below) = at.entry(part).or_insert_with(|| Plant::Directory(0o755, Bed::new())) else {
            panic!("{path} is below a file");
        };
        at = below;
    }
    at.insert(last, plant);
}

pub(crate) fn file(content: &str) -> Plant {
    Plant::File(0o644, content.into())
}

/// The files and links of a directory, by their paths.
pub(crate) fn leaves(bed: &Bed) -> BTreeMap<Name, Plant> {
    fn walk(path: &Name, bed: &Bed, found: &mut BTreeMap<Name, Plant>) {
        for (name, plant) in bed {
            let path = path.join(name);
            match plant {
                Plant::Directory(_, below) => walk(&path, below, found),
                leaf => drop(found.insert(path, leaf.clone())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&Name::root(), bed, &mut found);
    found
}

/// Directories over few names and few contents, so that two of them have much in common.
pub(crate) fn any_bed(
    names: &'static [&'static [u8]],
    modes: &'static [u32],
    directory_modes: &'static [u32],
) -> impl Strategy<Value = Bed> {
    const CONTENTS: &[&str] =
        &["", "one\n", "one", "1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n1\n2\n3\n4\n5\n6\n7\n8"];
    const TARGETS: &[&str] = &["target", "../a b", "new\nline", "ends\n"];
    let content = prop::sample::select(CONTENTS).prop_map(|content| content.as_bytes().to_vec());
    let leaf = prop_oneof![
        5 => (prop::sample::select(modes), content).prop_map(|(mode, content)| Plant::File(mode, content)),
        1 => prop::sample::select(TARGETS).prop_map(|target| Plant::Link(target.into())),
    ];
    let name = prop::sample::select(names).prop_map(Name::from);
    let beds = name.clone();
    let plant = leaf.prop_recursive(3, 24, 4, move |inner| {
        let bed = prop::collection::btree_map(beds.clone(), inner, 0..4);
        (prop::sample::select(directory_modes), bed).prop_map(|(mode, bed)| Plant::Directory(mode, bed))
    });
    prop::collection::btree_map(name, plant, 0..6)
}

/// Directories with everything in them.
pub(crate) fn beds() -> impl Strategy<Value = Bed> {
    any_bed(&[b"a", b"b", b"a-", b"c"], &[0o644, 0o755, 0o600], &[0o755, 0o700])
}
