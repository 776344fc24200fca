//! Saving: a walk, the contents that changed, the trees above them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::files::{Forest, Name, TREE, Tree, Version};
use rath_core::{Blob, BlobRef, Digest};
use rayon::prelude::*;

use super::content::{Intake, NotRead, Read, is_full};
use super::error::{Error, Result};
use super::index::{Content, Dir, Index, Item, Weight, What};
use super::index_file::Written;
use super::layers::{Below, Site, Spot};
use super::scan::{Skipped, Walk};
use super::{Workspace, rules};
use crate::pool::FILES;

/// A version that was saved.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The version.
    pub version: Version,
    /// How many files, directories and links it holds.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How many files were read.
    pub read: u64,
    /// What could not be versioned.
    pub skipped: Vec<Skipped>,
    /// Files that changed every time they were read; what is saved is one of their moments.
    pub restless: Vec<Name>,
}

impl Workspace {
    /// Saves the files as they are. Costs a walk, and reading what changed since the last one; of a layered workspace a
    /// walk of its upper.
    pub fn save(&mut self) -> Result<Saved> {
        Ok(self.save_counted()?.0)
    }

    /// As [`save`](Self::save), on the way from one version to another: paths of both stay versioned.
    pub(super) fn save_between(&mut self) -> Result<Saved> {
        Ok(self.save_where(false, Arrival::AtOnce)?.0)
    }

    /// Saves what a record is about to name, and nothing else: where it is little, the version comes into the store with
    /// that record, and a process that dies before takes it along.
    pub fn save_for_record(&mut self) -> Result<Saved> {
        let (saved, _) = self.save_where(false, Arrival::WithRecord)?;
        self.follow(&saved.version);
        Ok(saved)
    }

    /// Saves, and says how many of the directories that were counted hold nothing versioned.
    pub(super) fn save_counted(&mut self) -> Result<(Saved, u64)> {
        let (saved, hollow) = self.save_where(false, Arrival::AtOnce)?;
        self.follow(&saved.version);
        Ok((saved, hollow))
    }

    /// From here on this is the version that the files stem from.
    pub(super) fn follow(&mut self, version: &Version) {
        if let Some(tracked) = &mut self.tracked {
            *tracked = vec![version.clone()];
        }
    }

    /// Has what `versions` have stay versioned too, until the next save.
    pub(super) fn follow_too(&mut self, versions: &[&Version]) {
        if let Some(tracked) = &mut self.tracked {
            tracked.extend(versions.iter().copied().cloned());
        }
    }

    /// Saves when nobody wrote since the index was made.
    pub(super) fn save_quiet(&mut self) -> Result<Saved> {
        Ok(self.save_where(true, Arrival::AtOnce)?.0)
    }

    /// Saves with threads for files, or here where little is to be looked at: waking them takes longer than that.
    fn save_where(&mut self, is_quiet: bool, arrival: Arrival) -> Result<(Saved, u64)> {
        let is_small = self.index.root.tree.is_some() && self.index.root.has_at_most(FEW);
        match is_small {
            true => self.save_here(is_quiet, arrival),
            false => FILES.run(|| self.save_here(is_quiet, arrival)),
        }
    }

    /// Looks who is there. A layered workspace is walked as a whole only where its upper does not say enough.
    fn walk(&self, is_quiet: bool) -> Result<(Walk<'_>, Dir)> {
        let start = |below| Walk {
            stack: &self.stack,
            rules: &self.rules,
            budget: self.budget,
            excluded: self.excluded,
            below,
            index_is_tracked: self.index_is_tracked(),
            tracked: self.tracked.clone().unwrap_or_default(),
            trees: self.forest(),
            is_quiet,
            skipped: Mutex::default(),
            rule_files: Mutex::default(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            hollow: AtomicU64::new(0),
        };
        let upper = self.site.as_ref().and_then(|site| site.below(&self.stack, self.forest(), &self.rules));
        if upper.is_some() {
            let walk = start(upper);
            if let Some(root) = walk.run(&self.index.root).map_err(|error| self.explain(error))? {
                return Ok((walk, root));
            }
        }
        let walk = start(self.site.as_ref().map(|site| site.below_all(&self.stack, self.forest())));
        match walk.run(&self.index.root).map_err(|error| self.explain(error))? {
            Some(root) => Ok((walk, root)),
            None => Err(Error::machine("walking all layers", std::io::ErrorKind::Unsupported)),
        }
    }

    fn save_here(&mut self, is_quiet: bool, arrival: Arrival) -> Result<(Saved, u64)> {
        self.check_index();
        let (walk, mut root) = self.walk(is_quiet)?;
        let intake = Intake::new(&*self.store, &self.stack);
        let mut unread = Vec::new();
        collect_unread(&mut root, &Name::root(), &mut unread);
        let read = unread.len() as u64;
        let (restless, rest) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        // What the last version holds is in the store.
        let is_whole = self.index.root.tree.is_some();
        let is_stored = |path: &Name, content: Content| match self.index.root.at(path).map(|item| &item.what) {
            Some(What::File(known) | What::Link(known)) => is_whole && known.digest == content.digest,
            _ => false,
        };
        let read_some = |some: &mut [(Name, &mut Item)]| -> Result<()> {
            let mut blobs = Vec::new();
            for (path, item) in some {
                let sent = blobs.len();
                let got = match &item.what {
                    What::Link(_) => intake.link(path, item, &mut blobs),
                    _ => intake.file(path, item, &mut blobs),
                };
                match got {
                    Ok(Read { stat, content, restless: changes }) => {
                        item.stat = stat;
                        if is_stored(path, content) {
                            blobs.truncate(sent);
                        }
                        match &mut item.what {
                            What::File(known) | What::Link(known) => *known = content,
                            What::Dir(_) | What::Gone(_) => {}
                        }
                        if changes {
                            restless.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                        }
                    }
                    Err(NotRead::Gone) => {}
                    Err(NotRead::Skip(why)) => {
                        match (&mut item.what, self.last_held(path)?) {
                            // What cannot be read is not gone: what it last held stays, and is read when it can be.
                            (What::File(now), Some(What::File(then))) | (What::Link(now), Some(What::Link(then))) => {
                                *now = Content { racy: true, ..then };
                                walk.skip(path.clone(), format!("{why}; what it last held stays"));
                            }
                            _ => walk.skip(path.clone(), why),
                        }
                    }
                    Err(NotRead::Lack(error)) => return Err(Error::machine(format!("reading {path}"), error)),
                    Err(NotRead::Store(error)) => return Err(error.into()),
                }
                if is_full(&blobs) {
                    intake.send(std::mem::take(&mut blobs))?;
                }
            }
            // Small rests travel together, and the last of them with the trees: each journey costs a sync.
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.append(&mut blobs);
            let full = if is_full(&rest) { std::mem::take(&mut *rest) } else { Vec::new() };
            drop(rest);
            Ok(intake.send(full)?)
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
                let send = |some: &[(Digest, Arc<Tree>)]| intake.send(some.iter().map(to_blob).collect());
                FILES.run(|| below_top.par_chunks(FEW).try_for_each(send))?;
            }
        }
        let mut rule_files = std::mem::take(&mut *walk.rule_files.lock().unwrap_or_else(PoisonError::into_inner));
        let is_of_upper = walk.below.as_ref().is_some_and(|below| !below.is_walked());
        if let Some(site) = self.site.as_ref().filter(|_| is_of_upper) {
            rule_files.extend(site.unseen_rules(&self.stack, &root, &rule_files));
        }
        let rules = Blob::new(self.rules.describe(rule_files), rules::MEDIA_TYPE);
        let reference = rules.reference.clone();
        let known_rules = [self.index.rules.as_ref(), self.base().and_then(|base| base.version.rules.as_ref())];
        if !known_rules.contains(&Some(&reference)) {
            blobs.push(rules);
        }
        // The last one: where the store has it, it has all the others.
        blobs.extend(top.iter().map(to_blob));
        match arrival {
            Arrival::WithRecord => {
                // Whoever commits first brings the last one along: by then the others must be there.
                intake.finish()?;
                pollster::block_on(self.store.blob_put_soon(blobs))?;
            }
            // Even without any: what an earlier save left for a record is there then too.
            Arrival::AtOnce => intake.send_last(blobs)?,
        }
        let same_rules = self.index.rules.as_ref() == Some(&reference);
        let below = self.base().filter(|_| is_of_upper).map(|base| base.version.id());
        root.forget_below();
        let index = Index { root, rules: Some(reference.clone()), below };
        let is_new = changed || !same_rules || read > 0 || index.below != self.index.below;
        let is_written = match arrival {
            Arrival::WithRecord => is_new && self.written.is_long_ago(),
            Arrival::AtOnce => is_new || self.written.is_behind(),
        };
        if is_written {
            // The blobs may still be on their way: an index that is ahead of the store is noticed.
            index.store(&self.state.join("index"))?;
        }
        intake.finish()?;
        let base_top = walk.below.as_ref().and_then(Below::top);
        let (weight, hollow) = (self.weight(&walk)?, walk.hollow.load(Ordering::Relaxed));
        let mut skipped = walk.skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        if is_of_upper {
            skipped.extend(self.skipped_below(&skipped));
        }
        self.index = index;
        drop(intake);
        match is_written {
            true => self.written = Written::now(),
            false => self.written.falls_behind(is_new),
        }
        trees.extend(base_top);
        self.keep_at_hand(trees);
        let tree = BlobRef { digest, bytes: size, media_type: TREE.into() };
        let saved = Saved {
            version: Version { tree, rules: Some(reference) },
            files: weight.files,
            bytes: weight.bytes,
            read,
            skipped,
            restless: restless.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        Ok((saved, hollow))
    }

    /// Whether the index of a plain directory has exactly what the versions have that it stems from.
    fn index_is_tracked(&self) -> bool {
        let known = self.index.root.tree.map(|(tree, _)| tree);
        let is_known = |version: &Version| Some(version.id()) == known;
        self.site.is_none() && self.tracked.iter().flatten().all(is_known)
    }

    fn base(&self) -> Option<&super::layers::Base> {
        self.site.as_ref().map(Site::base)
    }

    /// What a file or link held that cannot be read now.
    fn last_held(&self, path: &Name) -> Result<Option<What>> {
        let known = self.index.root.at(path).map(|item| item.what.clone());
        match (known, self.base()) {
            (None, Some(base)) => {
                let node = pollster::block_on(Forest::new(&*self.store).at(&base.version, path))?;
                Ok(node.map(|node| Item::below(path.clone(), &node).what))
            }
            (known, _) => Ok(known),
        }
    }

    /// How much there is; an error when that is too much.
    fn weight(&self, walk: &Walk<'_>) -> Result<Weight> {
        let walked = Weight { files: walk.files.load(Ordering::Relaxed), bytes: walk.bytes.load(Ordering::Relaxed) };
        let below = walk.below.as_ref().filter(|below| !below.is_walked()).map(Below::lost);
        let weight = match (self.base(), below) {
            (Some(base), Some(lost)) => Weight {
                files: (base.files + walked.files).saturating_sub(lost.files),
                bytes: (base.bytes + walked.bytes).saturating_sub(lost.bytes),
            },
            _ => walked,
        };
        walk.check(weight).map_err(|error| self.explain(error))?;
        Ok(weight)
    }

    /// What could not be versioned in the layers below and still shows, besides what was named.
    fn skipped_below(&self, named: &[Skipped]) -> Vec<Skipped> {
        let all = self.base().map_or(&[][..], |base| &base.skipped).iter();
        let shows = |skipped: &&Skipped| {
            !named.iter().any(|one| one.path == skipped.path)
                && match self.stack.find(&skipped.path, self.stack.all()) {
                    Ok(Spot::Other(layer)) => layer != super::layers::TOP,
                    Ok(Spot::Directory(layers, _)) => !layers.contains(&super::layers::TOP),
                    Ok(Spot::Nothing) | Err(_) => false,
                }
        };
        all.filter(shows).cloned().collect()
    }

    /// Forgets an index whose version the store does not have: it was collected, or went with the power.
    fn check_index(&mut self) {
        let Index { root: Dir { tree, .. }, rules, .. } = &self.index;
        let mut named = tree.iter().map(|(tree, _)| *tree).chain(rules.iter().map(|rules| rules.digest));
        let is_there = |digest| matches!(pollster::block_on(self.store.blob_has(digest)), Ok(true));
        if !named.all(is_there) {
            self.index = Index::default();
        }
        if self.base().is_some_and(|base| self.index.below != Some(base.version.id())) {
            self.index.root.forget_trees();
        }
    }

    /// Says where most of what is over budget lies.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::OverBudget { directory, limit, what, .. } => {
                Error::OverBudget { directory, limit, what, heaviest: heaviest(&self.stack.top().path) }
            }
            error => error,
        }
    }
}

/// When a version is in the store.
#[derive(Clone, Copy)]
enum Arrival {
    /// When it is saved.
    AtOnce,
    /// With the record that names it, at the latest.
    WithRecord,
}

/// As many files one thread looks at faster than several.
const FEW: usize = 64;

/// The entries of the root with most files below, counted only as far as needed to compare them.
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

/// Files and links whose content is not known.
fn collect_unread<'a>(dir: &'a mut Dir, path: &Name, unread: &mut Vec<(Name, &'a mut Item)>) {
    if dir.tree.is_some() {
        return;
    }
    for item in &mut dir.items {
        let path = path.join(&item.name);
        match &item.what {
            What::File(content) | What::Link(content) if content.digest.is_none() => unread.push((path, item)),
            What::Dir(_) => {
                if let What::Dir(dir) = &mut item.what {
                    collect_unread(dir, &path, unread);
                }
            }
            _ => {}
        }
    }
}

/// Takes out what could not be read, and directories that hold nothing else.
fn drop_unread(dir: &mut Dir) {
    if dir.tree.is_some() {
        return;
    }
    dir.items.retain_mut(|item| match &mut item.what {
        What::File(content) | What::Link(content) => content.digest.is_some(),
        What::Dir(below) => {
            let was_empty = below.is_bare();
            drop_unread(below);
            was_empty || !below.is_bare()
        }
        What::Gone(_) => true,
    });
}
