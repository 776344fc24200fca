//! A version of a workspace: the digest of its tree, and the rules that said what is not in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Node;
use crate::blob::BlobRef;
use crate::id::Digest;

/// A version: everything in a workspace that was not ignored, exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The root directory, a blob of type [`TREE`](super::TREE).
    pub tree: BlobRef,
    /// The ignore rules in force when it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BlobRef>,
}

impl Version {
    /// The digest that names it.
    pub fn id(&self) -> Digest {
        self.tree.digest
    }

    /// The digits shown where a person reads.
    pub fn short(&self) -> String {
        self.tree.digest.hex().as_str()[..12].to_owned()
    }

    /// Whether both hold the same files, whatever was ignored.
    pub fn same_files(&self, other: &Version) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.short())
    }
}

/// A path that differs between two versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path.
    pub path: super::Name,
    /// What stood there; `None` when it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Node>,
    /// What stands there; `None` when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Node>,
}

impl Change {
    /// `A`dded, `D`eleted, `M`odified, or of another `T`ype.
    pub fn letter(&self) -> char {
        match (&self.before, &self.after) {
            (None, _) => 'A',
            (_, None) => 'D',
            (Some(before), Some(after)) if before.kind != after.kind => 'T',
            _ => 'M',
        }
    }

    /// Whether it is of a directory alone: what is below it is listed too, so most people need not see it.
    pub fn is_directory(&self) -> bool {
        [&self.before, &self.after].into_iter().flatten().all(Node::is_directory)
    }
}

/// How many changes a record lists; the trees have all of them.
pub const LISTED: usize = 64;

/// The paths that a record changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// How many.
    pub total: u64,
    /// The first [`LISTED`] of them, in the order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Change>,
}

impl Changes {
    /// Counts all, lists some.
    pub fn of(mut changes: Vec<Change>) -> Self {
        let total = changes.len() as u64;
        changes.truncate(LISTED);
        Self { total, paths: changes }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether every one is listed.
    pub fn is_complete(&self) -> bool {
        self.total == self.paths.len() as u64
    }
}
