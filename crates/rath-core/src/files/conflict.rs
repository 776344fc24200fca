//! A path on which two sides do not agree.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Name, Node};
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

/// What does not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConflictKind {
    /// Lines of a text.
    Content,
    /// Contents that have no lines.
    Binary,
    /// One side changed what the other removed.
    ModifyDelete,
    /// Both made a file of that name.
    AddAdd,
    /// Permission bits; the content is merged.
    Mode,
    /// Targets of a link, or a link and a file.
    Symlink,
    /// A directory, and something that is none.
    DirectoryFile,
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ConflictKind::Content => "both changed it",
            ConflictKind::Binary => "both changed it, and it is not text",
            ConflictKind::ModifyDelete => "one side changed it, the other removed it",
            ConflictKind::AddAdd => "both added it, with different contents",
            ConflictKind::Mode => "both changed its permissions",
            ConflictKind::Symlink => "both changed it, and a symbolic link cannot be merged",
            ConflictKind::DirectoryFile => "it is a directory on one side and not on the other",
        })
    }
}
