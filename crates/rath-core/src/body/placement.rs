//! Where side effects happen: the place of a session, its sandbox, and the way its files go.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::files::{Changes, Conflict, Driver, Name, Version};
use crate::id::Point;
use crate::kind::Kind;
use crate::state::{At, Placement, SandboxName, State};

/// The session works somewhere from here on. Nothing is opened yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The backend's name.
    pub backend: String,
    /// Whether it keeps what runs there away from the machine.
    pub isolated: bool,
    /// The directory the files come from, and into which `apply` brings them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Name>,
    /// Whether the session works in that directory itself, not in a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// The files it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// What the origin had when the files were last brought from it or into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Version>,
    /// The shell line that makes its files ready for work: what it installs is ignored, and kept for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A sandbox is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxOpened {
    /// Which.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// Its backend.
    pub backend: String,
    /// Whether it is isolated.
    pub isolated: bool,
    /// How, in the backend's word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The directory that holds the files.
    pub directory: Name,
    /// What was asked for and is not enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// Sockets and FIFOs of the files that commands cannot reach: the first hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<Name>,
}

/// A sandbox was closed in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxClosed {
    /// Which.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// The reason.
    pub why: String,
}

/// A sandbox is gone. The session goes on from its last version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLost {
    /// Which.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// What was found.
    pub why: String,
}

/// The files were set to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Why.
    pub why: Why,
    /// What was there: saved before anything was touched.
    pub from: Version,
    /// What is there.
    pub workspace: Version,
    /// The record after which the files were like this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// What somebody else had changed since the last record, and is only in `from` now.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub outside: Changes,
    /// What changed on the way.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// Paths that changed under our hands and were left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Name>,
    /// The conflicts that are open in these files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// Why files were restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A person or program asked for that version.
    Asked,
    /// The last change was taken back.
    Undo,
    /// A restore that a crash had interrupted was finished.
    Recovered,
    /// A call that a crash had interrupted is about to be made again.
    Resumed,
}

/// A conflict was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The path.
    pub path: Name,
    /// What was chosen.
    pub choice: Choice,
    /// The record whose side was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Point>,
    /// The files with the decision in them.
    pub workspace: Version,
    /// What the decision changed.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
}

/// How a conflict was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The side of the line that goes on.
    Ours,
    /// The branch's side.
    Theirs,
    /// What both began with.
    Base,
    /// The path goes.
    Remove,
    /// A content of its own.
    Content,
}

/// What a merge made of the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedFiles {
    /// The files of all sides together.
    pub workspace: Version,
    /// What changed on this line.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// Every conflict that is open in these files, old ones too; this line's side is in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Who decided about paths that several sides changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<(String, Driver)>,
}

impl Placed {
    /// Where that is, in words.
    pub fn in_words(&self) -> String {
        let backend = match self.isolated {
            true => format!("on {}", self.backend),
            false => format!("on {} (not isolated)", self.backend),
        };
        match &self.origin {
            Some(origin) if self.in_place => format!("{backend}, in place in {origin}"),
            Some(origin) => format!("{backend}, in a copy of {origin}"),
            None => backend,
        }
    }
}

impl Body for Placed {
    const KIND: Kind = Kind::Placed;
    fn fold(&self, _: &At, state: &mut State) {
        let Placed { backend, isolated, origin, in_place, base, setup, .. } = self.clone();
        let sandbox = state.placement.take().and_then(|before| before.sandbox.filter(|_| before.backend == backend));
        state.placement = Some(Box::new(Placement { backend, isolated, origin, in_place, base, setup, sandbox }));
        state.arrived = false;
        if let Some(version) = &self.workspace {
            state.workspace = Some(version.clone());
        }
    }
}

impl Body for SandboxOpened {
    const KIND: Kind = Kind::SandboxOpened;
    fn fold(&self, _: &At, state: &mut State) {
        if let Some(placement) = &mut state.placement {
            placement.sandbox = Some(self.sandbox.clone());
        }
    }
}

fn gone(sandbox: &SandboxName, state: &mut State) {
    if let Some(placement) = &mut state.placement
        && placement.sandbox.as_ref() == Some(sandbox)
    {
        placement.sandbox = None;
    }
}

impl Body for SandboxClosed {
    const KIND: Kind = Kind::SandboxClosed;
    fn fold(&self, _: &At, state: &mut State) {
        gone(&self.sandbox, state);
    }
}

impl Body for SandboxLost {
    const KIND: Kind = Kind::SandboxLost;
    fn fold(&self, _: &At, state: &mut State) {
        gone(&self.sandbox, state);
    }
}

impl Body for Restored {
    const KIND: Kind = Kind::Restored;
    fn fold(&self, _: &At, state: &mut State) {
        state.workspace = Some(self.workspace.clone());
        state.conflicts.clone_from(&self.conflicts);
    }
}

impl Body for Resolved {
    const KIND: Kind = Kind::Resolved;
    fn fold(&self, _: &At, state: &mut State) {
        state.conflicts.retain(|conflict| conflict.path != self.path);
        state.workspace = Some(self.workspace.clone());
    }
}
