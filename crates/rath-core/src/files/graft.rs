//! Other nodes at some paths of a version.

use std::collections::BTreeMap;

use super::{Change, Entry, Forest, Name, Node, NodeKind, Tree, Version};
use crate::store::{BoxFuture, Error, Result};

/// The mode of a directory that nobody gave one.
const DIRECTORY_MODE: u32 = 0o755;

/// The version in which each path holds what its change has `after`; what `before` says does not matter. A directory
/// comes and goes with everything below it, other changes below it come on top. Directories that are missing are
/// made; one that is emptied stays.
pub async fn graft(forest: &Forest<'_>, base: &Version, changes: &[Change]) -> Result<Version> {
    let mut plan = Plan::default();
    for change in changes {
        let mut at = &mut plan;
        for name in change.path.parts() {
            if !name.is_legal_entry() {
                let why = format!("{name} cannot be the name of a file");
                return Err(Error::machine(format!("putting {} into a version", change.path), why));
            }
            at = at.below.entry(name).or_default();
        }
        at.set = Some(change.after);
    }
    let root = Node { kind: NodeKind::Directory, mode: DIRECTORY_MODE, sha256: base.id(), size: base.tree.bytes };
    let root = match plan.grow(forest, Some(root)).await? {
        Some(root) if root.is_directory() => root,
        None => forest.plant(DIRECTORY_MODE, Tree::default()).await?,
        Some(_) => return Err(Error::machine("putting a file into a version", "the root has to be a directory")),
    };
    let mut version = base.clone();
    (version.tree.digest, version.tree.bytes) = (root.sha256, root.size);
    Ok(version)
}

/// What is to stand at a path and below it.
#[derive(Default)]
struct Plan {
    set: Option<Option<Node>>,
    below: BTreeMap<Name, Plan>,
}

impl Plan {
    /// What stands here, where `node` stood.
    fn grow<'a>(&'a self, forest: &'a Forest<'_>, node: Option<Node>) -> BoxFuture<'a, Result<Option<Node>>> {
        Box::pin(async move {
            let node = self.set.unwrap_or(node);
            if self.below.is_empty() {
                return Ok(node);
            }
            let directory = node.filter(Node::is_directory);
            let old = forest.below(directory).await?;
            let mut entries: BTreeMap<&Name, Node> =
                old.entries.iter().map(|entry| (&entry.name, entry.node)).collect();
            for (name, plan) in &self.below {
                match plan.grow(forest, entries.get(name).copied()).await? {
                    Some(node) => entries.insert(name, node),
                    None => entries.remove(name),
                };
            }
            let entries = entries.into_iter().map(|(name, node)| Entry { name: name.clone(), node });
            let tree = Tree { entries: entries.collect() };
            // Removing paths below what is no directory leaves it alone.
            if tree == *old {
                return Ok(node);
            }
            let mode = directory.map_or(DIRECTORY_MODE, |directory| directory.mode);
            Ok(Some(forest.plant(mode, tree).await?))
        })
    }
}
