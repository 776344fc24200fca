//! The lower version: the saved version that the layers below the top one amount to. It replaces walking those layers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rath_core::Digest;
use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeStore, Version};

use super::stack::{Layer, Lookup, Stack};
use crate::error::Result;
use crate::index::{Item, ItemData, Usage};

/// The rule files of the lower version, with their texts.
pub(crate) type RuleTexts = HashMap<FilePath, String>;

/// Answers, during one walk of the top layer, what the layers below it contain.
pub(crate) struct LowerVersion<'a> {
    stack: &'a Stack,
    forest: TreeStore<'a>,
    root: Node,
    /// The rule files. `None` if all layers are walked, because the version was saved with other rules.
    rules: Option<&'a RuleTexts>,
    needs_full_walk: AtomicBool,
    hidden: (AtomicU64, AtomicU64),
}

/// What is below one directory of the top layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct LowerDir {
    /// Whether lower layers are visible through the directory.
    pub(crate) merges: bool,
    /// The directory in the lower version.
    pub(crate) base: Option<Node>,
    /// The lower layers to walk. Empty if the lower version is enough.
    pub(crate) layers: Vec<Layer>,
}

impl<'a> LowerVersion<'a> {
    pub(crate) fn new(stack: &'a Stack, forest: TreeStore<'a>, base: &Version, rules: Option<&'a RuleTexts>) -> Self {
        let root = Node { kind: NodeKind::Directory, mode: 0o755, sha256: base.id(), size: base.tree.bytes };
        Self { stack, forest, root, rules, needs_full_walk: AtomicBool::default(), hidden: Default::default() }
    }

    pub(crate) fn lower_root(&self) -> LowerDir {
        let layers = if self.walks_all_layers() { self.stack.lowers() } else { Vec::new() };
        LowerDir { merges: true, base: Some(self.root), layers }
    }

    /// Whether the lower layers are walked too.
    pub(crate) fn walks_all_layers(&self) -> bool {
        self.rules.is_none()
    }

    /// Whether the walk found changed ignore rules, so that other files of the lower layers may be versioned now.
    pub(crate) fn needs_full_walk(&self) -> bool {
        self.needs_full_walk.load(Ordering::Relaxed)
    }

    /// The root tree of the lower version, if it was read.
    pub(crate) fn top(&self) -> Option<(Digest, Arc<Tree>)> {
        Some((self.root.sha256, self.forest.cached(self.root.sha256)?))
    }

    /// The tree of a directory of the lower version.
    pub(crate) fn tree(&self, directory: Option<Node>) -> Result<Arc<Tree>> {
        match directory {
            Some(directory) => Ok(pollster::block_on(self.forest.tree(directory.sha256))?),
            None => Ok(Arc::default()),
        }
    }

    /// The text of a rule file. `top` is the file in the top layer: `None` if it is not there, `Some(None)` if it is a
    /// whiteout or unreadable. If the text differs from the one in the lower version, other files may be versioned, and
    /// all layers must be walked.
    pub(crate) fn rule_text(&self, path: &FilePath, top: Option<Option<String>>) -> Option<String> {
        let below = self.rules.and_then(|rules| rules.get(path));
        match top {
            Some(text) => {
                if self.rules.is_some() && text.as_ref() != below {
                    self.needs_full_walk.store(true, Ordering::Relaxed);
                }
                text
            }
            None => below.cloned(),
        }
    }

    /// Adds the entries of the lower version to a directory, except the `overridden` names. Returns the usage of the
    /// entries that are not visible. Directories in `merged` count only themselves, because they record the usage that
    /// is hidden below them.
    pub(crate) fn show_through(
        &self,
        base: &Tree,
        overridden: &[FilePath],
        merged: &[FilePath],
        items: &mut Vec<Item>,
    ) -> Result<Usage> {
        let mut hidden = Usage::default();
        let above = items.len();
        for entry in &base.entries {
            if overridden.binary_search(&entry.name).is_err() {
                items.push(Item::from_lower(entry.name.clone(), &entry.node));
                continue;
            }
            if entry.node.is_directory() && merged.contains(&entry.name) {
                hidden += Usage::of(&entry.node);
                continue;
            }
            let item = items[..above].binary_search_by(|item| item.name.cmp(&entry.name)).ok();
            hidden += match item.map(|at| &mut items[at].data) {
                Some(ItemData::Whiteout(Some(usage))) => *usage,
                Some(ItemData::Whiteout(usage)) => *usage.insert(self.usage_of(&entry.node)?),
                _ => self.usage_of(&entry.node)?,
            };
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(hidden)
    }

    fn usage_of(&self, node: &Node) -> Result<Usage> {
        let mut usage = Usage::of(node);
        if !node.is_directory() {
            return Ok(usage);
        }
        for entry in &self.tree(Some(*node))?.entries {
            usage += self.usage_of(&entry.node)?;
        }
        Ok(usage)
    }

    /// Whether a directory has entries in the lower layers other than `overridden`.
    pub(crate) fn has_more_than(&self, path: &FilePath, overridden: &[FilePath]) -> bool {
        let Ok(Lookup::Directory(layers, _)) = self.stack.find(path, self.stack.lowers()) else { return false };
        let listed = self.stack.list(path, &layers).unwrap_or_default();
        listed.iter().any(|(name, _)| overridden.binary_search(name).is_err())
    }

    pub(crate) fn add_hidden(&self, hidden: Usage) {
        self.hidden.0.fetch_add(hidden.files, Ordering::Relaxed);
        self.hidden.1.fetch_add(hidden.bytes, Ordering::Relaxed);
    }

    /// Usage of all entries of the lower version that are not visible.
    pub(crate) fn hidden(&self) -> Usage {
        Usage { files: self.hidden.0.load(Ordering::Relaxed), bytes: self.hidden.1.load(Ordering::Relaxed) }
    }
}
