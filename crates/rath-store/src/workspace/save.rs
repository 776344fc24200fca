//! Saving: a walk, the contents that changed, the trees above them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rath_core::files::{Name, TREE, Tree, Version};
use rath_core::{Blob, BlobRef};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::content::{Intake, NotRead, Read, is_full};
use super::error::{Error, Result};
use super::index::{Content, Dir, Index, Item, What};
use super::scan::{Skipped, Walk};
use super::{Workspace, rules};

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
    /// Saves the files as they are. Costs a walk, and reading what changed since the last one.
    pub fn save(&mut self) -> Result<Saved> {
        match pool() {
            Some(pool) => pool.install(|| self.save_here()),
            None => self.save_here(),
        }
    }

    fn save_here(&mut self) -> Result<Saved> {
        self.check_index();
        let walk = Walk {
            root: &self.root,
            rules: &self.rules,
            budget: self.budget,
            excluded: self.excluded,
            skipped: Mutex::default(),
            rule_files: Mutex::default(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let mut root = walk.run(&self.index.root).map_err(|error| self.explain(error))?;
        let intake = Intake::new(&*self.store, &self.root);
        let mut unread = Vec::new();
        collect_unread(&mut root, &Name::root(), &mut unread);
        let read = unread.len() as u64;
        let (restless, rest) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let read_some = |some: &mut [(Name, &mut Item)]| -> Result<()> {
            let mut blobs = Vec::new();
            for (path, item) in some {
                let got = match &item.what {
                    What::Link(_) => intake.link(path, item.stat, &mut blobs),
                    _ => intake.file(path, &mut blobs),
                };
                match got {
                    Ok(Read { stat, content, restless: changes }) => {
                        item.stat = stat;
                        match &mut item.what {
                            What::File(known) | What::Link(known) => *known = content,
                            What::Dir(_) => {}
                        }
                        if changes {
                            restless.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                        }
                    }
                    Err(NotRead::Gone) => {}
                    Err(NotRead::Skip(why)) => {
                        match (&mut item.what, self.index.root.at(path).map(|known| &known.what)) {
                            // What cannot be read is not gone: what it last held stays, and is read when it can be.
                            (What::File(now), Some(What::File(then))) | (What::Link(now), Some(What::Link(then))) => {
                                *now = Content { racy: true, ..*then };
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
        unread.par_chunks_mut(64).try_for_each(read_some)?;
        let changed = root.tree.is_none();
        drop_unread(&mut root);
        let mut trees = Vec::new();
        let (digest, size) = root.compute(&mut |tree| trees.push(tree));
        let top = trees.pop();
        let mut blobs = rest.into_inner().unwrap_or_else(PoisonError::into_inner);
        match trees.len() <= 64 {
            true => blobs.extend(trees.iter().map(Tree::to_blob)),
            false => trees.par_chunks(64).try_for_each(|some| intake.send(some.iter().map(Tree::to_blob).collect()))?,
        }
        let rule_files = walk.rule_files.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rules = Blob::new(self.rules.describe(rule_files), rules::MEDIA_TYPE);
        let reference = rules.reference.clone();
        if self.index.rules.as_ref() != Some(&reference) {
            blobs.push(rules);
        }
        // The last one: where the store has it, it has all the others.
        blobs.extend(top.iter().map(Tree::to_blob));
        intake.send(blobs)?;
        let same_rules = self.index.rules.as_ref() == Some(&reference);
        let index = Index { root, rules: Some(reference.clone()) };
        if changed || !same_rules || read > 0 {
            // While the blobs are on their way: an index that is ahead of the store is noticed.
            index.store(&self.index_path())?;
        }
        intake.finish()?;
        self.index = index;
        let tree = BlobRef { digest, bytes: size, media_type: TREE.into() };
        Ok(Saved {
            version: Version { tree, rules: Some(reference) },
            files: walk.files.load(Ordering::Relaxed),
            bytes: walk.bytes.load(Ordering::Relaxed),
            read,
            skipped: walk.skipped.into_inner().unwrap_or_else(PoisonError::into_inner),
            restless: restless.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Forgets an index whose version the store does not have: it was collected, or went with the power.
    fn check_index(&mut self) {
        let Index { root: Dir { tree, .. }, rules } = &self.index;
        let mut named = tree.iter().map(|(tree, _)| *tree).chain(rules.iter().map(|rules| rules.digest));
        let is_there = |digest| matches!(pollster::block_on(self.store.blob_get(digest)), Ok(Some(_)));
        if !named.all(is_there) {
            self.index = Index::default();
        }
    }

    /// Says where most of what is over budget lies.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::OverBudget { directory, limit, what, .. } => {
                Error::OverBudget { directory, limit, what, heaviest: heaviest(&self.root.path) }
            }
            error => error,
        }
    }
}

/// Threads that walk and read: one more than there are processors, because one is always about to wait for a disk or a
/// directory. With as many as processors a walk of a thousand files took half as long again.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || {
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get() + 1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("rath-files-{n}"));
        pool.build().ok()
    };
    POOL.get_or_init(start).as_ref()
}

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
            let was_empty = below.items.is_empty();
            drop_unread(below);
            was_empty || !below.items.is_empty()
        }
    });
}
