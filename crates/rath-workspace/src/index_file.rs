//! The index on disk.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use rath_core::files::{Name, Node, NodeKind};
use rath_core::{Digest, Time};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Workspace;
use super::error::{Error, Result};
use super::index::{Content, Dir, Index, Item, Stat, Weight, What};

const MAGIC: &[u8; 8] = b"rathidx2";

/// How many microseconds the index on disk may be behind while calls follow each other. It is as long as there are files, and spares
/// whoever comes after a crash no more than reading again what the last calls changed.
const BEHIND: u64 = 1_000_000;

/// What is known of the index on disk.
#[derive(Default)]
pub(super) struct Written {
    at: Option<Time>,
    is_behind: bool,
}

impl Written {
    /// It is as new as what is known.
    pub(super) fn now() -> Self {
        Self { at: Some(Time::now()), is_behind: false }
    }

    /// Whether it had better be written again now.
    pub(super) fn is_long_ago(&self) -> bool {
        let now = Time::now();
        self.at.is_none_or(|at| now < at || now.micros_since(at) >= BEHIND)
    }

    /// Whether it is older than what is known.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Notes that something new is known, if it is.
    pub(super) fn falls_behind(&mut self, is_new: bool) {
        self.is_behind |= is_new;
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
            let below = match from.byte()? {
                0 => None,
                _ => Some(from.digest()?),
            };
            Some(Index { root: from.dir(0)?, rules, below })
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
        out.push(u8::from(self.below.is_some()));
        out.extend(self.below.iter().flat_map(|below| below.0));
        write_dir(&mut out, &self.root);
        let digest = Digest::of(&out);
        out.extend_from_slice(&digest.0);
        let beside = path.with_extension("new");
        // They change places, and the old one waits to be written over: where one replaces the other, some file systems
        // write the new one out at once, and where files come and go, each new one is looked for longer. After a
        // power cut a torn one is none, and one of an earlier save is as good: what it says of a file is held against
        // the file.
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&beside)?;
            file.write_all(&out)?;
            file.set_len(out.len() as u64)?;
            match renameat_with(CWD, &beside, CWD, path, RenameFlags::EXCHANGE) {
                Ok(()) => Ok(()),
                Err(_) => fs::rename(&beside, path),
            }
        };
        write().map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }
}

impl Workspace {
    /// Writes the index.
    pub(super) fn write_index(&mut self) -> Result<()> {
        self.index.store(&self.state.join("index"))?;
        self.written = Written::now();
        Ok(())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // One without a tree, as a save that failed may leave it, says of no content that the store has it.
        if self.written.is_behind() && self.index.root.tree.is_some() {
            // Without it more is read the next time.
            let _ = self.write_index();
        }
    }
}

/// Removes the index from a workspace's state directory, with the one before it.
pub fn forget_index(state: &Path) -> io::Result<()> {
    let [index, before] = ["index", "index.new"].map(|name| match fs::remove_file(state.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    index.and(before)
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
    out.push(u8::from(dir.merges));
    match &dir.base {
        Some(base) => {
            out.push(1);
            number(out, u64::from(base.mode));
            out.extend_from_slice(&base.sha256.0);
            number(out, base.size);
        }
        None => out.push(0),
    }
    write_weight(out, dir.lost);
    number(out, dir.items.len() as u64);
    for Item { name, stat, what, .. } in &dir.items {
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
            What::Gone(weight) => {
                out.push(b'g');
                out.push(u8::from(weight.is_some()));
                write_weight(out, weight.unwrap_or_default());
                continue;
            }
        };
        out.push(code);
        out.push(u8::from(content.racy));
        out.extend_from_slice(&content.digest.unwrap_or(Digest([0; 32])).0);
        number(out, content.size);
    }
}

fn write_weight(out: &mut Vec<u8>, weight: Weight) {
    number(out, weight.files);
    number(out, weight.bytes);
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
        let merges = self.byte()? != 0;
        let base = match self.byte()? {
            0 => None,
            _ => Some(Node {
                kind: NodeKind::Directory,
                mode: self.number()? as u32,
                sha256: self.digest()?,
                size: self.number()?,
            }),
        };
        let lost = self.weight()?;
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
                b'g' => {
                    let is_known = self.byte()? != 0;
                    let weight = self.weight()?;
                    What::Gone(is_known.then_some(weight))
                }
                _ => {
                    let racy = self.byte()? != 0;
                    let content = Content { racy, digest: Some(self.digest()?), size: self.number()? };
                    match code {
                        b'f' => What::File(content),
                        _ => What::Link(content),
                    }
                }
            };
            items.push(Item { name, stat, what, layer: 0 });
        }
        Some(Dir { tree, rules, merges, base, lost, items })
    }

    fn weight(&mut self) -> Option<Weight> {
        Some(Weight { files: self.number()?, bytes: self.number()? })
    }
}
