//! What is known of every file since it was last read: its stat and its digest. A file whose stat is the same need not
//! be read again.
//!
//! A file that was changed in the very moment it was read may have the stat of the earlier content: such entries are
//! marked *racy* and read once more. The index is a cache: it is checked by a digest, and a lost one costs time only.

use std::fs;
use std::path::Path;

use rath_core::files::{Entry, Name, Node, NodeKind, Tree};
use rath_core::{BlobRef, Digest};

use super::error::{Error, Result};

const MAGIC: &[u8; 8] = b"rathidx1";

/// Everything that was there at the last save.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) root: Dir,
    /// The rules of that save.
    pub(super) rules: Option<BlobRef>,
}

/// A directory. `tree` is known when nothing below it changed since it was computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) tree: Option<(Digest, u64)>,
    /// Names the ignore rules that its entries passed.
    pub(super) rules: u64,
    /// Sorted by name.
    pub(super) items: Vec<Item>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: Name,
    pub(super) stat: Stat,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    File(Content),
    Link(Content),
    Dir(Dir),
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
    /// What the entry is in a tree; `None` while it has not been read.
    pub(super) fn node(&self) -> Option<Node> {
        let (kind, mode, sha256, size) = match &self.what {
            What::File(content) => (NodeKind::File, self.stat.permissions(), content.digest?, content.size),
            What::Link(content) => (NodeKind::Symlink, 0o777, content.digest?, content.size),
            What::Dir(dir) => {
                let (tree, size) = dir.tree?;
                (NodeKind::Directory, self.stat.permissions(), tree, size)
            }
        };
        Some(Node { kind, mode, sha256, size })
    }
}

impl Dir {
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
                _ => dir = const { &Dir { tree: None, rules: 0, items: Vec::new() } },
            }
        }
        found
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
                    (Ok(at), Some((stat, what))) => dir.items[at] = Item { name, stat, what },
                    (Err(at), Some((stat, what))) => dir.items.insert(at, Item { name, stat, what }),
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
                    dir.items.insert(at, Item { name, stat, what: What::Dir(Dir::default()) });
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

    /// Computes the trees that are not known, deepest first, and hands them to `made`.
    pub(super) fn compute(&mut self, made: &mut dyn FnMut(Tree)) -> (Digest, u64) {
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
        made(tree);
        known
    }
}

impl Index {
    /// Reads the index at `path`; none, or an empty one, where there is none that can be trusted.
    pub(super) fn load(path: &Path) -> Index {
        let read = || {
            let bytes = fs::read(path).ok()?;
            let (bytes, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
            if Digest::of(bytes).0 != *digest {
                return None;
            }
            let mut from = Reader(bytes);
            if from.take(8)? != MAGIC {
                return None;
            }
            let rules = match from.number()? {
                0 => None,
                length => serde_json::from_slice(from.take(length as usize)?).ok(),
            };
            Some(Index { root: from.dir(0)?, rules })
        };
        read().unwrap_or_default()
    }

    /// Writes it beside the old one and puts it in its place.
    pub(super) fn store(&self, path: &Path) -> Result<()> {
        let mut out = Vec::with_capacity(1 << 16);
        out.extend_from_slice(MAGIC);
        let rules = self.rules.as_ref().map(|rules| serde_json::to_vec(rules).unwrap_or_default()).unwrap_or_default();
        number(&mut out, rules.len() as u64);
        out.extend_from_slice(&rules);
        write_dir(&mut out, &self.root);
        let digest = Digest::of(&out);
        out.extend_from_slice(&digest.0);
        let beside = path.with_extension("new");
        let written = fs::write(&beside, &out).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn write_dir(out: &mut Vec<u8>, dir: &Dir) {
    match dir.tree {
        Some((digest, size)) => {
            out.push(1);
            out.extend_from_slice(&digest.0);
            number(out, size);
        }
        None => out.push(0),
    }
    number(out, dir.rules);
    number(out, dir.items.len() as u64);
    for Item { name, stat, what } in &dir.items {
        number(out, name.as_bytes().len() as u64);
        out.extend_from_slice(name.as_bytes());
        number(out, u64::from(stat.mode));
        number(out, stat.size);
        number(out, stat.mtime as u64);
        number(out, stat.ctime as u64);
        number(out, stat.inode);
        let (code, content) = match what {
            What::File(content) => (b'f', content),
            What::Link(content) => (b'l', content),
            What::Dir(dir) => {
                out.push(b'd');
                write_dir(out, dir);
                continue;
            }
        };
        out.push(code);
        out.push(u8::from(content.racy));
        out.extend_from_slice(&content.digest.unwrap_or(Digest([0; 32])).0);
        number(out, content.size);
    }
}

/// Reads what [`write_dir`] wrote. The digest was checked: this only guards against other versions.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn digest(&mut self) -> Option<Digest> {
        Some(Digest(self.take(32)?.try_into().ok()?))
    }

    fn dir(&mut self, depth: usize) -> Option<Dir> {
        let tree = match self.byte()? {
            0 => None,
            _ => Some((self.digest()?, self.number()?)),
        };
        let rules = self.number()?;
        let count = self.number()?;
        if depth > 4096 {
            return None;
        }
        let mut items = Vec::with_capacity((count as usize).min(1 << 16));
        for _ in 0..count {
            let length = self.number()? as usize;
            let name = Name::from(self.take(length)?);
            let stat = Stat {
                mode: self.number()? as u32,
                size: self.number()?,
                mtime: self.number()? as i64,
                ctime: self.number()? as i64,
                inode: self.number()?,
            };
            let code = self.byte()?;
            let what = match code {
                b'd' => What::Dir(self.dir(depth + 1)?),
                _ => {
                    let racy = self.byte()? != 0;
                    let content = Content { racy, digest: Some(self.digest()?), size: self.number()? };
                    match code {
                        b'f' => What::File(content),
                        _ => What::Link(content),
                    }
                }
            };
            items.push(Item { name, stat, what });
        }
        Some(Dir { tree, rules, items })
    }
}
