//! Replays of recorded work and their results.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A range of records was replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The session that was replayed.
    pub session: SessionId,
    /// The sequence number of the first record.
    pub from: u64,
    /// The sequence number of the last record.
    pub to: u64,
    /// The mode of the replay.
    pub mode: ReplayMode,
    /// The result.
    pub verdict: ReplayVerdict,
    /// The first difference between the records and the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<ReplayDivergence>,
}

/// The first difference between the records and the replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayDivergence {
    /// The record that differs.
    pub at: Point,
    /// What the record contains.
    pub recorded: Content,
    /// What the replay did instead.
    pub replayed: Content,
}

open_enum! {
    /// How records are replayed.
    pub enum ReplayMode {
        /// With recorded answers and without tools, to check that the code still makes the same requests.
        Check = "check",
        /// With recorded answers and with real tools in a new sandbox.
        Reexecute = "reexecute",
        /// With live models and tools, and with something changed.
        WhatIf = "what_if",
    }
}

open_enum! {
    /// The result of a replay. A value that this version does not know does not count as a match.
    pub enum ReplayVerdict {
        /// The replay matches the records.
        Same = "same",
        /// The replay differs from the records.
        Diverged = "diverged",
        /// The replay did not finish.
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
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        if let Some(diverged) = &mut self.diverged {
            each(&mut diverged.recorded);
            each(&mut diverged.replayed);
        }
    }
}
