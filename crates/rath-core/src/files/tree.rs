//! Trees: the directories that a version of a workspace consists of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::FilePath;
use crate::blob::Blob;
use crate::id::Digest;

/// The media type of a tree.
pub const TREE: &str = "application/vnd.rath.tree+json";

/// The permission bits that are stored, including set-id and sticky bits.
pub const MODE_BITS: u32 = 0o7777;

/// One directory: its entries, sorted by the bytes of their names. The digest of a tree covers everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries, in order.
    pub entries: Vec<TreeEntry>,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The name.
    pub name: FilePath,
    /// The file, directory or link.
    pub node: Node,
}

/// A file, a directory or a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The kind.
    pub kind: NodeKind,
    /// The permission bits.
    #[serde(with = "octal")]
    pub mode: u32,
    /// The SHA-256 of a file's content, a link's target, or a directory's tree.
    pub sha256: Digest,
    /// The length in bytes of the file, target or tree.
    pub size: u64,
}

/// The kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl NodeKind {
    fn as_str(self) -> &'static str {
        match self {
            NodeKind::File => "file",
            NodeKind::Directory => "directory",
            NodeKind::Symlink => "symlink",
        }
    }
}

impl Node {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == NodeKind::File
    }
}

/// Iterates over the entries of several directories together, in the order of their names.
pub(super) fn zip_entries<'a, const N: usize>(
    trees: [&'a Tree; N],
) -> impl Iterator<Item = (&'a FilePath, [Option<Node>; N])> + Send {
    let mut at = [0; N];
    std::iter::from_fn(move || {
        let heads: [Option<&'a TreeEntry>; N] = std::array::from_fn(|tree| trees[tree].entries.get(at[tree]));
        let name = heads.iter().flatten().map(|entry| &entry.name).min()?;
        let nodes = std::array::from_fn(|tree| {
            let here = heads[tree].filter(|entry| entry.name == *name)?;
            at[tree] += 1;
            Some(here.node)
        });
        Some((name, nodes))
    })
}

/// Bytes that are not a valid tree.
#[derive(Debug, thiserror::Error)]
#[error("not a valid tree: {0}")]
pub struct NotATree(String);

impl Tree {
    /// The node with this name.
    pub fn get(&self, name: &FilePath) -> Option<&Node> {
        let at = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        Some(&self.entries[at].node)
    }

    /// The canonical bytes: JSON as of RFC 8785.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.entries.len() * 160);
        out.extend_from_slice(b"{\"entries\":[");
        for (at, TreeEntry { name, node }) in self.entries.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"kind\":\"");
            out.extend_from_slice(node.kind.as_str().as_bytes());
            out.extend_from_slice(b"\",\"mode\":\"");
            out.extend_from_slice(format!("{:04o}", node.mode).as_bytes());
            out.extend_from_slice(b"\",\"name\":");
            // Writing a string to a `Vec` cannot fail.
            let _ = serde_json::to_writer(&mut out, name);
            out.extend_from_slice(b",\"sha256\":\"");
            out.extend_from_slice(node.sha256.hex().as_str().as_bytes());
            out.extend_from_slice(b"\",\"size\":");
            out.extend_from_slice(itoa::Buffer::new().format(node.size).as_bytes());
            out.push(b'}');
        }
        out.extend_from_slice(b"],\"tree\":1}");
        out
    }

    /// The tree as a blob.
    pub fn to_blob(&self) -> Blob {
        Blob::new(self.encode(), TREE)
    }

    /// Parses a tree. Fails unless the bytes are in canonical form and every name is valid, so that no name leads out
    /// of the directory.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotATree> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            tree: u32,
            entries: Vec<WrittenEntry>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct WrittenEntry {
            name: FilePath,
            kind: NodeKind,
            #[serde(with = "octal")]
            mode: u32,
            sha256: Digest,
            size: u64,
        }
        let written: Written = serde_json::from_slice(bytes).map_err(|error| NotATree(error.to_string()))?;
        if written.tree != 1 {
            return Err(NotATree(format!("it has format {}, but this version of rath reads 1", written.tree)));
        }
        let entry = |WrittenEntry { name, kind, mode, sha256, size }| TreeEntry {
            name,
            node: Node { kind, mode, sha256, size },
        };
        let tree = Tree { entries: written.entries.into_iter().map(entry).collect() };
        if let Some(bad) = tree.entries.iter().find(|entry| !entry.name.is_legal_entry()) {
            return Err(NotATree(format!("{} is not a valid file name", bad.name)));
        }
        if tree.entries.windows(2).any(|pair| pair[0].name >= pair[1].name) {
            return Err(NotATree("its entries are not in order".into()));
        }
        // Each directory has exactly one digest, so other encodings of the same tree are not valid.
        if tree.encode() != bytes {
            return Err(NotATree("it is not in canonical form".into()));
        }
        Ok(tree)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:04o} {:?}", self.kind.as_str(), self.mode, self.sha256)
    }
}

/// Serializes permission bits as four octal digits.
mod octal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(mode: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{mode:04o}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        match u32::from_str_radix(&text, 8) {
            Ok(mode) if mode <= super::MODE_BITS && text.len() == 4 => Ok(mode),
            _ => Err(D::Error::custom("a mode is four octal digits")),
        }
    }
}
