//! Merge conflicts of files.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FilePath, Node};
use crate::body::open_enum::open_enum;
use crate::id::SessionId;

/// A path that both sides changed and that cannot be merged. A conflict is recorded as a value; the tree contains our
/// side until the conflict is resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path in conflict.
    pub path: FilePath,
    /// How the sides contradict each other.
    pub kind: ConflictKind,
    /// The node in the base version; `None` when the path did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Node>,
    /// The node on our side; `None` when our side removed the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Node>,
    /// The node on their side; `None` when their side removed the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Node>,
    /// The session of their side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<SessionId>,
}

open_enum! {
    /// Why a path cannot be merged.
    pub enum ConflictKind without Display {
        /// Both sides changed the same lines of a text file.
        Content = "content",
        /// Both sides changed a file that is not text.
        Binary = "binary",
        /// One side changed the path, the other removed it.
        ModifyDelete = "modify_delete",
        /// Both sides added the path with different content.
        AddAdd = "add_add",
        /// Both sides changed the permission bits. The content was merged.
        Mode = "mode",
        /// Both sides changed the target of a symbolic link, or one side has a link and the other a file.
        Symlink = "symlink",
        /// One side has a directory, the other does not.
        DirectoryFile = "directory_file",
    }
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            ConflictKind::Content => "both changed it",
            ConflictKind::Binary => "both changed it, and it is not text",
            ConflictKind::ModifyDelete => "one side changed it, the other removed it",
            ConflictKind::AddAdd => "both added it, with different contents",
            ConflictKind::Mode => "both changed its permissions",
            ConflictKind::Symlink => "both changed it, and a symbolic link cannot be merged",
            ConflictKind::DirectoryFile => "it is a directory on one side and not on the other",
            ConflictKind::Unknown(name) => return name.fmt(f),
        };
        f.pad(words)
    }
}
