//! A path on which two sides do not agree.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Name, Node};
use crate::body::open_enum::open_enum;
use crate::id::SessionId;

/// A path that both sides changed in ways that do not fit together. It is a value: our side stays in the tree until
/// somebody decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path.
    pub path: Name,
    /// What does not fit.
    pub kind: ConflictKind,
    /// What stood there before both; `None` when nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Node>,
    /// Ours; `None` when we removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Node>,
    /// Theirs; `None` when they removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Node>,
    /// The branch that theirs is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<SessionId>,
}

open_enum! {
    /// What does not fit together.
    pub enum ConflictKind without Display {
        /// Lines of a text.
        Content = "content",
        /// Contents that have no lines.
        Binary = "binary",
        /// One side changed what the other removed.
        ModifyDelete = "modify_delete",
        /// Both made a file of that name.
        AddAdd = "add_add",
        /// Permission bits; the content is merged.
        Mode = "mode",
        /// Targets of a link, or a link and a file.
        Symlink = "symlink",
        /// A directory, and something that is none.
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
