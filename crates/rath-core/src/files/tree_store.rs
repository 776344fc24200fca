//! Reads and writes the trees of a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{FilePath, Node, NodeKind, Tree, Version};
use crate::blob::BlobRef;
use crate::id::Digest;
use crate::store::{Blobs, BoxFuture, Error, Result};

/// Reads and writes trees and file contents in a store. Trees are cached.
pub struct TreeStore<'a> {
    blobs: &'a dyn Blobs,
    read: Mutex<HashMap<Digest, Arc<Tree>>>,
}

impl<'a> TreeStore<'a> {
    /// Accesses the trees in `blobs`, with an empty cache.
    pub fn new(blobs: &'a dyn Blobs) -> Self {
        Self { blobs, read: Mutex::default() }
    }

    /// Accesses the trees in `blobs`, with `known` as the initial cache.
    pub fn with_cache(blobs: &'a dyn Blobs, known: HashMap<Digest, Arc<Tree>>) -> Self {
        Self { blobs, read: known.into() }
    }

    /// The underlying blobs.
    pub fn blobs(&self) -> &'a dyn Blobs {
        self.blobs
    }

    /// The tree with this digest, if it is cached.
    pub fn cached(&self, digest: Digest) -> Option<Arc<Tree>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()
    }

    /// Reads the tree with this digest.
    pub async fn tree(&self, digest: Digest) -> Result<Arc<Tree>> {
        if let Some(tree) = self.cached(digest) {
            return Ok(tree);
        }
        let bytes = self.content(digest).await?;
        let tree = Tree::decode(&bytes).map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
        let tree = Arc::new(tree);
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, tree.clone());
        Ok(tree)
    }

    /// Reads the content of a file, the target of a link, or the bytes of a tree.
    pub async fn content(&self, digest: Digest) -> Result<Arc<[u8]>> {
        self.blobs.blob_get(digest).await?.ok_or_else(|| Error::NotFound(format!("content {digest}")))
    }

    /// The node at `path` in a version; `None` when nothing exists there, and for the empty path.
    pub async fn at(&self, version: &Version, path: &FilePath) -> Result<Option<Node>> {
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

    /// Reads a directory; an empty tree for `None`.
    pub(super) async fn read_dir(&self, directory: Option<Node>) -> Result<Arc<Tree>> {
        match directory {
            Some(directory) => self.tree(directory.sha256).await,
            None => Ok(Arc::default()),
        }
    }

    /// Lists everything below the root of a version. Each directory comes before its entries.
    pub async fn list(&self, version: &Version) -> Result<Vec<(FilePath, Node)>> {
        let mut found = Vec::new();
        self.list_into(FilePath::root(), version.id(), &mut found).await?;
        Ok(found)
    }

    fn list_into<'b>(
        &'b self,
        path: FilePath,
        digest: Digest,
        found: &'b mut Vec<(FilePath, Node)>,
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

    /// Writes a tree and returns its reference.
    pub async fn put(&self, tree: Tree) -> Result<BlobRef> {
        let blob = tree.to_blob();
        let reference = blob.reference.clone();
        self.blobs.blob_put(vec![blob]).await?;
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(reference.digest, Arc::new(tree));
        Ok(reference)
    }

    /// Writes a tree and returns its node as a directory with this mode.
    pub(super) async fn write_dir(&self, mode: u32, tree: Tree) -> Result<Node> {
        let BlobRef { digest, bytes, .. } = self.put(tree).await?;
        Ok(Node { kind: NodeKind::Directory, mode, sha256: digest, size: bytes })
    }
}
