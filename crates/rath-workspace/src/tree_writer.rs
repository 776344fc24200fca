//! Writes the files and directories of a version to disk.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rath_core::files::{FilePath, Node, NodeKind, TreeStore};
use rath_core::store::Chunk;
use rath_core::{Digest, Store};
use rayon::prelude::*;
use rustix::fs::{Mode, OFlags, fchmod, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::content::LARGE;
use super::error::{Error, Result};
use super::index::Usage;
use super::root::{Root, os};

/// Writes files, links and trees from a store to disk.
pub(super) struct TreeWriter<'a> {
    forest: TreeStore<'a>,
    store: &'a dyn Store,
    /// The workspace directory, for error messages.
    root: &'a Path,
}

impl<'a> TreeWriter<'a> {
    pub(super) fn new(store: &'a dyn Store, root: &'a Path) -> Self {
        Self { forest: TreeStore::new(store), store, root }
    }

    fn failed(&self, doing: &str, path: &FilePath) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.root.display());
        move |error| Error::machine(doing, error)
    }

    /// Writes everything in a tree to an empty directory. Syncs nothing.
    pub(super) fn tree(&self, at: BorrowedFd<'_>, path: &FilePath, digest: Digest) -> Result<Usage> {
        let tree = pollster::block_on(self.forest.tree(digest))?;
        let (directories, files): (Vec<_>, Vec<_>) = tree.entries.iter().partition(|entry| entry.node.is_directory());
        files.par_iter().with_min_len(16).try_for_each(|entry| {
            let path = path.join(&entry.name);
            self.make(at, &entry.name, &entry.node, &path, false)
        })?;
        let below = |entry: &&rath_core::files::TreeEntry| -> Result<Usage> {
            let path = path.join(&entry.name);
            let made = mkdirat(at, os(&entry.name), Mode::from_raw_mode(0o700));
            let fd = made.and_then(|()| Root::directory_in(at, &entry.name)).map_err(self.failed("making", &path))?;
            let usage = self.tree(fd.as_fd(), &path, entry.node.sha256)?;
            // Permissions are set last, because a read-only directory could not be filled.
            let mode = Mode::from_raw_mode(entry.node.mode);
            fchmod(&fd, mode).map_err(self.failed("setting the permissions of", &path))?;
            Ok(usage)
        };
        let below: Vec<Usage> = match &directories[..] {
            // A single subdirectory is written on this thread, so that a deep chain does not nest work of other tasks
            // on this stack.
            [only] => vec![below(only)?],
            all => all.par_iter().map(below).collect::<Result<_>>()?,
        };
        let bytes = files.iter().map(|entry| entry.node.size).sum();
        let mut usage = Usage { files: tree.entries.len() as u64, bytes };
        below.into_iter().for_each(|below| usage += below);
        Ok(usage)
    }

    /// Writes a file or link. The name must not exist.
    pub(super) fn make(
        &self,
        at: BorrowedFd<'_>,
        name: &FilePath,
        node: &Node,
        path: &FilePath,
        sync: bool,
    ) -> Result<()> {
        match node.kind {
            NodeKind::Symlink => self.make_link(at, name, node, path),
            _ => self.make_file(at, name, node, path, sync),
        }
    }

    fn make_link(&self, at: BorrowedFd<'_>, name: &FilePath, node: &Node, path: &FilePath) -> Result<()> {
        let target = pollster::block_on(self.forest.content(node.sha256))?;
        symlinkat(os(&FilePath::from(&*target)), at, os(name)).map_err(self.failed("making the link", path))
    }

    fn make_file(&self, at: BorrowedFd<'_>, name: &FilePath, node: &Node, path: &FilePath, sync: bool) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(at, os(name), flags, Mode::from_raw_mode(0o600)).map_err(self.failed("making", path))?;
        let mut file = File::from(file);
        let pieces = match node.size > LARGE {
            true => pollster::block_on(self.store.blob_chunks(node.sha256))?,
            false => None,
        };
        let write = |error: io::Error| Error::machine(format!("writing {}/{path}", self.root.display()), error);
        match pieces {
            None => file.write_all(&pollster::block_on(self.forest.content(node.sha256))?).map_err(write)?,
            Some(pieces) => {
                let mut zeros: Option<Chunk> = None;
                for piece in pieces {
                    // A chunk of zeros becomes a hole. Its content is fetched once for a run of equal chunks.
                    if zeros.as_ref() != Some(&piece) {
                        let bytes = pollster::block_on(self.forest.content(piece.digest))?;
                        if !is_zero(&bytes) {
                            file.write_all(&bytes).map_err(write)?;
                            continue;
                        }
                        zeros = Some(piece);
                    }
                    file.seek(SeekFrom::Current(piece.bytes as i64)).map_err(write)?;
                }
                file.set_len(node.size).map_err(write)?;
            }
        }
        fchmod(&file, Mode::from_raw_mode(node.mode)).map_err(self.failed("setting the permissions of", path))?;
        if sync {
            file.sync_data().map_err(write)?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}
