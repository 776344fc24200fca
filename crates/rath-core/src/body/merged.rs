//! Merging branches.

use serde::{Deserialize, Deserializer, Serialize};

use super::open_enum::open_enum;
use super::{Body, MergedFiles, UnknownValue};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};
use crate::usage::Usage;

/// Branches were merged into this session. The parents are this session's previous record, then the heads of the
/// branches in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// How the contexts were combined.
    pub how: MergeStrategy,
    /// The merged branches, in the order of the parents.
    pub branches: Vec<Branch>,
    /// The youngest common ancestor of this session and all branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Reference>,
    /// The records that the merge added to this session's history, as ranges of one session each.
    #[serde(rename = "brought")]
    pub added: Vec<RecordRange>,
    /// The usage of the added records, counted once.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// The result for the files, if this session or a branch has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<MergedFiles>,
}

/// How a merge combines the contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MergeStrategy {
    /// The context of one of the sessions is kept.
    Keep {
        /// The session whose context is kept.
        chosen: SessionId,
    },
    /// The new items of each branch are appended to this session's items.
    Append,
    /// Like `Append`. Then a workflow writes the combined result, and the items of the branches are compressed.
    Synthesize,
    /// Only files and usage are merged; this session's context does not change. Used for branches whose answer reaches
    /// this session in another way, such as a tool result.
    #[serde(rename = "take_in")]
    FilesOnly,
    /// Each branch has a strategy of its own: [`Branch::context`].
    PerBranch,
    /// A strategy that only a later version knows. This session's context does not change, as after an erased merge.
    #[serde(untagged, deserialize_with = "unknown_strategy")]
    Unknown(UnknownValue),
}

fn unknown_strategy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "type", &["keep", "append", "synthesize", "take_in", "per_branch"])
}

/// A merged branch. The id of its head is the parent at the same index, after this session's own parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// The session of the branch.
    pub session: SessionId,
    /// The sequence number of its head.
    pub seq: u64,
    /// The generation of its head.
    pub generation: u64,
    /// Why the branch was forked. The models see it where the branch starts in the merged context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the files of the branch were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_files: bool,
    /// What the branch contributes to the context, in a merge with [`MergeStrategy::PerBranch`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<BranchContext>,
}

open_enum! {
    /// What a branch contributes to the context of the merged session. A value that this version does not know
    /// contributes nothing.
    pub enum BranchContext {
        /// The branch's context replaces that of the session.
        Keep = "keep",
        /// The new items of the branch are appended after a marker.
        Append = "append",
        /// Nothing.
        Omit = "omit",
    }
}

impl Branch {
    /// The point of its head.
    pub fn head(&self) -> Point {
        Point { session: self.session, seq: self.seq }
    }

    fn summary(&self) -> String {
        let context = match self.context {
            Some(BranchContext::Keep) => "kept",
            Some(BranchContext::Append) => "appended",
            _ if self.without_files => "left out",
            _ => "files only",
        };
        format!("{} {context}", self.head())
    }
}

/// Records `from..=to` of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRange {
    /// The session that contains the records.
    pub session: SessionId,
    /// The first sequence number.
    pub from: u64,
    /// The last sequence number.
    pub to: u64,
    /// The generation of the first record. No record of the range has a smaller one.
    pub generation: u64,
}

impl RecordRange {
    /// Whether `point` is in this range.
    pub fn contains(&self, point: &Point) -> bool {
        self.session == point.session && (self.from..=self.to).contains(&point.seq)
    }
}

impl Merged {
    /// Whether the strategy, or that of a branch, is one that only a later version knows.
    pub(crate) fn has_unknown_strategy(&self) -> bool {
        matches!(self.how, MergeStrategy::Unknown(_))
            || self.branches.iter().any(|branch| matches!(branch.context, Some(BranchContext::Unknown(_))))
    }
}

impl Body for Merged {
    const KIND: Kind = Kind::Merged;
    fn summary(&self, on: SessionId) -> String {
        let branches: Vec<_> = self.branches.iter().map(|branch| branch.head().to_string()).collect();
        let branches = branches.join(", ");
        match &self.how {
            MergeStrategy::Append => format!("{branches} appended"),
            MergeStrategy::Synthesize => format!("{branches} to be synthesized"),
            MergeStrategy::FilesOnly => format!("{branches}, files only"),
            MergeStrategy::PerBranch => self.branches.iter().map(Branch::summary).collect::<Vec<_>>().join(", "),
            MergeStrategy::Unknown(how) => format!("{branches} ({how})"),
            MergeStrategy::Keep { chosen } if *chosen == on => format!("kept this session over {branches}"),
            MergeStrategy::Keep { chosen } => format!("kept {} of {branches}", chosen.short()),
        }
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.usage += self.usage;
        if let Some(files) = &self.files {
            state.workspace = Some(files.workspace.clone());
            state.conflicts.clone_from(&files.conflicts);
        }
    }
}
