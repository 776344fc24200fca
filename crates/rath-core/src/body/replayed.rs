//! A replay of recorded work, and what it showed.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// Records were replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The session that was replayed.
    pub session: SessionId,
    /// The first record.
    pub from: u64,
    /// The last record.
    pub to: u64,
    /// How.
    pub mode: ReplayMode,
    /// What it showed.
    pub verdict: ReplayVerdict,
    /// Where the two first differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<ReplayDivergence>,
}

/// The first difference between what is recorded and what the replay did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayDivergence {
    /// The recorded side's record.
    pub at: Point,
    /// What is recorded.
    pub recorded: Content,
    /// What the replay did.
    pub replayed: Content,
}

open_enum! {
    /// How records are replayed.
    pub enum ReplayMode {
        /// With recorded answers and no tools: does the code still make the same requests?
        Check = "check",
        /// With recorded answers and real tools in a fresh sandbox.
        Reexecute = "reexecute",
        /// Live, with something changed.
        WhatIf = "what_if",
    }
}

open_enum! {
    /// What a replay showed. A verdict that this version does not know is not a match.
    pub enum ReplayVerdict {
        /// The same as is recorded.
        Same = "same",
        /// Something else.
        Diverged = "diverged",
        /// It did not come to its end.
        Incomplete = "incomplete",
    }
}

impl Body for Replayed {
    const KIND: Kind = Kind::Replayed;
    fn summary(&self, _: SessionId) -> String {
        let range = format!("{}@{} to {}: {} {}", self.session.short(), self.from, self.to, self.mode, self.verdict);
        let diverged = self.diverged.as_ref().map(|diverged| {
            format!("at {}: {} was recorded, the replay did {}", diverged.at, diverged.recorded, diverged.replayed)
        });
        join(&range, &diverged.unwrap_or_default())
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        if let Some(diverged) = &mut self.diverged {
            each(&mut diverged.recorded);
            each(&mut diverged.replayed);
        }
    }
}
