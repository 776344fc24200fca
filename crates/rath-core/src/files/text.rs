//! Which contents are text.

use std::sync::Arc;

use super::{Forest, Node};
use crate::store::Result;

/// What is larger is not compared by line.
const TEXT_LIMIT: u64 = 4 * 1024 * 1024;

/// A byte 0 among so many first ones tells that a content is not text; git looks as far.
const LOOK: usize = 8000;

/// The text of a file or the target of a link; `None` when it is not text, or too large to be read.
pub(super) async fn text(forest: &Forest<'_>, node: &Node) -> Result<Option<Arc<[u8]>>> {
    if node.size <= TEXT_LIMIT && forest.blobs().blob_pieces(node.sha256).await?.is_some() {
        return Ok(None);
    }
    short_text(forest, node).await
}

/// As [`text`], of a content that is known to be held in one, as all short ones of ours are: one read less.
pub(crate) async fn short_text(forest: &Forest<'_>, node: &Node) -> Result<Option<Arc<[u8]>>> {
    if node.is_directory() || node.size > TEXT_LIMIT {
        return Ok(None);
    }
    let content = forest.content(node.sha256).await?;
    let binary = memchr::memchr(0, &content[..content.len().min(LOOK)]).is_some();
    Ok((!binary).then_some(content))
}
