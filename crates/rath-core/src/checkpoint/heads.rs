//! The last record of every session, as a text that can be hashed and looked through.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::id::{Digest, Point, RecordId, SessionId};
use crate::store::Row;

/// The media type of the text.
pub const HEADS: &str = "text/vnd.rath.heads";

/// The head of every session: a line `SESSION SEQ ID` each, sorted by session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heads(BTreeMap<SessionId, (u64, RecordId)>);

impl Heads {
    /// Those of a store, listed at one moment.
    pub fn of(rows: &[Row]) -> Self {
        Self(rows.iter().map(|row| (row.id, (row.seq, row.head))).collect())
    }

    /// A session's head moves on.
    pub fn set(&mut self, point: Point, id: RecordId) {
        self.0.insert(point.session, (point.seq, id));
    }

    /// Each with its place.
    pub fn iter(&self) -> impl Iterator<Item = (Point, RecordId)> {
        self.0.iter().map(|(&session, &(seq, id))| (Point { session, seq }, id))
    }

    /// Sessions.
    pub fn sessions(&self) -> u64 {
        self.0.len() as u64
    }

    /// Records up to them all.
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

    /// The digest of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text().as_bytes())
    }

    /// Reads the text, if it is one in its only form.
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
