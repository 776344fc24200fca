//! Deliberate erasure.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

/// Record bodies were destroyed or whole sessions removed. The record is written to the store's operator session before
/// anything is destroyed. After a crash in between, the erasure is finished under the same name. The record never
/// repeats what the bodies contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    /// The name of the erasure.
    pub erasure: String,
    /// The reason.
    pub why: String,
    /// The retention rule that caused it; absent when a person chose the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Records that lost salt and body and keep their headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<ErasedRange>,
    /// Sessions that were removed whole. No remaining session is based on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<RemovedSession>,
    /// How many waiting messages were removed from inboxes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub posts: u64,
    /// How many blobs were removed because no other record names them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blobs: u64,
}

/// Records `from..=to` of a session, whose bodies are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedRange {
    /// The session that contains the records.
    pub session: SessionId,
    /// The first sequence number.
    pub from: u64,
    /// The last sequence number.
    pub to: u64,
}

/// A session that was removed whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSession {
    /// The id of the removed session.
    pub session: SessionId,
    /// The id of its last record.
    pub head: RecordId,
    /// The number of its records.
    pub records: u64,
}

impl Erased {
    /// Whether the erasure destroyed the body of the record at `point`.
    pub fn covers(&self, point: Point) -> bool {
        self.sessions.iter().any(|gone| gone.session == point.session)
            || self
                .records
                .iter()
                .any(|gone| gone.session == point.session && (gone.from..=gone.to).contains(&point.seq))
    }
}

impl ErasedRange {
    /// Joins sorted points into ranges.
    pub fn stretches(points: impl IntoIterator<Item = Point>) -> Vec<Self> {
        let mut stretches: Vec<Self> = Vec::new();
        points.into_iter().for_each(|point| Self::extend(&mut stretches, point));
        stretches
    }

    /// Adds the next point to the ranges.
    pub fn extend(stretches: &mut Vec<Self>, Point { session, seq }: Point) {
        match stretches.last_mut() {
            Some(last) if last.session == session && last.to + 1 == seq => last.to = seq,
            _ => stretches.push(Self { session, from: seq, to: seq }),
        }
    }

    /// The points in the range.
    pub fn points(self) -> impl Iterator<Item = Point> {
        (self.from..=self.to).map(move |seq| Point { session: self.session, seq })
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Body for Erased {
    const KIND: Kind = Kind::Erased;
    fn summary(&self, _: SessionId) -> String {
        let records: u64 = self.records.iter().map(|gone| gone.to - gone.from + 1).sum();
        let mut what = Vec::new();
        if records > 0 {
            what.push(counted(records, "record"));
        }
        if !self.sessions.is_empty() {
            what.push(format!("{} whole", counted(self.sessions.len() as u64, "session")));
        }
        if self.posts > 0 {
            what.push(counted(self.posts, "waiting message"));
        }
        let rule = self.rule.as_ref().map(|rule| format!(" by {rule}")).unwrap_or_default();
        join(&format!("{}{rule}", what.join(", ")), &format!("({})", self.why))
    }
}
