//! The trees of a store, read and written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Name, Node, NodeKind, Tree, Version};
use crate::blob::BlobRef;
use crate::id::Digest;
use crate::store::{Blobs, BoxFuture, Error, Result};

/// Reads trees and contents of a store; a tree that was read is kept.
pub struct Forest<'a> {
    blobs: &'a dyn Blobs,
    read: Mutex<HashMap<Digest, Arc<Tree>>>,
}

impl<'a> Forest<'a> {
    /// The trees in `blobs`.
    pub fn new(blobs: &'a dyn Blobs) -> Self {
        Self { blobs, read: Mutex::default() }
    }

    /// The trees in `blobs`, of which some are at hand.
    pub fn knowing(blobs: &'a dyn Blobs, known: HashMap<Digest, Arc<Tree>>) -> Self {
        Self { blobs, read: known.into() }
    }

    /// Where they are kept.
    pub fn blobs(&self) -> &'a dyn Blobs {
        self.blobs
    }

    /// The tree with this digest, if it is at hand.
    pub fn known(&self, digest: Digest) -> Option<Arc<Tree>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()
    }

    /// The tree with this digest.
    pub async fn tree(&self, digest: Digest) -> Result<Arc<Tree>> {
        if let Some(tree) = self.known(digest) {
            return Ok(tree);
        }
        let bytes = self.content(digest).await?;
        let tree = Tree::decode(&bytes).map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
        let tree = Arc::new(tree);
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, tree.clone());
        Ok(tree)
    }

    /// The bytes of a file, a link's target or a tree.
    pub async fn content(&self, digest: Digest) -> Result<Arc<[u8]>> {
        self.blobs.blob_get(digest).await?.ok_or_else(|| Error::NotFound(format!("content {digest}")))
    }

    /// What stands at `path`; an empty path is the root itself.
    pub async fn at(&self, version: &Version, path: &Name) -> Result<Option<Node>> {
        let mut digest = version.id();
        let mut found = None;
        for name in path.parts() {
            if found.is_some_and(|node: Node| !node.is_directory()) {
                return Ok(None);
            }
            match self.tree(digest).await?.get(&name) {
                Some(node) => (found, digest) = (Some(*node), node.sha256),
                None => return Ok(None),
            }
        }
        Ok(found)
    }

    /// What is in a directory; nothing when there is none.
    pub(super) async fn below(&self, directory: Option<Node>) -> Result<Arc<Tree>> {
        match directory {
            Some(directory) => self.tree(directory.sha256).await,
            None => Ok(Arc::default()),
        }
    }

    /// Everything below a version's root, in the order of a walk: a directory before what is in it.
    pub async fn list(&self, version: &Version) -> Result<Vec<(Name, Node)>> {
        let mut found = Vec::new();
        self.list_into(Name::root(), version.id(), &mut found).await?;
        Ok(found)
    }

    fn list_into<'b>(
        &'b self,
        path: Name,
        digest: Digest,
        found: &'b mut Vec<(Name, Node)>,
    ) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move {
            let tree = self.tree(digest).await?;
            for entry in &tree.entries {
                let path = path.join(&entry.name);
                found.push((path.clone(), entry.node));
                if entry.node.is_directory() {
                    self.list_into(path, entry.node.sha256, found).await?;
                }
            }
            Ok(())
        })
    }

    /// Writes a tree; the root of a version, when nothing is above it.
    pub async fn put(&self, tree: Tree) -> Result<BlobRef> {
        let blob = tree.to_blob();
        let reference = blob.reference.clone();
        self.blobs.blob_put(vec![blob]).await?;
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(reference.digest, Arc::new(tree));
        Ok(reference)
    }

    /// Writes a directory.
    pub(super) async fn plant(&self, mode: u32, tree: Tree) -> Result<Node> {
        let BlobRef { digest, bytes, .. } = self.put(tree).await?;
        Ok(Node { kind: NodeKind::Directory, mode, sha256: digest, size: bytes })
    }
}
