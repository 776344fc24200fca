//! What a save would make of the files of a version: all of them, but for what is hidden.

use std::sync::{Mutex, PoisonError};

use rath_core::files::{Entry, Forest, Name, Node, TREE, Tree, Version};
use rath_core::{Blob, BlobRef, Store};

use super::site::Base;
use crate::error::{Error, Result};
use crate::index::Weight;
use crate::rules::{self, Level, RuleFile, Rules};
use crate::scan::{Skipped, is_too_deep};

/// Sifts a version. Stops when it would bring files to places that no version may touch.
pub(super) fn sift(store: &dyn Store, version: &Version, rules: &Rules) -> Result<Base> {
    let mut sieve = Sieve {
        forest: Forest::new(store),
        rules,
        rule_files: Mutex::default(),
        weight: Weight::default(),
        skipped: Vec::new(),
        forbidden: Vec::new(),
    };
    let (digest, bytes) = (version.id(), version.tree.bytes);
    let root = Node { kind: rath_core::files::NodeKind::Directory, mode: 0o755, sha256: digest, size: bytes };
    let (root, _) = sieve.directory(root, &Name::root(), &rules.level(), false)?;
    if !sieve.forbidden.is_empty() {
        return Err(Error::InTheWay { paths: sieve.forbidden });
    }
    let files = sieve.rule_files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rules = Blob::new(rules.describe(files), rules::MEDIA_TYPE);
    let reference = rules.reference.clone();
    if version.rules.as_ref() != Some(&reference) {
        pollster::block_on(store.blob_put(vec![rules]))?;
    }
    let tree = BlobRef { digest: root.sha256, bytes: root.size, media_type: TREE.into() };
    let version = Version { tree, rules: Some(reference) };
    let Weight { files, bytes } = sieve.weight;
    Ok(Base { version, files, bytes, skipped: sieve.skipped })
}

struct Sieve<'a> {
    forest: Forest<'a>,
    rules: &'a Rules,
    rule_files: Mutex<Vec<RuleFile>>,
    weight: Weight,
    skipped: Vec<Skipped>,
    forbidden: Vec<Name>,
}

impl Sieve<'_> {
    /// What is left of a directory, and whether that is nothing though it was not empty.
    fn directory(&mut self, node: Node, path: &Name, above: &Level<'_>, is_ignored: bool) -> Result<(Node, bool)> {
        let tree = pollster::block_on(self.forest.tree(node.sha256))?;
        let texts = if is_ignored { Vec::new() } else { self.rule_texts(&tree, path)? };
        let level = above.down(path, &texts, &self.rule_files);
        let rules = if texts.is_empty() && !path.as_bytes().is_empty() { above } else { &level };
        let mut left = Vec::with_capacity(tree.entries.len());
        for Entry { name, node } in &tree.entries {
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
                    self.skipped.push(Skipped { path, why: "too deep".into() });
                    continue;
                }
                true => match self.directory(*node, &path, rules, is_ignored)? {
                    (_, true) => continue,
                    (node, false) => node,
                },
                false => *node,
            };
            self.weight += Weight::of(&node);
            left.push(Entry { name: name.clone(), node });
        }
        if left == tree.entries {
            return Ok((node, false));
        }
        let is_hollow = left.is_empty();
        let BlobRef { digest, bytes, .. } = pollster::block_on(self.forest.put(Tree { entries: left }))?;
        Ok((Node { sha256: digest, size: bytes, ..node }, is_hollow))
    }

    fn rule_texts(&self, tree: &Tree, path: &Name) -> Result<Vec<(Name, String)>> {
        let mut texts = Vec::new();
        for file in rules::FILES {
            let file = Name::from(file);
            if let Some(node) = tree.get(&file).filter(|node| node.is_file()) {
                let bytes = pollster::block_on(self.forest.content(node.sha256))?;
                texts.push((path.join(&file), rules::text(&bytes)));
            }
        }
        Ok(texts)
    }
}
