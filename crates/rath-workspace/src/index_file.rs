//! The index file.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use rath_core::files::{FilePath, Node, NodeKind};
use rath_core::{Digest, Time};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Workspace;
use super::error::{Error, Result};
use super::index::{Content, Dir, Index, Item, ItemData, Stat, Usage};

const MAGIC: &[u8; 8] = b"rathidx2";

/// Minimum number of microseconds between two writes of the index during a series of tool calls. Writing the index
/// takes time proportional to the number of files, and all it saves after a crash is reading the files that the last
/// calls changed.
const BEHIND: u64 = 1_000_000;

/// The state of the index file compared to the index in memory.
#[derive(Default)]
pub(super) struct IndexWriteState {
    at: Option<Time>,
    is_stale: bool,
}

impl IndexWriteState {
    /// The index was just written.
    pub(super) fn now() -> Self {
        Self { at: Some(Time::now()), is_stale: false }
    }

    /// Whether the last write is long enough ago that a new one is due.
    pub(super) fn is_due(&self) -> bool {
        let now = Time::now();
        self.at.is_none_or(|at| now < at || now.micros_since(at) >= BEHIND)
    }

    /// Whether the index file is older than the index in memory.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Records that the index in memory changed, if `is_new`.
    pub(super) fn mark_stale_if(&mut self, is_new: bool) {
        self.is_stale |= is_new;
    }
}

impl Index {
    /// Reads the index at `path`. Returns an empty index if there is no valid one.
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
            let lower_tree = match from.byte()? {
                0 => None,
                _ => Some(from.digest()?),
            };
            Some(Index { root: from.dir(0)?, rules, lower_tree })
        };
        read().unwrap_or_default()
    }

    /// Writes the index to a second file and exchanges the two.
    pub(super) fn store(&self, path: &Path) -> Result<()> {
        let mut out = Vec::with_capacity(1 << 16);
        out.extend_from_slice(MAGIC);
        let rules = self.rules.as_ref().map(|rules| serde_json::to_vec(rules).unwrap_or_default()).unwrap_or_default();
        number(&mut out, rules.len() as u64);
        out.extend_from_slice(&rules);
        out.push(u8::from(self.lower_tree.is_some()));
        out.extend(self.lower_tree.iter().flat_map(|lower_tree| lower_tree.0));
        write_dir(&mut out, &self.root);
        let digest = Digest::of(&out);
        out.extend_from_slice(&digest.0);
        let second_file = path.with_extension("new");
        // The old file stays and is overwritten by the next write. A rename that replaces a file makes some file
        // systems flush the new one at once, and creating and deleting a file each time is slower. Nothing is synced:
        // after a power failure, a torn index fails its digest check, and an older index is still correct, because each
        // entry is compared with the stat of its file.
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&second_file)?;
            file.write_all(&out)?;
            file.set_len(out.len() as u64)?;
            match renameat_with(CWD, &second_file, CWD, path, RenameFlags::EXCHANGE) {
                Ok(()) => Ok(()),
                Err(_) => fs::rename(&second_file, path),
            }
        };
        write().map_err(|error| Error::machine(format!("writing {}", path.display()), error))
    }
}

impl Workspace {
    /// Writes the index file.
    pub(super) fn write_index(&mut self) -> Result<()> {
        self.index.store(&self.state.join("index"))?;
        self.written = IndexWriteState::now();
        Ok(())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // After a failed save the index has no root tree. Then its contents may not be in the store, so it is not
        // written.
        if self.written.is_stale() && self.index.root.tree.is_some() {
            // Without the index, the next save reads more files.
            let _ = self.write_index();
        }
    }
}

/// Removes the index files from a workspace's state directory: the current one and the previous one.
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
    write_weight(out, dir.hidden);
    number(out, dir.items.len() as u64);
    for Item { name, stat, data, .. } in &dir.items {
        number(out, name.as_bytes().len() as u64);
        out.extend_from_slice(name.as_bytes());
        number(out, u64::from(stat.mode));
        number(out, stat.size);
        number(out, stat.mtime as u64);
        number(out, stat.ctime as u64);
        number(out, stat.inode);
        let (code, content) = match data {
            ItemData::File(content) => (b'f', content),
            ItemData::Link(content) => (b'l', content),
            ItemData::Dir(dir) => {
                out.push(b'd');
                write_dir(out, dir);
                continue;
            }
            ItemData::Whiteout(usage) => {
                out.push(b'g');
                out.push(u8::from(usage.is_some()));
                write_weight(out, usage.unwrap_or_default());
                continue;
            }
        };
        out.push(code);
        out.push(u8::from(content.racy));
        out.extend_from_slice(&content.digest.unwrap_or(Digest([0; 32])).0);
        number(out, content.size);
    }
}

fn write_weight(out: &mut Vec<u8>, usage: Usage) {
    number(out, usage.files);
    number(out, usage.bytes);
}

/// Decodes what [`write_dir`] wrote. The digest has been checked already, so a decoding error means another format
/// version.
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
        let hidden = self.usage()?;
        let count = self.number()?;
        if depth > 4096 {
            return None;
        }
        let mut items = Vec::with_capacity((count as usize).min(1 << 16));
        for _ in 0..count {
            let length = self.number()? as usize;
            let name = FilePath::from(self.take(length)?);
            let stat = Stat {
                mode: self.number()? as u32,
                size: self.number()?,
                mtime: self.number()? as i64,
                ctime: self.number()? as i64,
                inode: self.number()?,
            };
            let code = self.byte()?;
            let data = match code {
                b'd' => ItemData::Dir(self.dir(depth + 1)?),
                b'g' => {
                    let is_known = self.byte()? != 0;
                    let usage = self.usage()?;
                    ItemData::Whiteout(is_known.then_some(usage))
                }
                _ => {
                    let racy = self.byte()? != 0;
                    let content = Content { racy, digest: Some(self.digest()?), size: self.number()? };
                    match code {
                        b'f' => ItemData::File(content),
                        _ => ItemData::Link(content),
                    }
                }
            };
            items.push(Item { name, stat, data, layer: 0 });
        }
        Some(Dir { tree, rules, merges, base, hidden, items })
    }

    fn usage(&mut self) -> Option<Usage> {
        Some(Usage { files: self.number()?, bytes: self.number()? })
    }
}
