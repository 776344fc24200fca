//! Versions of a workspace, and the changes between them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Node;
use crate::blob::BlobRef;
use crate::id::Digest;

/// A version of a workspace: the exact content of all files that were not ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The root directory, a blob of type [`TREE`](super::TREE).
    pub tree: BlobRef,
    /// The ignore rules in force when it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BlobRef>,
}

impl Version {
    /// The id of the version: the digest of its root directory.
    pub fn id(&self) -> Digest {
        self.tree.digest
    }

    /// The first twelve hex digits of the id, for display.
    pub fn short(&self) -> String {
        self.tree.digest.hex().as_str()[..12].to_owned()
    }

    /// Whether both versions have the same files. Ignore rules are not compared.
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
    /// The path that changed.
    pub path: super::FilePath,
    /// The node before the change; `None` when the path was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Node>,
    /// The node after the change; `None` when the path was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Node>,
}

impl Change {
    /// The kind of change as a letter: `A` added, `D` deleted, `M` modified, `T` type changed.
    pub fn letter(&self) -> char {
        match (&self.before, &self.after) {
            (None, _) => 'A',
            (_, None) => 'D',
            (Some(before), Some(after)) if before.kind != after.kind => 'T',
            _ => 'M',
        }
    }

    /// Whether the change is only about a directory: the nodes before and after, if any, are directories. Changes below
    /// it are listed separately, so displays usually skip it.
    pub fn is_directory(&self) -> bool {
        [&self.before, &self.after].into_iter().flatten().all(Node::is_directory)
    }
}

/// The maximum number of changes that a record lists. The trees contain all changes.
pub const MAX_LISTED: usize = 64;

/// The changes that a record made to files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The number of changed paths.
    pub total: u64,
    /// The first [`MAX_LISTED`] changes, in the order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Change>,
}

impl Changes {
    /// Counts all changes and keeps the first [`MAX_LISTED`].
    pub fn of(mut changes: Vec<Change>) -> Self {
        let total = changes.len() as u64;
        changes.truncate(MAX_LISTED);
        Self { total, paths: changes }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether all changes are listed.
    pub fn is_complete(&self) -> bool {
        self.total == self.paths.len() as u64
    }
}
