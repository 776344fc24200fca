//! The list of all session heads, as a text that can be hashed and searched.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::id::{Digest, Point, RecordId, SessionId};
use crate::store::SessionInfo;

/// The media type of the list.
pub const HEADS: &str = "text/vnd.rath.heads";

/// The heads of all sessions. The text has one line `SESSION SEQ ID` per session, sorted by session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heads(BTreeMap<SessionId, (u64, RecordId)>);

impl Heads {
    /// The heads of these sessions. To describe a store, they must come from one query.
    pub fn of(rows: &[SessionInfo]) -> Self {
        Self(rows.iter().map(|row| (row.id, (row.seq, row.head))).collect())
    }

    /// Sets the head of a session.
    pub fn set(&mut self, point: Point, id: RecordId) {
        self.0.insert(point.session, (point.seq, id));
    }

    /// The heads, as pairs of point and id.
    pub fn iter(&self) -> impl Iterator<Item = (Point, RecordId)> {
        self.0.iter().map(|(&session, &(seq, id))| (Point { session, seq }, id))
    }

    /// The number of sessions.
    pub fn sessions(&self) -> u64 {
        self.0.len() as u64
    }

    /// The number of records in all sessions.
    pub fn records(&self) -> u64 {
        self.0.values().map(|(seq, _)| seq + 1).sum()
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.0.len() * 110);
        for (session, (seq, id)) in &self.0 {
            let _ = writeln!(text, "{session} {seq} {id}");
        }
        text
    }

    /// The SHA-256 of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text().as_bytes())
    }

    /// Parses the text; `None` when it is not in the exact form of [`text`](Self::text).
    pub fn parse(text: &str) -> Option<Self> {
        let mut heads = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (session, seq, id) = (words.next()?, words.next()?, words.next()?);
            heads.0.insert(session.parse().ok()?, (seq.parse().ok()?, id.parse().ok()?));
        }
        (heads.text() == text).then_some(heads)
    }
}
