//! Applies changes to a version.

use std::collections::BTreeMap;

use super::{Change, FilePath, Node, NodeKind, Tree, TreeEntry, TreeStore, Version};
use crate::store::{BoxFuture, Error, Result};

/// The mode of directories that are created implicitly.
const DIRECTORY_MODE: u32 = 0o755;

/// Returns `base` with the node `after` of each change at its path; `before` is ignored. Adding or removing a directory
/// adds or removes everything below it; changes below it are applied after that. Missing parent directories are
/// created. A directory that becomes empty stays.
pub async fn with_changes(forest: &TreeStore<'_>, base: &Version, changes: &[Change]) -> Result<Version> {
    let mut plan = Plan::default();
    for change in changes {
        let mut at = &mut plan;
        for name in change.path.parts() {
            if !name.is_legal_entry() {
                let why = format!("{name} is not a valid file name");
                return Err(Error::machine(format!("writing {} to a version", change.path), why));
            }
            at = at.below.entry(name).or_default();
        }
        at.set = Some(change.after);
    }
    let root = Node { kind: NodeKind::Directory, mode: DIRECTORY_MODE, sha256: base.id(), size: base.tree.bytes };
    let root = match plan.apply(forest, Some(root)).await? {
        Some(root) if root.is_directory() => root,
        None => forest.write_dir(DIRECTORY_MODE, Tree::default()).await?,
        Some(_) => return Err(Error::machine("writing a version", "the root must be a directory")),
    };
    let mut version = base.clone();
    (version.tree.digest, version.tree.bytes) = (root.sha256, root.size);
    Ok(version)
}

/// The changes at a path and below it.
#[derive(Default)]
struct Plan {
    set: Option<Option<Node>>,
    below: BTreeMap<FilePath, Plan>,
}

impl Plan {
    /// Returns the node that replaces `node`.
    fn apply<'a>(&'a self, forest: &'a TreeStore<'_>, node: Option<Node>) -> BoxFuture<'a, Result<Option<Node>>> {
        Box::pin(async move {
            let node = self.set.unwrap_or(node);
            if self.below.is_empty() {
                return Ok(node);
            }
            let directory = node.filter(Node::is_directory);
            let old = forest.read_dir(directory).await?;
            let mut entries: BTreeMap<&FilePath, Node> =
                old.entries.iter().map(|entry| (&entry.name, entry.node)).collect();
            for (name, plan) in &self.below {
                match plan.apply(forest, entries.get(name).copied()).await? {
                    Some(node) => entries.insert(name, node),
                    None => entries.remove(name),
                };
            }
            let entries = entries.into_iter().map(|(name, node)| TreeEntry { name: name.clone(), node });
            let tree = Tree { entries: entries.collect() };
            // Nothing changed. In particular, removing paths below a node that is not a directory keeps that node.
            if tree == *old {
                return Ok(node);
            }
            let mode = directory.map_or(DIRECTORY_MODE, |directory| directory.mode);
            Ok(Some(forest.write_dir(mode, tree).await?))
        })
    }
}
