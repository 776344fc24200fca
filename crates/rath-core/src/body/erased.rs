//! What was destroyed on purpose.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

/// Bodies were destroyed, or whole sessions removed. Stands on the store's operator session before anything goes; a
/// crash in between is finished under the same name. Never says what the bodies said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    /// Names the erasure.
    pub erasure: String,
    /// The reason.
    pub why: String,
    /// The rule of retention by which it went; absent when a person chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Records that keep their headers and lose salt and body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Stripped>,
    /// Sessions that went whole. Nothing in the store stands on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Removed>,
    /// How many messages went that waited in inboxes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub posts: u64,
    /// How many blobs nothing else names.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blobs: u64,
}

/// Records `from..=to` of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripped {
    /// The session.
    pub session: SessionId,
    /// First.
    pub from: u64,
    /// Last.
    pub to: u64,
}

/// A session that went whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The session.
    pub session: SessionId,
    /// Its last record.
    pub head: RecordId,
    /// How many records it had.
    pub records: u64,
}

impl Erased {
    /// Whether it destroyed the body at `point`.
    pub fn covers(&self, point: Point) -> bool {
        self.sessions.iter().any(|gone| gone.session == point.session)
            || self
                .records
                .iter()
                .any(|gone| gone.session == point.session && (gone.from..=gone.to).contains(&point.seq))
    }
}

impl Stripped {
    /// Points in order, as stretches.
    pub fn stretches(points: impl IntoIterator<Item = Point>) -> Vec<Self> {
        let mut stretches: Vec<Self> = Vec::new();
        points.into_iter().for_each(|point| Self::extend(&mut stretches, point));
        stretches
    }

    /// Adds the next point to some stretches.
    pub fn extend(stretches: &mut Vec<Self>, Point { session, seq }: Point) {
        match stretches.last_mut() {
            Some(last) if last.session == session && last.to + 1 == seq => last.to = seq,
            _ => stretches.push(Self { session, from: seq, to: seq }),
        }
    }

    /// The records in it.
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
