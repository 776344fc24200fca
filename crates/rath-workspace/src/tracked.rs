//! Tracked paths: paths that stay versioned although an ignore rule matches them, because a version contains them.
//!
//! Without this, adding a versioned file to `.gitignore` would remove it from the next version, and applying that
//! version to another directory would delete the file there.

use std::sync::{Arc, OnceLock};

use rath_core::files::{FilePath, Node, Tree, Version};

use super::error::Result;
use super::index::Item;
use super::rules::Level;
use super::scan::Walk;

/// What decides whether the entries of a directory are versioned.
pub(super) struct Scope<'a> {
    /// The ignore rules that apply in the directory.
    pub(super) rules: &'a Level<'a>,
    /// What the tracked versions contain in the directory.
    pub(super) tracked: &'a Tracked<'a>,
    /// Whether the directory itself is ignored and is walked only because of tracked entries.
    pub(super) is_ignored: bool,
    /// Its subdirectories that are ignored and are walked only because of tracked entries.
    pub(super) ignored: &'a [FilePath],
}

/// What the versions that the workspace is based on contain in a directory. The trees are read at first use, which is
/// when an ignored entry is found.
pub(super) struct Tracked<'a> {
    above: Option<(&'a Tracked<'a>, &'a FilePath)>,
    trees: OnceLock<Vec<Arc<Tree>>>,
}

impl<'a> Tracked<'a> {
    /// The content of the root directory.
    pub(super) fn root() -> Self {
        Self { above: None, trees: OnceLock::new() }
    }

    /// The content of a subdirectory.
    pub(super) fn subdirectory(&'a self, name: &'a FilePath) -> Self {
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

    /// Whether a version has an entry `name` that is (or is not) a directory. `before` is the entry of the index, which
    /// decides if the index equals the tracked versions.
    pub(super) fn has(
        &self,
        walk: &Walk<'_>,
        name: &FilePath,
        is_directory: bool,
        before: Option<&Item>,
    ) -> Result<bool> {
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
