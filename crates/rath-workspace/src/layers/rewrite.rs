//! An upper that is rewritten, entry by entry.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rath_core::files::{Forest, Name, Node, Tree};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, fchmod, mkdirat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::home::remove_tree;
use super::marks::{self, Opacity};
use super::stack::{Layer, Spot, Stack, TOP};
use crate::error::{Error, Result};
use crate::index::Stat;
use crate::plant::Planter;
use crate::root::{Root, os};
use crate::rules::Rules;

/// A directory of the view, with what it is made of.
pub(super) struct Spread {
    pub(super) path: Name,
    /// In the upper.
    pub(super) top: OwnedFd,
    /// The layers below that show through.
    pub(super) lowers: Vec<Layer>,
    /// What the version below has here, when it shows through.
    pub(super) base: Option<Node>,
}

/// Rewrites an upper.
pub(super) struct Relay<'a> {
    pub(super) stack: &'a Stack,
    pub(super) forest: Forest<'a>,
    pub(super) rules: &'a Rules,
    pub(super) planter: Planter<'a>,
    /// Where entries are made, and go to be removed.
    pub(super) aside: OwnedFd,
    pub(super) staging: &'a Path,
    /// Directories that are writable for the moment, with the permissions that they have otherwise.
    pub(super) opened: &'a [(Name, u32)],
    pub(super) sync: bool,
    pub(super) written: Vec<(Name, Stat, Node)>,
}

fn is_dir(node: &Option<Node>) -> bool {
    node.is_some_and(|node| node.is_directory())
}

impl Relay<'_> {
    fn failed(&self, doing: &str, path: &Name) -> impl FnOnce(Errno) -> Error {
        let doing = format!("{doing} {}/{path}", self.stack.top().path.display());
        move |error| Error::machine(doing, error)
    }

    fn tree(&self, node: Option<Node>) -> Result<Arc<Tree>> {
        match node.filter(Node::is_directory) {
            Some(node) => Ok(pollster::block_on(self.forest.tree(node.sha256))?),
            None => Ok(Arc::default()),
        }
    }

    /// Changes what is in a directory.
    pub(super) fn inside(&mut self, spread: &Spread, before: Option<Node>, after: Option<Node>) -> Result<()> {
        let (before, after, base) = (self.tree(before)?, self.tree(after)?, self.tree(spread.base)?);
        let names: BTreeSet<&Name> = before.entries.iter().chain(&after.entries).map(|entry| &entry.name).collect();
        for name in names {
            let [before, after, base] = [&before, &after, &base].map(|tree| tree.get(name).copied());
            if before != after && !self.rules.hides(&spread.path.join(name)) {
                self.entry(spread, name, before, after, base)?;
            }
        }
        Ok(())
    }

    /// Changes what stands at a name; the version below has `base` there.
    fn entry(
        &mut self,
        spread: &Spread,
        name: &Name,
        before: Option<Node>,
        after: Option<Node>,
        base: Option<Node>,
    ) -> Result<()> {
        let path = spread.path.join(name);
        let base = base.filter(|_| !spread.lowers.is_empty());
        match (is_dir(&before), after.filter(Node::is_directory)) {
            (true, Some(directory)) => self.into(spread, name, before, Some(directory), base),
            (true, None) => match self.hides_something(spread, name, before) {
                true => self.into(spread, name, before, None, base),
                false => {
                    self.remove(spread, name, base)?;
                    after.map_or(Ok(()), |after| self.put(spread, name, None, after, base))
                }
            },
            // A directory may be there though no version had it: it held only what is ignored.
            (false, Some(directory)) => match self.view(spread, name) {
                Spot::Directory(..) => self.into(spread, name, None, Some(directory), base),
                _ if base == Some(directory) && !self.hides_below(spread, name, directory) => {
                    self.uncover(spread.top.as_fd(), name).map_err(self.failed("removing", &path))
                }
                _ => self.plant(spread, name, directory),
            },
            (false, None) => match after {
                Some(after) => self.put(spread, name, before, after, base),
                None => self.remove(spread, name, base),
            },
        }
    }

    /// What the view has at a name.
    fn view(&self, spread: &Spread, name: &Name) -> Spot {
        let layers: Vec<Layer> = std::iter::once(TOP).chain(spread.lowers.iter().copied()).collect();
        self.stack.step(&spread.path, &layers, name).unwrap_or(Spot::Nothing)
    }

    /// Whether a directory of the view holds anything that a version does not.
    fn hides_something(&self, spread: &Spread, name: &Name, node: Option<Node>) -> bool {
        let Spot::Directory(layers, _) = self.view(spread, name) else { return false };
        let mut found = Vec::new();
        self.stack.hidden(&self.forest, &spread.path.join(name), &layers, node, &mut found);
        !found.is_empty()
    }

    /// The same for a directory of the layers below.
    fn hides_below(&self, spread: &Spread, name: &Name, node: Node) -> bool {
        match self.stack.step(&spread.path, &spread.lowers, name) {
            Ok(Spot::Directory(layers, _)) => {
                let mut found = Vec::new();
                self.stack.hidden(&self.forest, &spread.path.join(name), &layers, Some(node), &mut found);
                !found.is_empty()
            }
            _ => true,
        }
    }

    /// Changes a directory that is there. It keeps its permissions where it is not in the version any more.
    fn into(
        &mut self,
        spread: &Spread,
        name: &Name,
        before: Option<Node>,
        after: Option<Node>,
        base: Option<Node>,
    ) -> Result<()> {
        let path = spread.path.join(name);
        let failed = |error| self.failed("changing", &path)(error);
        let (lowers, lower_mode) = match self.stack.step(&spread.path, &spread.lowers, name) {
            Ok(Spot::Directory(layers, stat)) => (layers, Some(stat.permissions())),
            Ok(_) => (Vec::new(), None),
            // It cannot be looked at: what is below may show.
            Err(_) => (spread.lowers.clone(), None),
        };
        let at = spread.top.as_fd();
        let (top, mode) = match statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let mode = Stat::of(&stat).permissions();
                let top = open_directory(at, name, mode).map_err(failed)?;
                let opened = self.opened.binary_search_by(|(opened, _)| opened.cmp(&path));
                (top, opened.map_or(mode, |at| self.opened[at].1))
            }
            Err(Errno::NOENT) => {
                let mode = lower_mode.or(before.map(|node| node.mode)).unwrap_or(0o755);
                mkdirat(at, os(name), Mode::from_raw_mode(0o700)).map_err(failed)?;
                (Root::directory_in(at, name).map_err(failed)?, mode)
            }
            Err(error) => return Err(failed(error)),
        };
        let is_opaque = marks::opacity(top.as_fd()) == Opacity::Opaque;
        let lowers = if is_opaque { Vec::new() } else { lowers };
        let base = base.filter(|base| base.is_directory() && !lowers.is_empty());
        let below = Spread { path, top, lowers, base };
        self.inside(&below, before, after)?;
        let mode = after.map_or(mode, |after| after.mode);
        let Spread { path, top, lowers, .. } = below;
        fchmod(&top, Mode::from_raw_mode(mode)).map_err(self.failed("setting the permissions of", &path))?;
        if !lowers.is_empty() && lower_mode == Some(mode) {
            // An empty one shows nothing but what is below.
            let _ = unlinkat(spread.top.as_fd(), os(name), AtFlags::REMOVEDIR);
        }
        Ok(())
    }

    /// A name for something made aside.
    fn fresh() -> Name {
        Name::from(rath_core::fresh_name().as_str())
    }

    /// Takes the upper's entry away, so that what is below shows.
    fn uncover(&self, top: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<()> {
        let stat = match statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return unlinkat(top, os(name), AtFlags::empty());
        }
        // A directory that may not be written to cannot be moved.
        open_directory(top, name, Stat::of(&stat).permissions())?;
        let aside = Self::fresh();
        renameat(top, os(name), &self.aside, os(&aside))?;
        let _ = remove_tree(&self.staging.join(os(&aside)));
        Ok(())
    }

    /// Makes what stands at a name go from the view.
    fn remove(&self, spread: &Spread, name: &Name, base: Option<Node>) -> Result<()> {
        let path = spread.path.join(name);
        let failed = |error| self.failed("removing", &path)(error);
        // Where one cannot look, a whiteout too many does no harm.
        let is_below =
            base.is_some() || !matches!(self.stack.step(&spread.path, &spread.lowers, name), Ok(Spot::Nothing));
        let top = spread.top.as_fd();
        if !is_below {
            return self.uncover(top, name).map_err(failed);
        }
        let whiteout = Self::fresh();
        marks::make_whiteout(self.aside.as_fd(), &whiteout).map_err(failed)?;
        self.place(&whiteout, top, name).map_err(failed)
    }

    /// Puts what was made aside in the place of whatever stands at a name.
    fn place(&self, made: &Name, top: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<()> {
        let is_directory = |at: BorrowedFd<'_>, name: &Name| {
            statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        if !is_directory(self.aside.as_fd(), made) && !is_directory(top, name) {
            return renameat(&self.aside, os(made), top, os(name));
        }
        if is_directory(top, name) {
            let stat = statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW)?;
            open_directory(top, name, Stat::of(&stat).permissions())?;
        }
        match renameat_with(&self.aside, os(made), top, os(name), RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => renameat(&self.aside, os(made), top, os(name)),
            done => {
                done?;
                let old = self.staging.join(os(made));
                if remove_tree(&old).is_err() {
                    let _ = fs::remove_file(&old);
                }
                Ok(())
            }
        }
    }

    /// Gives a name its file or link.
    fn put(
        &mut self,
        spread: &Spread,
        name: &Name,
        before: Option<Node>,
        node: Node,
        base: Option<Node>,
    ) -> Result<()> {
        let path = spread.path.join(name);
        let top = spread.top.as_fd();
        if base == Some(node) {
            return self.uncover(top, name).map_err(self.failed("removing", &path));
        }
        let look = || statat(top, os(name), AtFlags::SYMLINK_NOFOLLOW);
        let same_content = before.is_some_and(|before| before.kind == node.kind && before.sha256 == node.sha256);
        let is_alone = |stat: &rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1
        };
        if same_content && node.is_file() && look().is_ok_and(|stat| is_alone(&stat)) {
            let set = rustix::fs::chmodat(top, os(name), Mode::from_raw_mode(node.mode), AtFlags::empty());
            set.map_err(self.failed("setting the permissions of", &path))?;
        } else {
            let made = Self::fresh();
            self.planter.make(self.aside.as_fd(), &made, &node, &path, self.sync)?;
            self.place(&made, top, name).map_err(self.failed("putting in place", &path))?;
        }
        let stat = Stat::of(&look().map_err(self.failed("looking at", &path))?);
        self.written.push((path, stat, node));
        Ok(())
    }

    /// Makes a directory with all that is in it. It hides what is below.
    fn plant(&mut self, spread: &Spread, name: &Name, node: Node) -> Result<()> {
        let path = spread.path.join(name);
        let failed = |error| self.failed("making", &path)(error);
        let made = Self::fresh();
        let aside = self.aside.as_fd();
        mkdirat(aside, os(&made), Mode::from_raw_mode(0o700)).map_err(failed)?;
        let fd = Root::directory_in(aside, &made).map_err(failed)?;
        if !matches!(self.stack.step(&spread.path, &spread.lowers, name), Ok(Spot::Nothing | Spot::Other(..))) {
            marks::set_opaque(fd.as_fd()).map_err(failed)?;
        }
        self.planter.tree(fd.as_fd(), &path, node.sha256)?;
        self.place(&made, spread.top.as_fd(), name).map_err(failed)?;
        fchmod(&fd, Mode::from_raw_mode(node.mode)).map_err(failed)
    }
}

/// Opens a directory so that its owner may work in it.
fn open_directory(at: BorrowedFd<'_>, name: &Name, mode: u32) -> rustix::io::Result<OwnedFd> {
    if mode & 0o700 != 0o700 {
        rustix::fs::chmodat(at, os(name), Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?;
    }
    Root::directory_in(at, name)
}
