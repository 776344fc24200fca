//! Saves the files as a version: walks the directory, reads changed files, and writes their contents and trees.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::files::{FilePath, TREE, Tree, TreeStore, Version};
use rath_core::{Blob, BlobRef, Digest};
use rayon::prelude::*;

use super::content::{Read, ReadError, Uploader, is_full};
use super::error::{Error, Result};
use super::index::{Content, Dir, Index, Item, ItemData, Usage};
use super::index_file::IndexWriteState;
use super::layers::{LayeredDir, Lookup, LowerVersion};
use super::scan::{Skipped, Walk};
use super::{Workspace, rules};
use crate::pool::FILES;

/// A version that was saved.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The version that contains the saved files.
    pub version: Version,
    /// Number of files, directories and links in the version.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Number of files and links that were read.
    pub read: u64,
    /// Paths that could not be versioned.
    pub skipped: Vec<Skipped>,
    /// Files that changed during each attempt to read them. The saved content may mix several states of the file.
    pub unstable: Vec<FilePath>,
}

impl Workspace {
    /// Saves the files. Walks the directory (in a layered workspace: only the upper directory), and reads only the
    /// files that changed since the last save.
    pub fn save(&mut self) -> Result<Saved> {
        Ok(self.save_counted()?.0)
    }

    /// Like [`save`](Self::save), but keeps the tracked versions. For use during a restore, when paths of both versions
    /// must stay versioned.
    pub(super) fn save_between(&mut self) -> Result<Saved> {
        Ok(self.save_where(false, StoreTiming::DuringSave)?.0)
    }

    /// Like [`save`](Self::save), for a version that the next commit names in a record. Small blobs are written
    /// together with that commit, which saves a sync. If the process dies before the commit, they are lost.
    pub fn save_for_record(&mut self) -> Result<Saved> {
        let (saved, _) = self.save_where(false, StoreTiming::WithRecord)?;
        self.track_only(&saved.version);
        Ok(saved)
    }

    /// Saves, and returns the number of counted directories that contain nothing versioned.
    pub(super) fn save_counted(&mut self) -> Result<(Saved, u64)> {
        let (saved, unversioned_dirs) = self.save_where(false, StoreTiming::DuringSave)?;
        self.track_only(&saved.version);
        Ok((saved, unversioned_dirs))
    }

    /// Makes `version` the only tracked version.
    pub(super) fn track_only(&mut self, version: &Version) {
        if let Some(tracked) = &mut self.tracked {
            *tracked = vec![version.clone()];
        }
    }

    /// Adds tracked versions until the next save.
    pub(super) fn track_also(&mut self, versions: &[&Version]) {
        if let Some(tracked) = &mut self.tracked {
            tracked.extend(versions.iter().copied().cloned());
        }
    }

    /// Saves when nothing wrote to the files since the index was made, so that racy entries are not read again.
    pub(super) fn save_without_writers(&mut self) -> Result<Saved> {
        Ok(self.save_where(true, StoreTiming::DuringSave)?.0)
    }

    /// Saves on the file pool, or on this thread if there are at most [`FEW`] entries: waking the pool would take
    /// longer.
    fn save_where(&mut self, has_no_writers: bool, timing: StoreTiming) -> Result<(Saved, u64)> {
        let is_small = self.index.root.tree.is_some() && self.index.root.has_at_most(FEW);
        match is_small {
            true => self.save_here(has_no_writers, timing),
            false => FILES.run(|| self.save_here(has_no_writers, timing)),
        }
    }

    /// Walks the files. In a layered workspace, walks all layers only if the upper directory and the lower version are
    /// not enough.
    fn walk(&self, has_no_writers: bool) -> Result<(Walk<'_>, Dir)> {
        let start = |lower_version| Walk {
            stack: &self.stack,
            rules: &self.rules,
            budget: self.budget,
            excluded: self.excluded,
            lower_version,
            index_is_tracked: self.index_is_tracked(),
            tracked: self.tracked.clone().unwrap_or_default(),
            trees: self.forest(),
            has_no_writers,
            skipped: Mutex::default(),
            rule_files: Mutex::default(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            unversioned_dirs: AtomicU64::new(0),
        };
        let upper =
            self.layered.as_ref().and_then(|layered| layered.lower_version(&self.stack, self.forest(), &self.rules));
        if upper.is_some() {
            let walk = start(upper);
            if let Some(root) = walk.run(&self.index.root).map_err(|error| self.explain(error))? {
                return Ok((walk, root));
            }
        }
        let walk = start(self.layered.as_ref().map(|layered| layered.full_lower_version(&self.stack, self.forest())));
        match walk.run(&self.index.root).map_err(|error| self.explain(error))? {
            Some(root) => Ok((walk, root)),
            None => Err(Error::machine("walking all layers", std::io::ErrorKind::Unsupported)),
        }
    }

    fn save_here(&mut self, has_no_writers: bool, timing: StoreTiming) -> Result<(Saved, u64)> {
        self.check_index();
        let (walk, mut root) = self.walk(has_no_writers)?;
        let uploader = Uploader::new(&*self.store, &self.stack);
        let mut unread = Vec::new();
        collect_unread(&mut root, &FilePath::root(), &mut unread);
        let read = unread.len() as u64;
        let (unstable, rest) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        // Contents of the last saved version are in the store.
        let is_whole = self.index.root.tree.is_some();
        let is_stored = |path: &FilePath, content: Content| match self.index.root.at(path).map(|item| &item.data) {
            Some(ItemData::File(known) | ItemData::Link(known)) => is_whole && known.digest == content.digest,
            _ => false,
        };
        let read_some = |some: &mut [(FilePath, &mut Item)]| -> Result<()> {
            let mut blobs = Vec::new();
            for (path, item) in some {
                let sent = blobs.len();
                let got = match &item.data {
                    ItemData::Link(_) => uploader.link(path, item, &mut blobs),
                    _ => uploader.file(path, item, &mut blobs),
                };
                match got {
                    Ok(Read { stat, content, unstable: changes }) => {
                        item.stat = stat;
                        if is_stored(path, content) {
                            blobs.truncate(sent);
                        }
                        match &mut item.data {
                            ItemData::File(known) | ItemData::Link(known) => *known = content,
                            ItemData::Dir(_) | ItemData::Whiteout(_) => {}
                        }
                        if changes {
                            unstable.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                        }
                    }
                    Err(ReadError::Missing) => {}
                    Err(ReadError::Skip(why)) => {
                        match (&mut item.data, self.last_held(path)?) {
                            // An unreadable file still exists: the new version keeps its last known content. It is
                            // marked racy, so that the next save tries to read it again.
                            (ItemData::File(now), Some(ItemData::File(then)))
                            | (ItemData::Link(now), Some(ItemData::Link(then))) => {
                                *now = Content { racy: true, ..then };
                                walk.skip(path.clone(), format!("{why}; its last known content is kept"));
                            }
                            _ => walk.skip(path.clone(), why),
                        }
                    }
                    Err(ReadError::OutOfResources(error)) => {
                        return Err(Error::machine(format!("reading {path}"), error));
                    }
                    Err(ReadError::Store(error)) => return Err(error.into()),
                }
                if is_full(&blobs) {
                    uploader.send(std::mem::take(&mut blobs))?;
                }
            }
            // Collect the incomplete batches of all threads, because each batch costs a sync. The last one is sent
            // together with the trees.
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.append(&mut blobs);
            let full = if is_full(&rest) { std::mem::take(&mut *rest) } else { Vec::new() };
            drop(rest);
            Ok(uploader.send(full)?)
        };
        match unread.len() <= FEW {
            true => read_some(&mut unread)?,
            false => FILES.run(|| unread.par_chunks_mut(FEW).try_for_each(read_some))?,
        }
        let changed = root.tree.is_none();
        drop_unread(&mut root);
        let mut trees = Vec::new();
        let mut stored = HashSet::new();
        if is_whole {
            self.index.root.each_tree(&mut |tree| stored.extend([tree]));
        }
        let (digest, size) = root
            .compute(&mut |digest, tree| trees.extend((!stored.contains(&digest)).then(|| (digest, Arc::new(tree)))));
        let top = trees.last().cloned();
        let below_top = &trees[..trees.len().saturating_sub(1)];
        let mut blobs = rest.into_inner().unwrap_or_else(PoisonError::into_inner);
        let to_blob = |(_, tree): &(Digest, Arc<Tree>)| tree.to_blob();
        match below_top.len() <= FEW {
            true => blobs.extend(below_top.iter().map(to_blob)),
            false => {
                let send = |some: &[(Digest, Arc<Tree>)]| uploader.send(some.iter().map(to_blob).collect());
                FILES.run(|| below_top.par_chunks(FEW).try_for_each(send))?;
            }
        }
        let mut rule_files = std::mem::take(&mut *walk.rule_files.lock().unwrap_or_else(PoisonError::into_inner));
        let is_of_upper = walk.lower_version.as_ref().is_some_and(|lower_version| !lower_version.walks_all_layers());
        if let Some(layered) = self.layered.as_ref().filter(|_| is_of_upper) {
            rule_files.extend(layered.other_visible_rules(&self.stack, &root, &rule_files));
        }
        let rules = Blob::new(self.rules.describe(rule_files), rules::MEDIA_TYPE);
        let reference = rules.reference.clone();
        let known_rules = [self.index.rules.as_ref(), self.base().and_then(|base| base.version.rules.as_ref())];
        if !known_rules.contains(&Some(&reference)) {
            blobs.push(rules);
        }
        // The root tree comes last: if the store has it, it has everything below it.
        blobs.extend(top.iter().map(to_blob));
        match timing {
            StoreTiming::WithRecord => {
                // The next commit writes the root tree. All other blobs must be in the store by then.
                uploader.finish()?;
                pollster::block_on(self.store.blob_put_soon(blobs))?;
            }
            // Even if there are no blobs: this also writes what an earlier save left for the next commit.
            StoreTiming::DuringSave => uploader.send_last(blobs)?,
        }
        let same_rules = self.index.rules.as_ref() == Some(&reference);
        let lower_tree = self.base().filter(|_| is_of_upper).map(|base| base.version.id());
        root.drop_lower_items();
        let index = Index { root, rules: Some(reference.clone()), lower_tree };
        let is_new = changed || !same_rules || read > 0 || index.lower_tree != self.index.lower_tree;
        let is_written = match timing {
            StoreTiming::WithRecord => is_new && self.written.is_due(),
            StoreTiming::DuringSave => is_new || self.written.is_stale(),
        };
        if is_written {
            // Blobs may still be in flight. If they are lost, `check_index` notices that the store does not have the
            // root tree.
            index.store(&self.state.join("index"))?;
        }
        uploader.finish()?;
        let base_top = walk.lower_version.as_ref().and_then(LowerVersion::top);
        let (usage, unversioned_dirs) = (self.usage(&walk)?, walk.unversioned_dirs.load(Ordering::Relaxed));
        let mut skipped = walk.skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        if is_of_upper {
            skipped.extend(self.skipped_in_lower(&skipped));
        }
        self.index = index;
        drop(uploader);
        match is_written {
            true => self.written = IndexWriteState::now(),
            false => self.written.mark_stale_if(is_new),
        }
        trees.extend(base_top);
        self.cache_trees(trees);
        let tree = BlobRef { digest, bytes: size, media_type: TREE.into() };
        let saved = Saved {
            version: Version { tree, rules: Some(reference) },
            files: usage.files,
            bytes: usage.bytes,
            read,
            skipped,
            unstable: unstable.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        Ok((saved, unversioned_dirs))
    }

    /// Whether this is a plain directory whose index has exactly the paths of the tracked versions.
    fn index_is_tracked(&self) -> bool {
        let known = self.index.root.tree.map(|(tree, _)| tree);
        let is_known = |version: &Version| Some(version.id()) == known;
        self.layered.is_none() && self.tracked.iter().flatten().all(is_known)
    }

    fn base(&self) -> Option<&super::layers::Base> {
        self.layered.as_ref().map(LayeredDir::base)
    }

    /// The last known content of a file or link that cannot be read now.
    fn last_held(&self, path: &FilePath) -> Result<Option<ItemData>> {
        let known = self.index.root.at(path).map(|item| item.data.clone());
        match (known, self.base()) {
            (None, Some(base)) => {
                let node = pollster::block_on(TreeStore::new(&*self.store).at(&base.version, path))?;
                Ok(node.map(|node| Item::from_lower(path.clone(), &node).data))
            }
            (known, _) => Ok(known),
        }
    }

    /// The usage of the whole workspace. Fails if it is more than the budget.
    fn usage(&self, walk: &Walk<'_>) -> Result<Usage> {
        let walked = Usage { files: walk.files.load(Ordering::Relaxed), bytes: walk.bytes.load(Ordering::Relaxed) };
        let lower_version = walk
            .lower_version
            .as_ref()
            .filter(|lower_version| !lower_version.walks_all_layers())
            .map(LowerVersion::hidden);
        let usage = match (self.base(), lower_version) {
            (Some(base), Some(hidden)) => Usage {
                files: (base.files + walked.files).saturating_sub(hidden.files),
                bytes: (base.bytes + walked.bytes).saturating_sub(hidden.bytes),
            },
            _ => walked,
        };
        walk.check(usage).map_err(|error| self.explain(error))?;
        Ok(usage)
    }

    /// Visible paths of the lower layers that could not be versioned, without those in `named`.
    fn skipped_in_lower(&self, named: &[Skipped]) -> Vec<Skipped> {
        let all = self.base().map_or(&[][..], |base| &base.skipped).iter();
        let shows = |skipped: &&Skipped| {
            !named.iter().any(|one| one.path == skipped.path)
                && match self.stack.find(&skipped.path, self.stack.all()) {
                    Ok(Lookup::Other(layer)) => layer != super::layers::TOP,
                    Ok(Lookup::Directory(layers, _)) => !layers.contains(&super::layers::TOP),
                    Ok(Lookup::Missing) | Err(_) => false,
                }
        };
        all.filter(shows).cloned().collect()
    }

    /// Drops the index if the store does not have its version, because the version was collected or was lost in a power
    /// failure.
    fn check_index(&mut self) {
        let Index { root: Dir { tree, .. }, rules, .. } = &self.index;
        let mut named = tree.iter().map(|(tree, _)| *tree).chain(rules.iter().map(|rules| rules.digest));
        let is_there = |digest| matches!(pollster::block_on(self.store.blob_has(digest)), Ok(true));
        if !named.all(is_there) {
            self.index = Index::default();
        }
        if self.base().is_some_and(|base| self.index.lower_tree != Some(base.version.id())) {
            self.index.root.forget_trees();
        }
    }

    /// Adds the largest top-level entries to an over-budget error.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::OverBudget { directory, limit, what, .. } => {
                Error::OverBudget { directory, limit, what, heaviest: heaviest(&self.stack.top().path) }
            }
            error => error,
        }
    }
}

/// When the root tree of a saved version is written to the store.
#[derive(Clone, Copy)]
enum StoreTiming {
    /// The root tree is written during the save.
    DuringSave,
    /// The root tree is written later, at the latest together with the record that names the version.
    WithRecord,
}

/// Up to this number of files, one thread is faster than several.
const FEW: usize = 64;

/// The three top-level entries with the most files. Counts at most 100,000 files of each.
fn heaviest(root: &Path) -> String {
    let count = |path: &Path| {
        let walk = ignore::WalkBuilder::new(path).standard_filters(false).build();
        walk.take(100_000).count()
    };
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut counted: Vec<_> = entries.map(|entry| (count(&entry.path()), entry.file_name())).collect();
    counted.sort_by(|a, b| b.cmp(a));
    let names = counted.iter().take(3).map(|(count, name)| format!("{} ({count})", name.to_string_lossy()));
    names.collect::<Vec<_>>().join(", ")
}

/// Collects the files and links whose content must be read.
fn collect_unread<'a>(dir: &'a mut Dir, path: &FilePath, unread: &mut Vec<(FilePath, &'a mut Item)>) {
    if dir.tree.is_some() {
        return;
    }
    for item in &mut dir.items {
        let path = path.join(&item.name);
        match &item.data {
            ItemData::File(content) | ItemData::Link(content) if content.digest.is_none() => unread.push((path, item)),
            ItemData::Dir(_) => {
                if let ItemData::Dir(dir) = &mut item.data {
                    collect_unread(dir, &path, unread);
                }
            }
            _ => {}
        }
    }
}

/// Removes files that could not be read, and directories that contained nothing else.
fn drop_unread(dir: &mut Dir) {
    if dir.tree.is_some() {
        return;
    }
    dir.items.retain_mut(|item| match &mut item.data {
        ItemData::File(content) | ItemData::Link(content) => content.digest.is_some(),
        ItemData::Dir(subdir) => {
            let was_empty = subdir.is_bare();
            drop_unread(subdir);
            was_empty || !subdir.is_bare()
        }
        ItemData::Whiteout(_) => true,
    });
}
