//! Where side effects happen: the place of a session, its sandbox, and the way its files go.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::files::{Changes, Conflict, Driver, Name, Version};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::state::{At, Placement, SandboxName, State};
use crate::summary::{changed, join};

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

/// A network access was allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDecided {
    /// Where to: `HOST` or `HOST:PORT`.
    pub target: String,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The call that tried it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
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

open_enum! {
    /// Why files were restored.
    pub enum Why {
        /// A person or program asked for that version.
        Asked = "asked",
        /// The last change was taken back.
        Undo = "undo",
        /// A restore that a crash had interrupted was finished.
        Recovered = "recovered",
        /// A call that a crash had interrupted is about to be made again.
        Resumed = "resumed",
    }
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

open_enum! {
    /// How a conflict was decided.
    pub enum Choice {
        /// The side of the line that goes on.
        Ours = "ours",
        /// The branch's side.
        Theirs = "theirs",
        /// What both began with.
        Base = "base",
        /// The path goes.
        Remove = "remove",
        /// A content of its own.
        Content = "content",
    }
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
    fn summary(&self, _: SessionId) -> String {
        let origin = match (&self.origin, self.in_place) {
            (Some(origin), true) => format!("in {origin}"),
            (Some(origin), false) => format!("in a copy of {origin}"),
            (None, _) => String::new(),
        };
        let unisolated = if self.isolated { "" } else { ", not isolated" };
        let setup = self.setup.as_ref().map(|line| format!("with the setup `{line}`")).unwrap_or_default();
        join(&join(&format!("on {}{unisolated}", self.backend), &origin), &setup)
    }
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
    fn summary(&self, _: SessionId) -> String {
        let isolation = match (&self.isolation, self.isolated) {
            (Some(isolation), true) => format!(", isolated by {isolation}"),
            (None, true) => String::new(),
            (_, false) => ", not isolated".to_owned(),
        };
        format!("{} on {}{isolation}, generation {}", self.sandbox.id, self.backend, self.sandbox.generation)
    }
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
    fn summary(&self, _: SessionId) -> String {
        join(&self.sandbox.id, &self.why)
    }
    fn fold(&self, _: &At, state: &mut State) {
        gone(&self.sandbox, state);
    }
}

impl Body for SandboxLost {
    const KIND: Kind = Kind::SandboxLost;
    fn summary(&self, _: SessionId) -> String {
        join(&self.sandbox.id, &self.why)
    }
    fn fold(&self, _: &At, state: &mut State) {
        gone(&self.sandbox, state);
    }
}

impl Body for NetDecided {
    const KIND: Kind = Kind::NetDecided;
    fn summary(&self, _: SessionId) -> String {
        format!("{} {}", self.target, if self.allowed { "allowed" } else { "refused" })
    }
}

impl Body for Restored {
    const KIND: Kind = Kind::Restored;
    fn summary(&self, _: SessionId) -> String {
        let why = match self.why {
            Why::Asked => "",
            Why::Undo => "undo",
            Why::Recovered => "finished after a crash",
            Why::Resumed => "before a call is made again",
            Why::Unknown(_) => &self.why.to_string(),
        };
        let to = self.point.map_or_else(|| self.workspace.to_string(), |point| format!("as after {point}"));
        join(&join(why, &to), &changed(&self.changed))
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.workspace = Some(self.workspace.clone());
        state.conflicts.clone_from(&self.conflicts);
    }
}

impl Body for Resolved {
    const KIND: Kind = Kind::Resolved;
    fn summary(&self, _: SessionId) -> String {
        let choice = match self.choice {
            Choice::Ours => "this line's side",
            Choice::Theirs => "the branch's side",
            Choice::Base => "what both began with",
            Choice::Remove => "removed",
            Choice::Content => "decided by hand",
            Choice::Unknown(_) => &self.choice.to_string(),
        };
        format!("{}: {choice}", self.path)
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.conflicts.retain(|conflict| conflict.path != self.path);
        state.workspace = Some(self.workspace.clone());
    }
}
