//! Tells text files from binary ones.

use std::sync::Arc;

use super::{Node, TreeStore};
use crate::store::Result;

/// Larger files, in bytes, are not compared by line.
const TEXT_LIMIT: u64 = 4 * 1024 * 1024;

/// A file is binary if it has a NUL byte among its first 8,000 bytes. git uses the same limit.
const SNIFF_LENGTH: usize = 8000;

/// Reads a file or the target of a link; `None` when it is not text or is too large.
pub(super) async fn text(forest: &TreeStore<'_>, node: &Node) -> Result<Option<Arc<[u8]>>> {
    if node.size <= TEXT_LIMIT && forest.blobs().blob_chunks(node.sha256).await?.is_some() {
        return Ok(None);
    }
    short_text(forest, node).await
}

/// Like [`text`], for content that is known to be stored as one blob, as short files always are. Saves one lookup.
pub(crate) async fn short_text(forest: &TreeStore<'_>, node: &Node) -> Result<Option<Arc<[u8]>>> {
    if node.is_directory() || node.size > TEXT_LIMIT {
        return Ok(None);
    }
    let content = forest.content(node.sha256).await?;
    let binary = memchr::memchr(0, &content[..content.len().min(SNIFF_LENGTH)]).is_some();
    Ok((!binary).then_some(content))
}
