//! The differences between two versions.

use super::{Change, FilePath, Node, Tree, TreeStore, Version};
use crate::store::{BoxFuture, Result};

/// Returns the paths that differ between two versions. Each directory comes before its entries. Only directories with
/// different content are read. A directory is listed itself if it was added or removed, or its mode changed; if it was
/// added or removed, everything below it is listed too. Applying the result to `before` with
/// [`with_changes`](super::with_changes) gives `after`.
pub async fn diff(forest: &TreeStore<'_>, before: &Version, after: &Version) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    if !before.same_files(after) {
        let (before, after) = (forest.tree(before.id()).await?, forest.tree(after.id()).await?);
        walk(forest, &FilePath::root(), &before, &after, &mut changes).await?;
    }
    Ok(changes)
}

fn walk<'a>(
    forest: &'a TreeStore<'_>,
    path: &'a FilePath,
    before: &'a Tree,
    after: &'a Tree,
    changes: &'a mut Vec<Change>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for (name, [before, after]) in super::tree::zip_entries([before, after]) {
            if before == after {
                continue;
            }
            let path = path.join(name);
            let below = [before, after].map(|node| node.filter(Node::is_directory));
            let content_alone = matches!(below, [Some(before), Some(after)] if before.mode == after.mode);
            if !content_alone {
                changes.push(Change { path: path.clone(), before, after });
            }
            if below[0].map(|node| node.sha256) != below[1].map(|node| node.sha256) {
                let (before, after) = (forest.read_dir(below[0]).await?, forest.read_dir(below[1]).await?);
                walk(forest, &path, &before, &after, changes).await?;
            }
        }
        Ok(())
    })
}
