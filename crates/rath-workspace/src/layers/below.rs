//! What lies under the top layer, known from the version it is: nobody has to look there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rath_core::Digest;
use rath_core::files::{Forest, Name, Node, NodeKind, Tree, Version};

use super::stack::{Layer, Spot, Stack};
use crate::error::Result;
use crate::index::{Item, Weight, What};

/// The rule files in the layers below, with their texts.
pub(crate) type RuleTexts = HashMap<Name, String>;

/// The version below, for one walk.
pub(crate) struct Below<'a> {
    stack: &'a Stack,
    forest: Forest<'a>,
    root: Node,
    /// `None` when all layers are walked, because the rules are not those that the version was made with.
    rules: Option<&'a RuleTexts>,
    is_unsure: AtomicBool,
    lost: (AtomicU64, AtomicU64),
}

/// What lies under one directory of the top layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Under {
    /// Whether anything below can be seen.
    pub(crate) merges: bool,
    /// What the version below has here.
    pub(crate) base: Option<Node>,
    /// The layers to walk; none when what the version says is enough.
    pub(crate) layers: Vec<Layer>,
}

impl<'a> Below<'a> {
    pub(crate) fn new(stack: &'a Stack, forest: Forest<'a>, base: &Version, rules: Option<&'a RuleTexts>) -> Self {
        let root = Node { kind: NodeKind::Directory, mode: 0o755, sha256: base.id(), size: base.tree.bytes };
        Self { stack, forest, root, rules, is_unsure: AtomicBool::default(), lost: Default::default() }
    }

    pub(crate) fn under_root(&self) -> Under {
        let layers = if self.is_walked() { self.stack.lowers() } else { Vec::new() };
        Under { merges: true, base: Some(self.root), layers }
    }

    /// Whether the layers below are walked too.
    pub(crate) fn is_walked(&self) -> bool {
        self.rules.is_none()
    }

    /// Whether something was met that says more about the layers below than the version does.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure.load(Ordering::Relaxed)
    }

    /// The root of the version, where it was looked at.
    pub(crate) fn top(&self) -> Option<(Digest, Arc<Tree>)> {
        Some((self.root.sha256, self.forest.known(self.root.sha256)?))
    }

    /// What is in a directory of the version.
    pub(crate) fn tree(&self, directory: Option<Node>) -> Result<Arc<Tree>> {
        match directory {
            Some(directory) => Ok(pollster::block_on(self.forest.tree(directory.sha256))?),
            None => Ok(Arc::default()),
        }
    }

    /// The text of a rule file, where the top layer has `top` of it. Other rules than the version was made with may
    /// show other files: then all layers have to be walked.
    pub(crate) fn rule_text(&self, path: &Name, top: Option<Option<String>>) -> Option<String> {
        let below = self.rules.and_then(|rules| rules.get(path));
        match top {
            Some(text) => {
                if self.rules.is_some() && text.as_ref() != below {
                    self.is_unsure.store(true, Ordering::Relaxed);
                }
                text
            }
            None => below.cloned(),
        }
    }

    /// Adds to a directory what shows through from below: all but the names that are `taken`. Returns what does not
    /// show through; of directories in `merged` that is what they lost themselves.
    pub(crate) fn show_through(
        &self,
        base: &Tree,
        taken: &[Name],
        merged: &[Name],
        items: &mut Vec<Item>,
    ) -> Result<Weight> {
        let mut lost = Weight::default();
        let above = items.len();
        for entry in &base.entries {
            if taken.binary_search(&entry.name).is_err() {
                items.push(Item::below(entry.name.clone(), &entry.node));
                continue;
            }
            if entry.node.is_directory() && merged.contains(&entry.name) {
                lost += Weight::of(&entry.node);
                continue;
            }
            let item = items[..above].binary_search_by(|item| item.name.cmp(&entry.name)).ok();
            lost += match item.map(|at| &mut items[at].what) {
                Some(What::Gone(Some(weight))) => *weight,
                Some(What::Gone(weight)) => *weight.insert(self.weigh(&entry.node)?),
                _ => self.weigh(&entry.node)?,
            };
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lost)
    }

    fn weigh(&self, node: &Node) -> Result<Weight> {
        let mut weight = Weight::of(node);
        if !node.is_directory() {
            return Ok(weight);
        }
        for entry in &self.tree(Some(*node))?.entries {
            weight += self.weigh(&entry.node)?;
        }
        Ok(weight)
    }

    /// Whether a directory of the layers below holds more than the names that are `taken`.
    pub(crate) fn hides_in(&self, path: &Name, taken: &[Name]) -> bool {
        let Ok(Spot::Directory(layers, _)) = self.stack.find(path, self.stack.lowers()) else { return false };
        let listed = self.stack.list(path, &layers).unwrap_or_default();
        listed.iter().any(|(name, _)| taken.binary_search(name).is_err())
    }

    pub(crate) fn lose(&self, lost: Weight) {
        self.lost.0.fetch_add(lost.files, Ordering::Relaxed);
        self.lost.1.fetch_add(lost.bytes, Ordering::Relaxed);
    }

    /// All that does not show through.
    pub(crate) fn lost(&self) -> Weight {
        Weight { files: self.lost.0.load(Ordering::Relaxed), bytes: self.lost.1.load(Ordering::Relaxed) }
    }
}
