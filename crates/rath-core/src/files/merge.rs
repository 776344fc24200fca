//! Sides-way merge of versions.

use super::text::text;
use super::three_way::ThreeWay;
use super::tree::zip_entries;
use super::{Conflict, ConflictKind, Driver, Drivers, FilePath, Node, NodeKind, Tree, TreeEntry, TreeStore, Version};
use crate::blob::Blob;
use crate::id::SessionId;
use crate::store::{BoxFuture, Result};

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOutcome {
    /// The merged version. Paths in conflict have our side.
    pub version: Version,
    /// The conflicts, at most one per path. A directory comes before its entries.
    pub conflicts: Vec<Conflict>,
}

/// Merges `theirs` into `ours`. A path that one side did not change since `base` is taken from the other side; a file
/// that both sides changed is merged by line. Without a base, every path counts as added by both sides. Only
/// directories that both sides changed are read. Conflicts contain `branch` as the session of their side.
pub async fn merge(
    forest: &TreeStore<'_>,
    base: Option<&Version>,
    ours: &Version,
    theirs: &Version,
    drivers: &Drivers,
    branch: Option<SessionId>,
) -> Result<MergeOutcome> {
    let mut merging = Merging { forest, drivers, branch, conflicts: Vec::new() };
    let root = |version: &Version| Node {
        kind: NodeKind::Directory,
        mode: 0o755,
        sha256: version.id(),
        size: version.tree.bytes,
    };
    let at = Sides { base: base.map(root), ours: Some(root(ours)), theirs: Some(root(theirs)) };
    let tree = match at.merged() {
        Some(node) => node,
        None => Some(merging.directory(&FilePath::root(), at, 0o755).await?),
    };
    let rules = Sides { base: base.map(|base| &base.rules), ours: Some(&ours.rules), theirs: Some(&theirs.rules) };
    let mut version =
        Version { tree: ours.tree.clone(), rules: rules.merged().flatten().unwrap_or(&ours.rules).clone() };
    if let Some(Node { sha256, size, .. }) = tree {
        (version.tree.digest, version.tree.bytes) = (sha256, size);
    }
    Ok(MergeOutcome { version, conflicts: merging.conflicts })
}

/// Returns the text of a conflict between two texts, with conflict markers around lines that cannot be merged; `None`
/// for other kinds of conflict.
pub async fn marked(forest: &TreeStore<'_>, conflict: &Conflict) -> Result<Option<Vec<u8>>> {
    if !matches!(conflict.kind, ConflictKind::Content | ConflictKind::AddAdd) {
        return Ok(None);
    }
    let Conflict { base, ours: Some(ours), theirs: Some(theirs), .. } = conflict else { return Ok(None) };
    let base = match base.filter(Node::is_file) {
        Some(base) => text(forest, &base).await?,
        None => Some([].into()),
    };
    let three = (base, text(forest, ours).await?, text(forest, theirs).await?);
    let (Some(base), Some(ours), Some(theirs)) = three else { return Ok(None) };
    Ok(Some(ThreeWay::new(&base, &ours, &theirs).marked()))
}

/// A value in the base and on both sides.
#[derive(Clone, Copy)]
struct Sides<T> {
    base: Option<T>,
    ours: Option<T>,
    theirs: Option<T>,
}

impl<T: Copy + PartialEq> Sides<T> {
    /// The merged value, if both sides agree or only one side changed it.
    fn merged(&self) -> Option<Option<T>> {
        match self {
            _ if self.ours == self.theirs || self.theirs == self.base => Some(self.ours),
            _ if self.ours == self.base => Some(self.theirs),
            _ => None,
        }
    }

    fn map<U>(self, part: impl Fn(T) -> Option<U>) -> Sides<U> {
        let Self { base, ours, theirs } = self;
        Sides { base: base.and_then(&part), ours: ours.and_then(&part), theirs: theirs.and_then(&part) }
    }
}

struct Merging<'a> {
    forest: &'a TreeStore<'a>,
    drivers: &'a Drivers,
    branch: Option<SessionId>,
    conflicts: Vec<Conflict>,
}

impl Merging<'_> {
    /// Merges a path that both sides changed.
    fn node<'b>(&'b mut self, path: &'b FilePath, at: Sides<Node>) -> BoxFuture<'b, Result<Option<Node>>> {
        Box::pin(async move {
            let is_directory = |node: Option<Node>| node.is_some_and(|node| node.is_directory());
            match (at.ours, at.theirs) {
                (Some(ours), Some(theirs)) if ours.is_directory() && theirs.is_directory() => {
                    let modes = at.map(|node| node.is_directory().then_some(node.mode));
                    let mode = match (modes.merged(), self.drivers.of(path)) {
                        (Some(mode), _) => mode.unwrap_or(ours.mode),
                        (None, Some(Driver::Ours)) => ours.mode,
                        (None, Some(Driver::Theirs)) => theirs.mode,
                        (None, _) => {
                            self.conflict(path, ConflictKind::Mode, at);
                            ours.mode
                        }
                    };
                    self.directory(path, at, mode).await.map(Some)
                }
                // One side removed the directory, the other changed something in it: the directory stays if anything
                // remains in it.
                (Some(kept), None) | (None, Some(kept)) if kept.is_directory() && is_directory(at.base) => {
                    let left = self.directory(path, at, kept.mode).await?;
                    Ok((!self.forest.tree(left.sha256).await?.entries.is_empty()).then_some(left))
                }
                _ => self.leaf(path, at).await,
            }
        })
    }

    /// Merges the entries of a directory and writes the result.
    async fn directory(&mut self, path: &FilePath, at: Sides<Node>, mode: u32) -> Result<Node> {
        let below = at.map(|node| node.is_directory().then_some(node));
        let base = self.forest.read_dir(below.base).await?;
        let ours = self.forest.read_dir(below.ours).await?;
        let theirs = self.forest.read_dir(below.theirs).await?;
        let mut tree = Tree::default();
        for (name, [base, ours, theirs]) in zip_entries([&base, &ours, &theirs]) {
            let at = Sides { base, ours, theirs };
            let node = match at.merged() {
                Some(node) => node,
                None => self.node(&path.join(name), at).await?,
            };
            tree.entries.extend(node.map(|node| TreeEntry { name: name.clone(), node }));
        }
        self.forest.write_dir(mode, tree).await
    }

    /// Merges a path at which at least one side is not a directory.
    async fn leaf(&mut self, path: &FilePath, at: Sides<Node>) -> Result<Option<Node>> {
        let driver = self.drivers.of(path);
        match driver {
            Some(Driver::Ours) => return Ok(at.ours),
            Some(Driver::Theirs) => return Ok(at.theirs),
            Some(Driver::Conflict | Driver::Unknown(_)) | None => {}
        }
        let (Some(ours), Some(theirs)) = (at.ours, at.theirs) else {
            self.conflict(path, ConflictKind::ModifyDelete, at);
            return Ok(at.ours);
        };
        let kind = match (ours.kind, theirs.kind) {
            (NodeKind::Directory, _) | (_, NodeKind::Directory) => ConflictKind::DirectoryFile,
            (ours, theirs) if ours != theirs => ConflictKind::Symlink,
            _ => return self.alike(path, at, ours, driver.is_some()).await.map(Some),
        };
        self.conflict(path, kind, at);
        Ok(at.ours)
    }

    /// Merges two files or two links. Content and mode are merged separately.
    async fn alike(&mut self, path: &FilePath, at: Sides<Node>, ours: Node, forced: bool) -> Result<Node> {
        let before = Sides { base: at.base.filter(|base| base.kind == ours.kind), ..at };
        let content = match before.map(|node| Some((node.sha256, node.size))).merged().flatten() {
            Some(content) => Ok(content),
            None => match self.lines(before).await? {
                Ok(_) if forced => Err(ConflictKind::Content),
                Ok(text) => {
                    let blob = Blob::new(text, "application/octet-stream");
                    let content = (blob.reference.digest, blob.reference.bytes);
                    self.forest.blobs().blob_put(vec![blob]).await?;
                    Ok(content)
                }
                Err(kind) => Err(kind),
            },
        };
        let mode = before.map(|node| Some(node.mode)).merged().flatten();
        match (content, mode) {
            (Err(kind), _) => self.conflict(path, kind, at),
            (Ok(_), _) if forced => self.conflict(path, ConflictKind::Content, at),
            (Ok(_), None) => self.conflict(path, ConflictKind::Mode, at),
            (Ok(_), Some(_)) => {}
        }
        if forced {
            return Ok(ours);
        }
        let (sha256, size) = content.unwrap_or((ours.sha256, ours.size));
        Ok(Node { mode: mode.unwrap_or(ours.mode), sha256, size, ..ours })
    }

    /// Merges two texts by line. The inner error is the kind of conflict.
    async fn lines(&self, at: Sides<Node>) -> Result<Result<Vec<u8>, ConflictKind>> {
        let (Some(ours), Some(theirs)) = (at.ours, at.theirs) else { return Ok(Err(ConflictKind::ModifyDelete)) };
        if ours.kind == NodeKind::Symlink {
            return Ok(Err(ConflictKind::Symlink));
        }
        let Some(base) = at.base else { return Ok(Err(ConflictKind::AddAdd)) };
        let Some(base) = text(self.forest, &base).await? else { return Ok(Err(ConflictKind::Binary)) };
        let Some(ours) = text(self.forest, &ours).await? else { return Ok(Err(ConflictKind::Binary)) };
        let Some(theirs) = text(self.forest, &theirs).await? else { return Ok(Err(ConflictKind::Binary)) };
        Ok(ThreeWay::new(&base, &ours, &theirs).merged().ok_or(ConflictKind::Content))
    }

    fn conflict(&mut self, path: &FilePath, kind: ConflictKind, Sides { base, ours, theirs }: Sides<Node>) {
        self.conflicts.push(Conflict { path: path.clone(), kind, base, ours, theirs, branch: self.branch });
    }
}
