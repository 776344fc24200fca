//! Reads a stack of layers with the semantics of overlayfs, without a mount.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use rath_core::files::{FilePath, Node, TreeStore};
use rustix::fs::{AtFlags, Dir as Listing, FileType, statat};
use rustix::io::Errno;

use super::marks::{self, DirMarker, ListedEntry};
use crate::index::Stat;
use crate::restore::is_temporary;
use crate::root::{Root, os};

/// The index of a layer in a stack. 0 is the top.
pub(crate) type Layer = u8;

/// The top layer, the only one that is written to.
pub(crate) const TOP: Layer = 0;

/// The layers of a workspace, from top to bottom. A plain workspace has one layer, in which overlay marks have no
/// meaning.
pub(crate) struct Stack {
    roots: Vec<Root>,
    has_marks: bool,
}

/// The result of looking up a path.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    Missing,
    /// A file, a link or a special file, in this layer.
    Other(Layer),
    /// A directory that is merged from these layers, with the stat of the topmost.
    Directory(Vec<Layer>, Stat),
}

impl Stack {
    pub(crate) fn plain(root: Root) -> Self {
        Self { roots: vec![root], has_marks: false }
    }

    pub(crate) fn of(roots: Vec<Root>) -> Self {
        Self { roots, has_marks: true }
    }

    pub(crate) fn has_marks(&self) -> bool {
        self.has_marks
    }

    pub(crate) fn top(&self) -> &Root {
        &self.roots[0]
    }

    pub(crate) fn root(&self, layer: Layer) -> &Root {
        &self.roots[usize::from(layer)]
    }

    pub(crate) fn all(&self) -> Vec<Layer> {
        (0..self.roots.len() as Layer).collect()
    }

    /// All layers except the top one.
    pub(crate) fn lowers(&self) -> Vec<Layer> {
        (1..self.roots.len() as Layer).collect()
    }

    /// Looks up a name in a directory that is merged from `layers`.
    pub(crate) fn look_up_in(
        &self,
        directory: &FilePath,
        layers: &[Layer],
        name: &FilePath,
    ) -> rustix::io::Result<Lookup> {
        let mut found: Option<(Vec<Layer>, Stat)> = None;
        for &layer in layers {
            let fd = match self.root(layer).directory(directory) {
                Ok(fd) => fd,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error),
            };
            let stat = match statat(&fd, os(name), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind != FileType::Directory {
                // A whiteout or a file hides everything below it.
                let is_whiteout = || marks::is_whiteout(fd.as_fd(), name, kind, marks::dir_marker(fd.as_fd()));
                match found {
                    Some((layers, stat)) => return Ok(Lookup::Directory(layers, stat)),
                    None if self.has_marks && is_whiteout() => return Ok(Lookup::Missing),
                    None => return Ok(Lookup::Other(layer)),
                }
            }
            found.get_or_insert((Vec::new(), Stat::of(&stat))).0.push(layer);
            let is_opaque = || {
                Root::directory_in(fd.as_fd(), name).is_ok_and(|fd| marks::dir_marker(fd.as_fd()) == DirMarker::Opaque)
            };
            if self.has_marks && is_opaque() {
                break;
            }
        }
        Ok(found.map_or(Lookup::Missing, |(layers, stat)| Lookup::Directory(layers, stat)))
    }

    /// Looks up a path in the view that is merged from `layers`.
    pub(crate) fn find(&self, path: &FilePath, layers: Vec<Layer>) -> rustix::io::Result<Lookup> {
        let mut spot = Lookup::Directory(layers, Stat::default());
        let mut directory = FilePath::root();
        for name in path.parts() {
            let Lookup::Directory(layers, _) = spot else { return Ok(Lookup::Missing) };
            spot = self.look_up_in(&directory, &layers, &name)?;
            directory = directory.join(&name);
        }
        Ok(spot)
    }

    /// Looks up a path in the view that is merged from all layers.
    pub(crate) fn look_up(&self, path: &FilePath) -> rustix::io::Result<Lookup> {
        if self.has_marks {
            return self.find(path, self.all());
        }
        let (directory, name) = path.split();
        let fd = match self.top().directory(&directory) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Lookup::Missing),
            Err(error) => return Err(error),
        };
        match statat(&fd, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                Ok(Lookup::Directory(vec![TOP], Stat::of(&stat)))
            }
            Ok(_) => Ok(Lookup::Other(TOP)),
            Err(Errno::NOENT) => Ok(Lookup::Missing),
            Err(error) => Err(error),
        }
    }

    /// Collects the paths below a directory that exist and are not in its tree `node`. Skips what cannot be read.
    pub(crate) fn unversioned(
        &self,
        forest: &TreeStore<'_>,
        path: &FilePath,
        layers: &[Layer],
        node: Option<Node>,
        found: &mut Vec<FilePath>,
    ) {
        let tree = node.filter(Node::is_directory).and_then(|node| pollster::block_on(forest.tree(node.sha256)).ok());
        for (name, _) in self.list(path, layers).unwrap_or_default() {
            if !self.has_marks && is_temporary(&name) {
                continue;
            }
            match tree.as_ref().and_then(|tree| tree.get(&name)) {
                Some(node) if node.is_directory() => {
                    if let Ok(Lookup::Directory(layers, _)) = self.look_up_in(path, layers, &name) {
                        self.unversioned(forest, &path.join(&name), &layers, Some(*node), found);
                    }
                }
                Some(_) => {}
                None => found.push(path.join(&name)),
            }
        }
    }

    /// Lists a directory that is merged from `layers`.
    pub(crate) fn list(&self, path: &FilePath, layers: &[Layer]) -> rustix::io::Result<Vec<(FilePath, FileType)>> {
        let mut seen: BTreeMap<FilePath, Option<FileType>> = BTreeMap::new();
        for &layer in layers {
            let mut listing = match self.root(layer).directory(path) {
                Ok(fd) => Listing::new(fd)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error),
            };
            for ListedEntry { name, kind, is_whiteout, .. } in marks::list(&mut listing, layer, self.has_marks)? {
                seen.entry(name).or_insert((!is_whiteout).then_some(kind));
            }
        }
        Ok(seen.into_iter().filter_map(|(name, kind)| Some((name, kind?))).collect())
    }
}
