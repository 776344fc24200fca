//! Collects the blobs that records refer to, and those in file trees among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::files::{TREE, Tree};
use rath_core::store::{self, Chunk, Store};
use rath_core::{BlobRef, Digest, Point, Record};

use super::check::WHOLE;
use super::import::changed;
use super::source::BundleSource;
use super::{BLOBS, BundleError};

/// A blob that a record or a tree refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedBlob {
    pub(super) bytes: u64,
    /// The first record that refers to it.
    pub(super) by: Point,
    pub(super) tree: bool,
}

/// The blobs that the bodies of some records refer to.
#[derive(Default)]
pub(super) struct NamedBlobs {
    pub(super) all: BTreeMap<Digest, NamedBlob>,
    /// A digest that two bodies refer to with different lengths: one of them must be wrong.
    pub(super) contradiction: Option<(Digest, Point)>,
}

impl NamedBlobs {
    pub(super) fn of(&mut self, record: &Record) {
        let named = rath_core::blob_references(record.body_bytes().unwrap_or_default());
        named.into_iter().for_each(|blob| self.named(blob, record.point()));
    }

    /// Adds a blob that a record refers to.
    pub(super) fn named(&mut self, blob: BlobRef, by: Point) {
        let BlobRef { digest, bytes, media_type } = blob;
        self.add(digest, NamedBlob { bytes, by, tree: media_type == TREE });
    }

    /// Adds a blob. Returns whether it is a tree whose entries still have to be added.
    pub(super) fn add(&mut self, digest: Digest, named: NamedBlob) -> bool {
        match self.all.get_mut(&digest) {
            Some(known) if known.bytes != named.bytes => {
                self.contradiction.get_or_insert((digest, named.by));
                false
            }
            Some(known) => {
                let newly = named.tree && !known.tree;
                known.tree |= named.tree;
                newly
            }
            None => {
                self.all.insert(digest, named);
                named.tree
            }
        }
    }

    /// Adds the entries of a tree. Returns the subtrees whose entries still have to be added.
    pub(super) fn inside(&mut self, tree: &Tree, by: Point) -> Vec<Digest> {
        let mut open = Vec::new();
        for entry in &tree.entries {
            let node = &entry.node;
            let named = NamedBlob { bytes: node.size, by, tree: node.is_directory() };
            if self.add(node.sha256, named) {
                open.push(node.sha256);
            }
        }
        open
    }

    /// Adds the entries of all trees, as far as the bundle contains them.
    pub(super) fn walk(&mut self, source: &mut BundleSource) -> Result<(), BundleError> {
        let mut open: Vec<Digest> =
            self.all.iter().filter(|(_, named)| named.tree).map(|(digest, _)| *digest).collect();
        while let Some(digest) = open.pop() {
            let name = format!("{BLOBS}{digest}");
            let Some(by) = self.all.get(&digest).map(|named| named.by) else { continue };
            if source.names.contains_key(&name) {
                let tree = Tree::decode(&source.whole(&name, WHOLE)?).map_err(|_| changed(&name))?;
                open.extend(self.inside(&tree, by));
            }
        }
        Ok(())
    }
}

/// The parts of a blob in a store, in order; `None` if the store does not have it.
pub(crate) async fn parts(store: &Arc<dyn Store>, digest: Digest) -> store::Result<Option<Parts>> {
    match store.blob_chunks(digest).await? {
        Some(chunks) => Ok(Some(Parts::Chunks(chunks.into_iter()))),
        None => Ok(store.blob_get(digest).await?.map(|bytes| Parts::Whole(Some(bytes)))),
    }
}

/// A stored blob, read part by part.
pub(crate) enum Parts {
    Whole(Option<Arc<[u8]>>),
    Chunks(std::vec::IntoIter<Chunk>),
}

impl Parts {
    pub(crate) async fn next(&mut self, store: &Arc<dyn Store>) -> store::Result<Option<Arc<[u8]>>> {
        match self {
            Parts::Whole(bytes) => Ok(bytes.take()),
            Parts::Chunks(chunks) => match chunks.next() {
                Some(chunk) => {
                    let missing = || store::Error::NotFound(format!("blob {}", chunk.digest));
                    store.blob_get(chunk.digest).await?.ok_or_else(missing).map(Some)
                }
                None => Ok(None),
            },
        }
    }
}

/// Blobs longer than this, in bytes, are imported in chunks, as files of a workspace are.
pub(super) const LARGE: u64 = 4 << 20;

/// The length of a chunk, in bytes.
pub(super) const CHUNK: usize = 1 << 20;
