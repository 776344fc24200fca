//! What differs between two versions.

use super::{Change, Forest, Name, Node, Tree, Version};
use crate::store::{BoxFuture, Result};

/// The paths that differ, in the order of a walk: a directory before what is in it. Only directories that differ are
/// read. A directory is listed itself when it is new, gone, or of another mode; with everything below it when it is
/// new or gone. [`graft`](super::graft) makes `after` from `before` again.
pub async fn diff(forest: &Forest<'_>, before: &Version, after: &Version) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    if !before.same_files(after) {
        let (before, after) = (forest.tree(before.id()).await?, forest.tree(after.id()).await?);
        walk(forest, &Name::root(), &before, &after, &mut changes).await?;
    }
    Ok(changes)
}

fn walk<'a>(
    forest: &'a Forest<'_>,
    path: &'a Name,
    before: &'a Tree,
    after: &'a Tree,
    changes: &'a mut Vec<Change>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for (name, [before, after]) in super::tree::beside([before, after]) {
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
                let (before, after) = (forest.below(below[0]).await?, forest.below(below[1]).await?);
                walk(forest, &path, &before, &after, changes).await?;
            }
        }
        Ok(())
    })
}
