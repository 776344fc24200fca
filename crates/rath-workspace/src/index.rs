//! The index: the stat and digest of each file when it was last read. A file with an unchanged stat is not read again.
//!
//! A file that changes within one tick of the file system clock after it was read can keep the same stat. Such entries
//! are marked *racy* and read again, as git does. The index is a cache that is verified by a digest; without it, a save
//! only takes longer.

use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeEntry};
use rath_core::{BlobRef, Digest};

use super::layers::Layer;

/// The layer of an entry that is taken from the lower version without looking at the disk. The index does not contain
/// such entries.
pub(super) const FROM_LOWER: Layer = Layer::MAX;

/// The files at the last save.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) root: Dir,
    /// The ignore rules of the last save.
    pub(super) rules: Option<BlobRef>,
    /// The root tree of the lower version, if this index contains only the differences from it.
    pub(super) lower_tree: Option<Digest>,
}

/// A directory of the index.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    /// Digest and size of its encoded tree. `None` if something below it changed since the tree was computed.
    pub(super) tree: Option<(Digest, u64)>,
    /// Hash of the ignore rules that its entries passed. 0 if they must be checked again.
    pub(super) rules: u64,
    /// Whether lower layers are visible through it.
    pub(super) merges: bool,
    /// The directory in the lower version.
    pub(super) base: Option<Node>,
    /// Usage of the lower version's entries that are not visible in this directory any more. Does not include its
    /// subdirectories.
    pub(super) hidden: Usage,
    /// Sorted by name.
    pub(super) items: Vec<Item>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: FilePath,
    pub(super) stat: Stat,
    pub(super) data: ItemData,
    /// The layer in which it was found.
    pub(super) layer: Layer,
}

#[derive(Clone, Debug)]
pub(super) enum ItemData {
    File(Content),
    Link(Content),
    Dir(Dir),
    /// A whiteout, with the usage of what it hides, if that was counted.
    Whiteout(Option<Usage>),
}

/// Number of files, directories and links, and the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Usage {
    /// The usage of one file, link or directory, without its content below. A link counts 0 bytes: most file systems
    /// store it in its inode.
    pub(super) fn of(node: &Node) -> Self {
        Self { files: 1, bytes: if node.is_file() { node.size } else { 0 } }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// The content of a file or link; `digest` is `None` until it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) digest: Option<Digest>,
    pub(super) size: u64,
    pub(super) racy: bool,
}

impl Content {
    /// A content that has not been read.
    pub(super) const UNREAD: Content = Content { digest: None, size: 0, racy: true };
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) ctime: i64,
    pub(super) inode: u64,
}

impl Stat {
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos as i64);
        Self {
            mode: stat.st_mode,
            size: stat.st_size as u64,
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
            ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }

    pub(super) fn permissions(&self) -> u32 {
        self.mode & rath_core::files::MODE_BITS
    }

    /// Whether a change right after `read` (nanoseconds since the Unix epoch) could leave this stat unchanged. File
    /// timestamps advance every few milliseconds, or every 2 s on file systems without sub-second timestamps.
    pub(super) fn is_racy(&self, read: i64) -> bool {
        const TICK: i64 = 20_000_000;
        const COARSE: i64 = 2_000_000_000;
        let tick = if self.ctime % 1_000_000_000 == 0 { COARSE } else { TICK };
        self.ctime >= read - tick
    }
}

impl Item {
    /// An entry that is identical to one of the lower version.
    pub(super) fn from_lower(name: FilePath, node: &Node) -> Self {
        let content = Content { digest: Some(node.sha256), size: node.size, racy: false };
        let data = match node.kind {
            NodeKind::File => ItemData::File(content),
            NodeKind::Symlink => ItemData::Link(content),
            NodeKind::Directory => ItemData::Dir(Dir::from_lower(node)),
        };
        Self { name, stat: Stat { mode: node.mode, ..Stat::default() }, data, layer: FROM_LOWER }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.data, ItemData::Dir(_))
    }

    pub(super) fn is_whiteout(&self) -> bool {
        matches!(self.data, ItemData::Whiteout(_))
    }

    /// The entry as a tree node. `None` if its content or tree is not known, or if it is a whiteout.
    pub(super) fn node(&self) -> Option<Node> {
        let (kind, mode, sha256, size) = match &self.data {
            ItemData::File(content) => (NodeKind::File, self.stat.permissions(), content.digest?, content.size),
            ItemData::Link(content) => (NodeKind::Symlink, 0o777, content.digest?, content.size),
            ItemData::Dir(dir) => {
                let (tree, size) = dir.tree?;
                (NodeKind::Directory, self.stat.permissions(), tree, size)
            }
            ItemData::Whiteout(_) => return None,
        };
        Some(Node { kind, mode, sha256, size })
    }
}

impl Dir {
    const EMPTY: Dir = Dir {
        tree: None,
        rules: 0,
        merges: false,
        base: None,
        hidden: Usage { files: 0, bytes: 0 },
        items: Vec::new(),
    };

    /// A directory that is identical to one of the lower version.
    pub(super) fn from_lower(node: &Node) -> Self {
        Self { tree: Some((node.sha256, node.size)), ..Self::default() }
    }

    /// Whether it has no visible entries.
    pub(super) fn is_bare(&self) -> bool {
        self.items.iter().all(Item::is_whiteout)
    }

    /// Removes the entries that were taken from the lower version. The lower version has them anyway.
    pub(super) fn drop_lower_items(&mut self) {
        self.items.retain(|item| item.layer != FROM_LOWER);
        for item in &mut self.items {
            if let ItemData::Dir(dir) = &mut item.data {
                dir.drop_lower_items();
            }
        }
    }

    /// Drops the computed trees and the whiteouts. Keeps the digests of files.
    pub(super) fn forget_trees(&mut self) {
        self.tree = None;
        self.rules = 0;
        for item in &mut self.items {
            if let ItemData::Dir(dir) = &mut item.data {
                dir.forget_trees();
            }
        }
        self.items.retain(|item| !item.is_whiteout());
    }

    pub(super) fn get(&self, name: &FilePath) -> Option<&Item> {
        self.find(name).ok().map(|at| &self.items[at])
    }

    pub(super) fn find(&self, name: &FilePath) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.name.cmp(name))
    }

    /// The visible entry at a path below this directory.
    pub(super) fn at(&self, path: &FilePath) -> Option<&Item> {
        let mut dir = self;
        let mut found = None;
        for name in path.parts() {
            let item = dir.get(&name)?;
            found = Some(item);
            match &item.data {
                ItemData::Dir(below) => dir = below,
                _ => dir = const { &Dir::EMPTY },
            }
        }
        found.filter(|item| !item.is_whiteout())
    }

    /// Sets or removes the entry at a path, and creates missing parent directories. Drops the trees and the rule hashes
    /// of all parents, so that they are computed again.
    pub(super) fn set(&mut self, path: &FilePath, entry: Option<(Stat, ItemData)>) {
        let mut dir = self;
        let mut parts = path.parts().peekable();
        while let Some(name) = parts.next() {
            dir.tree = None;
            dir.rules = 0;
            let found = dir.find(&name);
            if parts.peek().is_none() {
                match (found, entry) {
                    (Ok(at), Some((stat, data))) => dir.items[at] = Item { name, stat, data, layer: 0 },
                    (Err(at), Some((stat, data))) => dir.items.insert(at, Item { name, stat, data, layer: 0 }),
                    (Ok(at), None) => drop(dir.items.remove(at)),
                    (Err(_), None) => {}
                }
                return;
            }
            let at = match (found, &entry) {
                (Ok(at), _) => at,
                (Err(_), None) => return,
                (Err(at), Some(_)) => {
                    let stat = Stat { mode: 0o755, ..Stat::default() };
                    dir.items.insert(at, Item { name, stat, data: ItemData::Dir(Dir::default()), layer: 0 });
                    at
                }
            };
            match &mut dir.items[at].data {
                ItemData::Dir(below) => dir = below,
                _ => return,
            }
        }
    }

    /// Sets the stat of a directory whose entries did not change.
    pub(super) fn set_stat(&mut self, path: &FilePath, stat: Stat) {
        let mut dir = self;
        let mut parts = path.parts().peekable();
        while let Some(name) = parts.next() {
            dir.tree = None;
            let Ok(at) = dir.find(&name) else { return };
            let item = &mut dir.items[at];
            if parts.peek().is_none() {
                item.stat = stat;
            }
            match &mut item.data {
                ItemData::Dir(below) => dir = below,
                _ => return,
            }
        }
    }

    /// Whether it has at most `most` entries, including those of its subdirectories.
    pub(super) fn has_at_most(&self, most: usize) -> bool {
        fn rest(dir: &Dir, most: usize) -> Option<usize> {
            dir.items.iter().try_fold(most.checked_sub(dir.items.len())?, |left, item| match &item.data {
                ItemData::Dir(dir) => rest(dir, left),
                _ => Some(left),
            })
        }
        rest(self, most).is_some()
    }

    /// Calls `known` with the digest of each tree that is known.
    pub(super) fn each_tree(&self, known: &mut dyn FnMut(Digest)) {
        self.tree.iter().for_each(|(digest, _)| known(*digest));
        for item in &self.items {
            if let ItemData::Dir(dir) = &item.data {
                dir.each_tree(known);
            }
        }
    }

    /// Computes the missing trees, deepest first, and passes each to `made`.
    pub(super) fn compute(&mut self, made: &mut dyn FnMut(Digest, Tree)) -> (Digest, u64) {
        if let Some(known) = self.tree {
            return known;
        }
        for item in &mut self.items {
            if let ItemData::Dir(dir) = &mut item.data {
                dir.compute(made);
            }
        }
        let entry = |item: &Item| Some(TreeEntry { name: item.name.clone(), node: item.node()? });
        let tree = Tree { entries: self.items.iter().filter_map(entry).collect() };
        let bytes = tree.encode();
        let known = (Digest::of(&bytes), bytes.len() as u64);
        self.tree = Some(known);
        made(known.0, tree);
        known
    }
}
