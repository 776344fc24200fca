//! Branches that come together.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Body, MergedFiles, UnknownValue};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};
use crate::usage::Usage;

/// Several lines become one. The parents are this line's head, then the branches' heads in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// What becomes of the context.
    pub how: Manner,
    /// The heads taken in, in the order of the parents.
    pub branches: Vec<Branch>,
    /// The youngest record that all of them stand on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Reference>,
    /// What this line did not have before: runs of records, each of one session.
    pub brought: Vec<Run>,
    /// What the brought records used, counted once.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// What became of the files, where a line has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<MergedFiles>,
}

/// What a merge does with the context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Manner {
    /// One line's context stays.
    Keep {
        /// Whose.
        chosen: SessionId,
    },
    /// Each branch's new items follow this line's own.
    Append,
    /// As append; then a workflow writes the result and the branch parts are compressed.
    Synthesize,
    /// This line's context stays; files and usage come together. For branches whose answer is said otherwise.
    TakeIn,
    /// A way of a later version. The line's own context stays, as it does behind an erased merge.
    #[serde(untagged, deserialize_with = "unknown_manner")]
    Unknown(UnknownValue),
}

fn unknown_manner<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "type", &["keep", "append", "synthesize", "take_in"])
}

/// A line that was taken in. The id of its head is the record's parent at the same place, behind the line's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// The session.
    pub session: SessionId,
    /// Its head's seq.
    pub seq: u64,
    /// The head's generation.
    pub generation: u64,
    /// Why it was forked, for the marker in the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether its files were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_files: bool,
}

impl Branch {
    /// The head.
    pub fn head(&self) -> Point {
        Point { session: self.session, seq: self.seq }
    }
}

/// Records `from..=to` of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The session.
    pub session: SessionId,
    /// First.
    pub from: u64,
    /// Last.
    pub to: u64,
    /// The generation of the first: nothing older is new.
    pub generation: u64,
}

impl Run {
    /// Whether `point` lies in this run.
    pub fn contains(&self, point: &Point) -> bool {
        self.session == point.session && (self.from..=self.to).contains(&point.seq)
    }
}

impl Body for Merged {
    const KIND: Kind = Kind::Merged;
    fn summary(&self, on: SessionId) -> String {
        let branches: Vec<_> = self.branches.iter().map(|branch| branch.head().to_string()).collect();
        let branches = branches.join(", ");
        match &self.how {
            Manner::Append => format!("{branches} appended"),
            Manner::Synthesize => format!("{branches} to be made one"),
            Manner::TakeIn => format!("{branches} taken in"),
            Manner::Unknown(how) => format!("{branches} ({how})"),
            Manner::Keep { chosen } if *chosen == on => format!("kept this line over {branches}"),
            Manner::Keep { chosen } => format!("kept {} of {branches}", chosen.short()),
        }
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.usage += self.usage;
        if let Some(files) = &self.files {
            state.workspace = Some(files.workspace.clone());
            state.conflicts.clone_from(&files.conflicts);
        }
    }
}
