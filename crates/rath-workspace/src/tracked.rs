//! Paths that stay versioned though an ignore rule matches them, because a version has them already.
//!
//! A file that is added to `.gitignore` is not gone. Without this it would be missing in the next version, and bringing
//! that version to another directory would delete it there.

use std::sync::{Arc, OnceLock};

use rath_core::files::{Name, Node, Tree, Version};

use super::error::Result;
use super::index::Item;
use super::rules::Level;
use super::scan::Walk;

/// What holds for the entries of a directory.
pub(super) struct Scope<'a> {
    /// The ignore rules.
    pub(super) rules: &'a Level<'a>,
    /// What versions have in the directory.
    pub(super) tracked: &'a Tracked<'a>,
    /// Whether the directory itself is ignored, and walked only for what versions have in it.
    pub(super) is_ignored: bool,
    /// Directories in it that are ignored, and walked for what versions have in them.
    pub(super) ignored: &'a [Name],
}

/// What the versions that a workspace stems from have in a directory. It is read when somebody asks for it, which is
/// where something is ignored.
pub(super) struct Tracked<'a> {
    above: Option<(&'a Tracked<'a>, &'a Name)>,
    trees: OnceLock<Vec<Arc<Tree>>>,
}

impl<'a> Tracked<'a> {
    /// In the root.
    pub(super) fn root() -> Self {
        Self { above: None, trees: OnceLock::new() }
    }

    /// In a directory of this one.
    pub(super) fn below(&'a self, name: &'a Name) -> Self {
        Self { above: Some((self, name)), trees: OnceLock::new() }
    }

    fn trees(&self, walk: &Walk<'_>) -> Result<&[Arc<Tree>]> {
        if let Some(known) = self.trees.get() {
            return Ok(known);
        }
        let directories: Vec<_> = match self.above {
            None => walk.tracked.iter().map(Version::id).collect(),
            Some((above, name)) => {
                let nodes = above.trees(walk)?.iter().filter_map(|tree| tree.get(name).copied());
                nodes.filter(Node::is_directory).map(|node| node.sha256).collect()
            }
        };
        let read = |digest| pollster::block_on(walk.trees.tree(digest));
        let trees = directories.into_iter().map(read).collect::<std::result::Result<_, _>>()?;
        Ok(self.trees.get_or_init(|| trees))
    }

    /// Whether a version has something of this kind at a name. `before` is what the index has there, which is enough
    /// to know where the index is that version.
    pub(super) fn has(&self, walk: &Walk<'_>, name: &Name, is_directory: bool, before: Option<&Item>) -> Result<bool> {
        if walk.tracked.is_empty() {
            return Ok(false);
        }
        if walk.index_is_tracked {
            return Ok(before.is_some_and(|item| item.is_directory() == is_directory));
        }
        let nodes = self.trees(walk)?.iter().filter_map(|tree| tree.get(name));
        Ok(nodes.into_iter().any(|node| node.is_directory() == is_directory))
    }
}
