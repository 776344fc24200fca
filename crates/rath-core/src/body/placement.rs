//! Where side effects happen: a session's placement, its sandbox, and changes of its files.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::files::{Changes, Conflict, Driver, FilePath, Version};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::state::{Placement, RecordMeta, SandboxName, State};
use crate::summary::{changed, join};

/// The session was assigned a placement. Nothing is opened yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The name of the sandbox backend.
    pub backend: String,
    /// Whether the backend isolates commands from the machine.
    pub isolated: bool,
    /// The directory that the files come from, and that `apply` writes them to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<FilePath>,
    /// Whether the session works in that directory itself instead of in a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// The initial files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// The files in the origin directory when they were last copied from it or applied to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Version>,
    /// The shell command that prepares the files for work. What it installs is ignored by versions, and is reused by
    /// other sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A sandbox was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxOpened {
    /// The id and generation of the sandbox.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// The name of its backend.
    pub backend: String,
    /// Whether the sandbox isolates commands from the machine.
    pub isolated: bool,
    /// The isolation method, as the backend names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The directory that contains the files.
    pub directory: FilePath,
    /// The requested limits that the backend does not enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// Sockets and FIFOs in the workspace that are hidden from commands; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<FilePath>,
}

/// A sandbox was closed normally.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxClosed {
    /// The id and generation of the sandbox.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// The reason.
    pub why: String,
}

/// A sandbox is lost. The session continues from its last version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLost {
    /// The id and generation of the sandbox.
    #[serde(flatten)]
    pub sandbox: SandboxName,
    /// How the loss was detected.
    pub why: String,
}

/// A network access was allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDecided {
    /// The target: `HOST` or `HOST:PORT`.
    pub target: String,
    /// Whether the access was allowed.
    pub allowed: bool,
    /// The id of the tool call that attempted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The policy rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The files were restored to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// What caused the restore.
    pub why: RestoreReason,
    /// The files before the restore. They were saved first.
    pub from: Version,
    /// The files after the restore.
    pub workspace: Version,
    /// The record whose files were restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Changes that were made outside the session since the last record. They are only in `from` now.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub outside: Changes,
    /// The changes made by the restore.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// Paths that were changed by another program during the restore, and were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<FilePath>,
    /// The open conflicts in the restored files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

open_enum! {
    /// Why files were restored.
    pub enum RestoreReason {
        /// A person or program requested that version.
        Asked = "asked",
        /// The last change was undone.
        Undo = "undo",
        /// A restore that was interrupted by a crash was finished.
        Recovered = "recovered",
        /// A tool call that was interrupted by a crash is about to be repeated.
        Resumed = "resumed",
    }
}

/// A file conflict was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The path whose conflict was resolved.
    pub path: FilePath,
    /// The chosen side.
    pub choice: Choice,
    /// The record that the chosen side comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Point>,
    /// The files after the resolution.
    pub workspace: Version,
    /// The changes made by the resolution.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
}

open_enum! {
    /// How a conflict was resolved.
    pub enum Choice {
        /// This session's side.
        Ours = "ours",
        /// The merged branch's side.
        Theirs = "theirs",
        /// The common ancestor of both sides.
        Base = "base",
        /// The path is removed.
        Remove = "remove",
        /// Other content, written by hand.
        Content = "content",
    }
}

/// The result of merging the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedFiles {
    /// The merged files.
    pub workspace: Version,
    /// The changes relative to this session's files before the merge.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// All open conflicts in the merged files, including older ones. At these paths the files have this session's side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// The drivers that decided paths changed on several sides, with their patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<(String, Driver)>,
}

impl Placed {
    /// Describes the placement as a phrase.
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
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
        format!("on {}{isolation}, generation {}", self.backend, self.sandbox.generation)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if let Some(placement) = &mut state.placement {
            placement.sandbox = Some(self.sandbox.clone());
        }
    }
}

fn clear_sandbox(sandbox: &SandboxName, state: &mut State) {
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        clear_sandbox(&self.sandbox, state);
    }
}

impl Body for SandboxLost {
    const KIND: Kind = Kind::SandboxLost;
    fn summary(&self, _: SessionId) -> String {
        join(&self.sandbox.id, &self.why)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        clear_sandbox(&self.sandbox, state);
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
            RestoreReason::Asked => "",
            RestoreReason::Undo => "undo",
            RestoreReason::Recovered => "finished after a crash",
            RestoreReason::Resumed => "before a call is made again",
            RestoreReason::Unknown(_) => &self.why.to_string(),
        };
        let to = self.point.map_or_else(|| self.workspace.to_string(), |point| format!("as after {point}"));
        join(&join(why, &to), &changed(&self.changed))
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.workspace = Some(self.workspace.clone());
        state.conflicts.clone_from(&self.conflicts);
    }
}

impl Body for Resolved {
    const KIND: Kind = Kind::Resolved;
    fn summary(&self, _: SessionId) -> String {
        let choice = match self.choice {
            Choice::Ours => "this session's side",
            Choice::Theirs => "the branch's side",
            Choice::Base => "the common ancestor",
            Choice::Remove => "removed",
            Choice::Content => "resolved by hand",
            Choice::Unknown(_) => &self.choice.to_string(),
        };
        format!("{}: {choice}", self.path)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.conflicts.retain(|conflict| conflict.path != self.path);
        state.workspace = Some(self.workspace.clone());
    }
}
