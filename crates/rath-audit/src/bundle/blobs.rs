//! The blobs that records name, and those that trees among them name.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::files::{TREE, Tree};
use rath_core::store::{self, Piece, Store};
use rath_core::{BlobRef, Digest, Point, Record};

use super::check::WHOLE;
use super::import::changed;
use super::source::Source;
use super::{BLOBS, Error};

/// A blob that something names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) bytes: u64,
    /// The first record that names it.
    pub(super) by: Point,
    pub(super) tree: bool,
}

/// The blobs that the bodies of some records name, without what is in trees.
#[derive(Default)]
pub(super) struct Names {
    pub(super) all: BTreeMap<Digest, Named>,
    /// A digest that two bodies name with two lengths cannot be right.
    pub(super) contradiction: Option<(Digest, Point)>,
}

impl Names {
    pub(super) fn of(&mut self, record: &Record) {
        let named = rath_core::blob_references(record.body_bytes().unwrap_or_default());
        named.into_iter().for_each(|blob| self.named(blob, record.point()));
    }

    /// Adds one that a record names.
    pub(super) fn named(&mut self, blob: BlobRef, by: Point) {
        let BlobRef { digest, bytes, media_type } = blob;
        self.add(digest, Named { bytes, by, tree: media_type == TREE });
    }

    /// Adds one. Says whether what is in it is still to be named.
    pub(super) fn add(&mut self, digest: Digest, named: Named) -> bool {
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

    /// Adds what is in a tree; what is still to be named of that comes back.
    pub(super) fn inside(&mut self, tree: &Tree, by: Point) -> Vec<Digest> {
        let mut open = Vec::new();
        for entry in &tree.entries {
            let node = &entry.node;
            let named = Named { bytes: node.size, by, tree: node.is_directory() };
            if self.add(node.sha256, named) {
                open.push(node.sha256);
            }
        }
        open
    }

    /// Adds what is in the trees among them, as far as a bundle has those.
    pub(super) fn walk(&mut self, source: &mut Source) -> Result<(), Error> {
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

/// The parts of a blob in a store, one after the other; `None` when it is not there.
pub(crate) async fn parts(store: &Arc<dyn Store>, digest: Digest) -> store::Result<Option<Parts>> {
    match store.blob_pieces(digest).await? {
        Some(pieces) => Ok(Some(Parts::Pieces(pieces.into_iter()))),
        None => Ok(store.blob_get(digest).await?.map(|bytes| Parts::Whole(Some(bytes)))),
    }
}

/// A blob as a store hands it over.
pub(crate) enum Parts {
    Whole(Option<Arc<[u8]>>),
    Pieces(std::vec::IntoIter<Piece>),
}

impl Parts {
    pub(crate) async fn next(&mut self, store: &Arc<dyn Store>) -> store::Result<Option<Arc<[u8]>>> {
        match self {
            Parts::Whole(bytes) => Ok(bytes.take()),
            Parts::Pieces(pieces) => match pieces.next() {
                Some(piece) => {
                    let missing = || store::Error::NotFound(format!("blob {}", piece.digest));
                    store.blob_get(piece.digest).await?.ok_or_else(missing).map(Some)
                }
                None => Ok(None),
            },
        }
    }
}

/// Blobs above this are taken in by pieces, as files of a workspace are.
pub(super) const LARGE: u64 = 4 << 20;

/// The length of a piece.
pub(super) const PIECE: usize = 1 << 20;
