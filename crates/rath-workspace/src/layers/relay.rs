//! Setting a layered workspace to a version, by writing its upper. Nothing is mounted meanwhile.
//!
//! Where the layers below show what is wanted, the upper's entry goes; else the upper gets the content, a whiteout,
//! or a directory that hides what is below. Each entry is made aside and renamed into its place. A process that dies
//! leaves the journal, and the next open saves what is there and goes on from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::files::{Change, Forest, Name, Node, NodeKind, Version};
use rustix::fs::{CWD, Mode, openat};

use super::home::remove_tree;
use super::rewrite::{Relay, Spread};
use super::stack::Spot;
use crate::content::now;
use crate::error::{Error, Result};
use crate::index::{Content, Stat, What};
use crate::journal::Journal;
use crate::plant::Planter;
use crate::pool::FILES;
use crate::restore::{Restored, SYNCED_SINGLY};
use crate::root::DIRECTORY;
use crate::{Recovered, Workspace};

impl Workspace {
    fn staging(&self) -> PathBuf {
        self.state.join("staging")
    }

    /// Sets the files, which are version `from`, to another one.
    pub(crate) fn relay_from(&mut self, from: Version, to: &Version) -> Result<Restored> {
        let changed = self.changes(&from, to)?;
        if changed.is_empty() {
            return Ok(Restored { version: from.clone(), from, changed, kept: Vec::new() });
        }
        if let Err(error) = self.relay(&from, &from, to, &changed, Vec::new()) {
            // What can be taken back is: then it is as if nothing had been tried.
            if self.under_way()?.is_some_and(|journal| self.converge(&journal, &from).is_ok()) {
                self.remove_journal()?;
            }
            return Err(error);
        }
        self.remove_journal()?;
        let present = self.save_quiet()?.version;
        let version = if present.same_files(to) { to.clone() } else { present };
        Ok(Restored { from, version, changed, kept: Vec::new() })
    }

    /// Finishes what an earlier process began; where that cannot be, takes it back.
    pub(crate) fn recover_layered(&mut self) -> Result<Option<Recovered>> {
        let cleared = remove_tree(&self.staging());
        cleared.map_err(|error| Error::machine(format!("clearing {}", self.staging().display()), error))?;
        let Some(journal) = self.under_way()? else { return Ok(None) };
        self.close(&journal.opened);
        if self.save_between()?.version.same_files(&journal.from) {
            self.remove_journal()?;
            return Ok(None);
        }
        let to = match self.converge(&journal, &journal.to) {
            Ok(()) => journal.to,
            Err(error) => match self.converge(&journal, &journal.from) {
                Ok(()) => journal.from.clone(),
                Err(_) => return Err(error),
            },
        };
        self.remove_journal()?;
        let version = self.save_between()?.version;
        Ok(Some(Recovered { from: journal.from, to, version, kept: Vec::new() }))
    }

    /// Brings files that are somewhere between two versions to one of them.
    fn converge(&mut self, journal: &Journal, to: &Version) -> Result<()> {
        self.close(&journal.opened);
        let present = self.save_between()?.version;
        let changes = self.changes(&present, to)?;
        self.relay(&journal.from, &present, to, &changes, journal.opened.clone())
    }

    /// Gives directories that were made writable their permissions again, the deepest first.
    fn close(&self, opened: &[(Name, u32)]) {
        for (path, mode) in opened.iter().rev() {
            let _ = self.set_mode(path, *mode, DIRECTORY);
        }
    }

    /// Rewrites the upper. The journal names `from` as what was there before all of it began.
    fn relay(
        &mut self,
        from: &Version,
        present: &Version,
        to: &Version,
        changes: &[Change],
        mut opened: Vec<(Name, u32)>,
    ) -> Result<()> {
        self.check_way(changes)?;
        opened.extend(self.closed_on_the_way(changes));
        opened.sort();
        opened.dedup_by(|a, b| a.0 == b.0);
        self.write_journal(&Journal { from: from.clone(), to: to.clone(), opened: opened.clone() })?;
        for (path, mode) in &opened {
            let _ = self.set_mode(path, mode | 0o700, DIRECTORY);
        }
        let singly = changes.len() <= SYNCED_SINGLY;
        let written = match FILES.run(|| self.rewrite(present, to, &opened, singly)) {
            Ok(written) => written,
            Err(error) => {
                self.close(&opened);
                return Err(error);
            }
        };
        for (path, stat, node) in written {
            let content = Content { digest: Some(node.sha256), size: node.size, racy: stat.is_racy(now()) };
            let what = if node.kind == NodeKind::Symlink { What::Link(content) } else { What::File(content) };
            self.index.root.set(&path, Some((stat, what)));
        }
        if !singly {
            let synced = rustix::fs::syncfs(self.stack.top().fd());
            synced.map_err(|error| Error::machine("syncing the file system", error))?;
        }
        Ok(())
    }

    fn rewrite(
        &self,
        present: &Version,
        to: &Version,
        opened: &[(Name, u32)],
        sync: bool,
    ) -> Result<Vec<(Name, Stat, Node)>> {
        let Some(site) = &self.site else { return Ok(Vec::new()) };
        let staging = self.staging();
        let failed = |error: std::io::Error| Error::machine(format!("making {}", staging.display()), error);
        remove_tree(&staging).and_then(|()| fs::create_dir(&staging)).map_err(failed)?;
        let open = |path: &Path| openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|error| failed(error.into()));
        let mut relay = Relay {
            stack: &self.stack,
            forest: Forest::new(&*self.store),
            rules: &self.rules,
            planter: Planter::new(&*self.store, &self.stack.top().path),
            aside: open(&staging)?,
            staging: &staging,
            opened,
            sync,
            written: Vec::new(),
        };
        let root = |version: &Version| Node {
            kind: NodeKind::Directory,
            mode: 0o755,
            sha256: version.id(),
            size: version.tree.bytes,
        };
        let top = Spread {
            path: Name::root(),
            top: open(&self.stack.top().path)?,
            lowers: self.stack.lowers(),
            base: Some(root(&site.base().version)),
        };
        relay.inside(&top, Some(root(present)), Some(root(to)))?;
        let written = relay.written;
        remove_tree(&staging).map_err(failed)?;
        Ok(written)
    }

    /// Directories above changes that do not let their owner work in them.
    fn closed_on_the_way(&self, changes: &[Change]) -> Vec<(Name, u32)> {
        let mut directories = BTreeSet::new();
        for change in changes {
            let is_there = change.before.is_some_and(|node| node.is_directory());
            let mut path = if is_there { change.path.clone() } else { change.path.split().0 };
            while !path.as_bytes().is_empty() && directories.insert(path.clone()) {
                path = path.split().0;
            }
        }
        let closed = |path: Name| match self.stack.find(&path, self.stack.all()) {
            Ok(Spot::Directory(_, stat)) if stat.mode & 0o700 != 0o700 => Some((path, stat.permissions())),
            _ => None,
        };
        directories.into_iter().filter_map(closed).collect()
    }
}
