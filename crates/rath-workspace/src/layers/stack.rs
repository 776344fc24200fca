//! Directories that lie on each other, read as overlayfs would show them. Nothing is mounted for it.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use rath_core::files::{Forest, Name, Node};
use rustix::fs::{AtFlags, Dir as Listing, FileType, statat};
use rustix::io::Errno;

use super::marks::{self, Listed, Opacity};
use crate::index::Stat;
use crate::restore::is_temporary;
use crate::root::{Root, os};

/// The place of a directory in a stack; 0 is the top.
pub(crate) type Layer = u8;

/// The layer that commands write to.
pub(crate) const TOP: Layer = 0;

/// The directories of a workspace, the top one first. A plain workspace has one, and no marks in it mean anything.
pub(crate) struct Stack {
    roots: Vec<Root>,
    has_marks: bool,
}

/// What stands at a path.
#[derive(Clone, Debug)]
pub(crate) enum Spot {
    Nothing,
    /// A file, a link or something special.
    Other(Layer),
    /// A directory, made of those in these layers; the stat is the top one's.
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

    /// Every layer.
    pub(crate) fn all(&self) -> Vec<Layer> {
        (0..self.roots.len() as Layer).collect()
    }

    /// Every layer but the top one.
    pub(crate) fn lowers(&self) -> Vec<Layer> {
        (1..self.roots.len() as Layer).collect()
    }

    /// What has this name in the directory that these layers make.
    pub(crate) fn step(&self, directory: &Name, layers: &[Layer], name: &Name) -> rustix::io::Result<Spot> {
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
                // What is below a whiteout or a file is not seen.
                let is_gone = || marks::is_whiteout(fd.as_fd(), name, kind, marks::opacity(fd.as_fd()));
                match found {
                    Some((layers, stat)) => return Ok(Spot::Directory(layers, stat)),
                    None if self.has_marks && is_gone() => return Ok(Spot::Nothing),
                    None => return Ok(Spot::Other(layer)),
                }
            }
            found.get_or_insert((Vec::new(), Stat::of(&stat))).0.push(layer);
            let is_opaque =
                || Root::directory_in(fd.as_fd(), name).is_ok_and(|fd| marks::opacity(fd.as_fd()) == Opacity::Opaque);
            if self.has_marks && is_opaque() {
                break;
            }
        }
        Ok(found.map_or(Spot::Nothing, |(layers, stat)| Spot::Directory(layers, stat)))
    }

    /// What stands at a path, in the view that these layers make.
    pub(crate) fn find(&self, path: &Name, layers: Vec<Layer>) -> rustix::io::Result<Spot> {
        let mut spot = Spot::Directory(layers, Stat::default());
        let mut directory = Name::root();
        for name in path.parts() {
            let Spot::Directory(layers, _) = spot else { return Ok(Spot::Nothing) };
            spot = self.step(&directory, &layers, &name)?;
            directory = directory.join(&name);
        }
        Ok(spot)
    }

    /// What stands at a path, in the whole view.
    pub(crate) fn look(&self, path: &Name) -> rustix::io::Result<Spot> {
        if self.has_marks {
            return self.find(path, self.all());
        }
        let (directory, name) = path.split();
        let fd = match self.top().directory(&directory) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Spot::Nothing),
            Err(error) => return Err(error),
        };
        match statat(&fd, os(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                Ok(Spot::Directory(vec![TOP], Stat::of(&stat)))
            }
            Ok(_) => Ok(Spot::Other(TOP)),
            Err(Errno::NOENT) => Ok(Spot::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Paths below a directory that are there and not in a version's tree of it. What cannot be read is passed over.
    pub(crate) fn hidden(
        &self,
        forest: &Forest<'_>,
        path: &Name,
        layers: &[Layer],
        node: Option<Node>,
        found: &mut Vec<Name>,
    ) {
        let tree = node.filter(Node::is_directory).and_then(|node| pollster::block_on(forest.tree(node.sha256)).ok());
        for (name, _) in self.list(path, layers).unwrap_or_default() {
            if !self.has_marks && is_temporary(&name) {
                continue;
            }
            match tree.as_ref().and_then(|tree| tree.get(&name)) {
                Some(node) if node.is_directory() => {
                    if let Ok(Spot::Directory(layers, _)) = self.step(path, layers, &name) {
                        self.hidden(forest, &path.join(&name), &layers, Some(*node), found);
                    }
                }
                Some(_) => {}
                None => found.push(path.join(&name)),
            }
        }
    }

    /// What is in the directory that these layers make.
    pub(crate) fn list(&self, path: &Name, layers: &[Layer]) -> rustix::io::Result<Vec<(Name, FileType)>> {
        let mut seen: BTreeMap<Name, Option<FileType>> = BTreeMap::new();
        for &layer in layers {
            let mut listing = match self.root(layer).directory(path) {
                Ok(fd) => Listing::new(fd)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error),
            };
            for Listed { name, kind, is_gone, .. } in marks::list(&mut listing, layer, self.has_marks)? {
                seen.entry(name).or_insert((!is_gone).then_some(kind));
            }
        }
        Ok(seen.into_iter().filter_map(|(name, kind)| Some((name, kind?))).collect())
    }
}
