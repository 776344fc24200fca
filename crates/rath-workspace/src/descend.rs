//! A walk going down: the directories in a directory.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

use rath_core::files::{Name, Node};
use rayon::prelude::*;
use rustix::io::Errno;

use super::error::Result;
use super::index::{Dir, Item, What};
use super::layers::{Opacity, Spot, TOP, Under, opacity};
use super::root::Root;
use super::scan::{Found, Here, Walk, is_our_lack, is_too_deep};
use super::tracked::Scope;
use crate::pool::FILES;

/// As many directories in directories are walked on a thread of the caller's, whose stack may be small.
const SHALLOW: usize = 32;

fn is_deep_for_this_thread(path: &Name) -> bool {
    rayon::current_thread_index().is_none() && path.as_bytes().iter().filter(|byte| **byte == b'/').count() >= SHALLOW
}

impl Walk<'_> {
    /// Walks the directories in a directory, side by side. Returns the names of those that show what is below them.
    pub(super) fn descend(
        &self,
        here: &Here<'_>,
        old: Option<&Dir>,
        scope: &Scope<'_>,
        dir: &mut Dir,
        same: &mut bool,
        hides_something: &mut bool,
    ) -> Result<Vec<Name>> {
        let below: Vec<usize> = (0..dir.items.len()).filter(|at| matches!(dir.items[*at].what, What::Dir(_))).collect();
        let items = &dir.items;
        let walk = |at: &usize| -> Result<Option<Found>> {
            let Item { name, layer, .. } = &items[*at];
            let path = here.path.join(name);
            let before = old.and_then(|old| old.get(name)).and_then(|item| match &item.what {
                What::Dir(dir) => Some(dir),
                _ => None,
            });
            if is_too_deep(&path) {
                self.skip(path, "too deep");
                return Ok(None);
            }
            let top = match here.top.filter(|_| *layer == TOP).map(|fd| Root::directory_in(fd, name)).transpose() {
                Ok(top) => top,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(error) if is_our_lack(error) => return Err(self.failed(&path, error)),
                // What cannot be read is not gone: what it last held stays.
                Err(error) => return self.unreadable(here, name, before, error),
            };
            let under = self.under(here, top.as_ref().map(|fd| fd.as_fd()), name, before)?;
            if top.is_none() && under.layers.is_empty() {
                // It is in the version below alone: somebody closed it.
                return Ok(under.base.map(|node| Found { dir: Dir::below(&node), is_hollow: false }));
            }
            let tracked = scope.tracked.below(name);
            let is_ignored = scope.is_ignored || scope.ignored.contains(name);
            let scope = Scope { rules: scope.rules, tracked: &tracked, is_ignored, ignored: &[] };
            let walk = || self.directory(top, &under, &path, before, &scope).map(Some);
            match is_deep_for_this_thread(&path) {
                true => FILES.run(walk),
                false => walk(),
            }
        };
        let walked: Vec<Option<Found>> = match below.len() {
            0 => return Ok(Vec::new()),
            1 => vec![walk(&below[0])?],
            _ if rayon::current_thread_index().is_none() => below.iter().map(walk).collect::<Result<_>>()?,
            _ => below.par_iter().map(walk).collect::<Result<_>>()?,
        };
        let mut merged = Vec::new();
        let mut gone = Vec::new();
        for (at, walked) in below.into_iter().zip(walked) {
            if walked.as_ref().is_some_and(|walked| walked.dir.merges) {
                merged.push(dir.items[at].name.clone());
            }
            match walked {
                Some(below) if !below.is_hollow => {
                    let unchanged = below.dir.tree.is_some();
                    let is_known = old.is_some_and(|old| match old.get(&dir.items[at].name).map(|item| &item.what) {
                        Some(What::Dir(old)) => old.tree == below.dir.tree,
                        _ => false,
                    });
                    *same &= unchanged && is_known;
                    dir.items[at].what = What::Dir(below.dir);
                }
                hollow => {
                    self.hollow.fetch_add(u64::from(hollow.is_some()), Ordering::Relaxed);
                    gone.push(at);
                }
            }
        }
        for at in gone.into_iter().rev() {
            let name = dir.items.remove(at).name;
            *same &= old.is_none_or(|old| old.get(&name).is_none());
            *hides_something = true;
        }
        Ok(merged)
    }

    /// What is known of a directory that cannot be read.
    fn unreadable(&self, here: &Here<'_>, name: &Name, before: Option<&Dir>, error: Errno) -> Result<Option<Found>> {
        let path = here.path.join(name);
        let base = self.base(here)?.get(name).filter(|node| node.is_directory());
        let dir = match (before, base) {
            (Some(before), _) => before.clone(),
            (None, Some(node)) => Dir { merges: true, base: Some(*node), ..Dir::below(node) },
            (None, None) => {
                self.skip(path, error.to_string());
                return Ok(None);
            }
        };
        self.skip(path, format!("{error}; what it last held stays"));
        Ok(Some(Found { dir, is_hollow: false }))
    }

    /// What lies under a directory in this one.
    fn under(&self, here: &Here<'_>, top: Option<BorrowedFd<'_>>, name: &Name, before: Option<&Dir>) -> Result<Under> {
        if !here.under.merges || top.is_some_and(|fd| opacity(fd) == Opacity::Opaque) {
            return Ok(Under::default());
        }
        let base = match before.filter(|before| before.tree.is_some() && before.merges) {
            Some(before) => before.base,
            None => self.base(here)?.get(name).copied().filter(Node::is_directory),
        };
        if here.under.layers.is_empty() {
            return Ok(Under { merges: true, base, layers: Vec::new() });
        }
        match self.stack.step(here.path, &here.under.layers, name) {
            Ok(Spot::Directory(layers, _)) => Ok(Under { merges: true, base, layers }),
            Ok(_) => Ok(Under::default()),
            Err(error) if is_our_lack(error) => Err(self.failed(&here.path.join(name), error)),
            Err(_) => Ok(Under { merges: true, base, layers: Vec::new() }),
        }
    }
}
