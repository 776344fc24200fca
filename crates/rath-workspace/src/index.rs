//! What is known of every file since it was last read: its stat and its digest. A file whose stat is the same need not
//! be read again.
//!
//! A file that was changed in the very moment it was read may have the stat of the earlier content: such entries are
//! marked *racy* and read once more. The index is a cache: it is checked by a digest, and a lost one costs time only.

use rath_core::files::{Entry, Name, Node, NodeKind, Tree};
use rath_core::{BlobRef, Digest};

use super::layers::Layer;

/// The layer of an entry that is as in the version below: nobody looked at it, and the index does not hold it.
pub(super) const BELOW: Layer = Layer::MAX;

/// Everything that was there at the last save.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) root: Dir,
    /// The rules of that save.
    pub(super) rules: Option<BlobRef>,
    /// The tree below the top layer, when only what differs from it is here.
    pub(super) below: Option<Digest>,
}

/// A directory. `tree` is known when nothing below it changed since it was computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) tree: Option<(Digest, u64)>,
    /// Names the ignore rules that its entries passed.
    pub(super) rules: u64,
    /// Whether what is in the layers below shows through, and as what the version below has it.
    pub(super) merges: bool,
    pub(super) base: Option<Node>,
    /// What of the version below is not seen here any more, apart from what directories in this one lost.
    pub(super) lost: Weight,
    /// Sorted by name.
    pub(super) items: Vec<Item>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: Name,
    pub(super) stat: Stat,
    pub(super) what: What,
    /// Where it was found.
    pub(super) layer: Layer,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    File(Content),
    Link(Content),
    Dir(Dir),
    /// A whiteout, and how much it hides, if that was counted.
    Gone(Option<Weight>),
}

/// How many files, directories and links, and bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Weight {
    /// What a file, link or directory alone counts. A link takes no room of its own on most file systems.
    pub(super) fn of(node: &Node) -> Self {
        Self { files: 1, bytes: if node.is_file() { node.size } else { 0 } }
    }
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// What a file or link holds, when it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) digest: Option<Digest>,
    pub(super) size: u64,
    pub(super) racy: bool,
}

impl Content {
    /// Not read yet.
    pub(super) const UNREAD: Content = Content { digest: None, size: 0, racy: true };
}

/// What the system says about a file without reading it.
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

    /// Whether a change right after `read` (nanoseconds since 1970) could leave this stat as it is. The clock that stamps
    /// files ticks every few milliseconds; on file systems that know only seconds, every two of them.
    pub(super) fn is_racy(&self, read: i64) -> bool {
        const TICK: i64 = 20_000_000;
        const COARSE: i64 = 2_000_000_000;
        let tick = if self.ctime % 1_000_000_000 == 0 { COARSE } else { TICK };
        self.ctime >= read - tick
    }
}

impl Item {
    /// An entry that is what the version below has.
    pub(super) fn below(name: Name, node: &Node) -> Self {
        let content = Content { digest: Some(node.sha256), size: node.size, racy: false };
        let what = match node.kind {
            NodeKind::File => What::File(content),
            NodeKind::Symlink => What::Link(content),
            NodeKind::Directory => What::Dir(Dir::below(node)),
        };
        Self { name, stat: Stat { mode: node.mode, ..Stat::default() }, what, layer: BELOW }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.what, What::Dir(_))
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.what, What::Gone(_))
    }

    /// What the entry is in a tree; `None` while it has not been read.
    pub(super) fn node(&self) -> Option<Node> {
        let (kind, mode, sha256, size) = match &self.what {
            What::File(content) => (NodeKind::File, self.stat.permissions(), content.digest?, content.size),
            What::Link(content) => (NodeKind::Symlink, 0o777, content.digest?, content.size),
            What::Dir(dir) => {
                let (tree, size) = dir.tree?;
                (NodeKind::Directory, self.stat.permissions(), tree, size)
            }
            What::Gone(_) => return None,
        };
        Some(Node { kind, mode, sha256, size })
    }
}

impl Dir {
    const EMPTY: Dir =
        Dir { tree: None, rules: 0, merges: false, base: None, lost: Weight { files: 0, bytes: 0 }, items: Vec::new() };

    /// A directory that is what the version below has.
    pub(super) fn below(node: &Node) -> Self {
        Self { tree: Some((node.sha256, node.size)), ..Self::default() }
    }

    /// Whether nothing is seen in it.
    pub(super) fn is_bare(&self) -> bool {
        self.items.iter().all(Item::is_gone)
    }

    /// Takes out what is in the version below: what is known of it need not be kept.
    pub(super) fn forget_below(&mut self) {
        self.items.retain(|item| item.layer != BELOW);
        for item in &mut self.items {
            if let What::Dir(dir) = &mut item.what {
                dir.forget_below();
            }
        }
    }

    /// Keeps what is known of files and forgets what was computed from it.
    pub(super) fn forget_trees(&mut self) {
        self.tree = None;
        self.rules = 0;
        for item in &mut self.items {
            if let What::Dir(dir) = &mut item.what {
                dir.forget_trees();
            }
        }
        self.items.retain(|item| !item.is_gone());
    }

    pub(super) fn get(&self, name: &Name) -> Option<&Item> {
        self.find(name).ok().map(|at| &self.items[at])
    }

    pub(super) fn find(&self, name: &Name) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.name.cmp(name))
    }

    /// The entry at a path below this directory.
    pub(super) fn at(&self, path: &Name) -> Option<&Item> {
        let mut dir = self;
        let mut found = None;
        for name in path.parts() {
            let item = dir.get(&name)?;
            found = Some(item);
            match &item.what {
                What::Dir(below) => dir = below,
                _ => dir = const { &Dir::EMPTY },
            }
        }
        found.filter(|item| !item.is_gone())
    }

    /// Puts an entry at a path, or takes it away; directories on the way are made. What they hold is to be computed anew,
    /// and to pass the ignore rules again.
    pub(super) fn set(&mut self, path: &Name, entry: Option<(Stat, What)>) {
        let mut dir = self;
        let mut parts = path.parts().peekable();
        while let Some(name) = parts.next() {
            dir.tree = None;
            dir.rules = 0;
            let found = dir.find(&name);
            if parts.peek().is_none() {
                match (found, entry) {
                    (Ok(at), Some((stat, what))) => dir.items[at] = Item { name, stat, what, layer: 0 },
                    (Err(at), Some((stat, what))) => dir.items.insert(at, Item { name, stat, what, layer: 0 }),
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
                    dir.items.insert(at, Item { name, stat, what: What::Dir(Dir::default()), layer: 0 });
                    at
                }
            };
            match &mut dir.items[at].what {
                What::Dir(below) => dir = below,
                _ => return,
            }
        }
    }

    /// Notes a new stat of a directory whose entries stay.
    pub(super) fn set_stat(&mut self, path: &Name, stat: Stat) {
        let mut dir = self;
        let mut parts = path.parts().peekable();
        while let Some(name) = parts.next() {
            dir.tree = None;
            let Ok(at) = dir.find(&name) else { return };
            let item = &mut dir.items[at];
            if parts.peek().is_none() {
                item.stat = stat;
            }
            match &mut item.what {
                What::Dir(below) => dir = below,
                _ => return,
            }
        }
    }

    /// Whether it holds no more than so many entries, with all below it.
    pub(super) fn has_at_most(&self, most: usize) -> bool {
        fn rest(dir: &Dir, most: usize) -> Option<usize> {
            dir.items.iter().try_fold(most.checked_sub(dir.items.len())?, |left, item| match &item.what {
                What::Dir(dir) => rest(dir, left),
                _ => Some(left),
            })
        }
        rest(self, most).is_some()
    }

    /// Names the trees that are known.
    pub(super) fn each_tree(&self, known: &mut dyn FnMut(Digest)) {
        self.tree.iter().for_each(|(digest, _)| known(*digest));
        for item in &self.items {
            if let What::Dir(dir) = &item.what {
                dir.each_tree(known);
            }
        }
    }

    /// Computes the trees that are not known, deepest first, and hands them to `made`.
    pub(super) fn compute(&mut self, made: &mut dyn FnMut(Digest, Tree)) -> (Digest, u64) {
        if let Some(known) = self.tree {
            return known;
        }
        for item in &mut self.items {
            if let What::Dir(dir) = &mut item.what {
                dir.compute(made);
            }
        }
        let entry = |item: &Item| Some(Entry { name: item.name.clone(), node: item.node()? });
        let tree = Tree { entries: self.items.iter().filter_map(entry).collect() };
        let bytes = tree.encode();
        let known = (Digest::of(&bytes), bytes.len() as u64);
        self.tree = Some(known);
        made(known.0, tree);
        known
    }
}
