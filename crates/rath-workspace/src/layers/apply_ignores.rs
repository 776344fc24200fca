//! Applies the ignore rules to a stored version: computes the version that a save of its checkout would give.

use std::sync::{Mutex, PoisonError};

use rath_core::files::{FilePath, Node, TREE, Tree, TreeEntry, TreeStore, Version};
use rath_core::{Blob, BlobRef, Store};

use super::layered_dir::Base;
use crate::error::{Error, Result};
use crate::index::Usage;
use crate::rules::{self, Level, RuleFile, Rules};
use crate::scan::{Skipped, TOO_DEEP, is_too_deep};

/// Removes hidden paths from a version and records its rule files. Fails if the version has a path that no version may
/// have, such as `.git`.
pub(super) fn apply_ignores(store: &dyn Store, version: &Version, rules: &Rules) -> Result<Base> {
    let mut filter = IgnoreFilter {
        forest: TreeStore::new(store),
        rules,
        rule_files: Mutex::default(),
        usage: Usage::default(),
        skipped: Vec::new(),
        forbidden: Vec::new(),
    };
    let (digest, bytes) = (version.id(), version.tree.bytes);
    let root = Node { kind: rath_core::files::NodeKind::Directory, mode: 0o755, sha256: digest, size: bytes };
    let (root, _) = filter.directory(root, &FilePath::root(), &rules.level(), false)?;
    if !filter.forbidden.is_empty() {
        return Err(Error::InTheWay { paths: filter.forbidden });
    }
    let files = filter.rule_files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rules = Blob::new(rules.describe(files), rules::MEDIA_TYPE);
    let reference = rules.reference.clone();
    if version.rules.as_ref() != Some(&reference) {
        pollster::block_on(store.blob_put(vec![rules]))?;
    }
    let tree = BlobRef { digest: root.sha256, bytes: root.size, media_type: TREE.into() };
    let version = Version { tree, rules: Some(reference) };
    let Usage { files, bytes } = filter.usage;
    Ok(Base { version, files, bytes, skipped: filter.skipped })
}

struct IgnoreFilter<'a> {
    forest: TreeStore<'a>,
    rules: &'a Rules,
    rule_files: Mutex<Vec<RuleFile>>,
    usage: Usage,
    skipped: Vec<Skipped>,
    forbidden: Vec<FilePath>,
}

impl IgnoreFilter<'_> {
    /// The remaining directory, and whether it became empty.
    fn directory(&mut self, node: Node, path: &FilePath, above: &Level<'_>, is_ignored: bool) -> Result<(Node, bool)> {
        let tree = pollster::block_on(self.forest.tree(node.sha256))?;
        let texts = if is_ignored { Vec::new() } else { self.rule_texts(&tree, path)? };
        let level = above.down(path, &texts, &self.rule_files);
        let rules = if texts.is_empty() && !path.as_bytes().is_empty() { above } else { &level };
        let mut kept = Vec::with_capacity(tree.entries.len());
        for TreeEntry { name, node } in &tree.entries {
            let path = path.join(name);
            let is_ignored = is_ignored || rules.ignores(&path, node.is_directory());
            if is_ignored && self.rules.is_absolute(&path) {
                if !self.rules.hides(&path) {
                    self.forbidden.push(path);
                }
                continue;
            }
            let node = match node.is_directory() {
                true if is_too_deep(&path) => {
                    self.skipped.push(Skipped { path, why: TOO_DEEP.into() });
                    continue;
                }
                true => match self.directory(*node, &path, rules, is_ignored)? {
                    (_, true) => continue,
                    (node, false) => node,
                },
                false => *node,
            };
            self.usage += Usage::of(&node);
            kept.push(TreeEntry { name: name.clone(), node });
        }
        if kept == tree.entries {
            return Ok((node, false));
        }
        let is_unversioned = kept.is_empty();
        let BlobRef { digest, bytes, .. } = pollster::block_on(self.forest.put(Tree { entries: kept }))?;
        Ok((Node { sha256: digest, size: bytes, ..node }, is_unversioned))
    }

    fn rule_texts(&self, tree: &Tree, path: &FilePath) -> Result<Vec<(FilePath, String)>> {
        let mut texts = Vec::new();
        for file in rules::FILES {
            let file = FilePath::from(file);
            if let Some(node) = tree.get(&file).filter(|node| node.is_file()) {
                let bytes = pollster::block_on(self.forest.content(node.sha256))?;
                texts.push((path.join(&file), rules::text(&bytes)));
            }
        }
        Ok(texts)
    }
}
