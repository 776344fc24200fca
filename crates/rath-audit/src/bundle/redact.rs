//! What an export omits.

use std::collections::{BTreeSet, HashMap};

use rath_core::{Digest, Kind, Point, Record};

use crate::text_pattern::{StreamMatcher, TextPattern};

/// Rules for what an export omits. Headers are never omitted, so the hash chain stays complete.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// Omit the bodies of records of these kinds.
    pub kinds: Vec<Kind>,
    /// Omit the bodies of these records. Each of them must be in the bundle.
    pub records: BTreeSet<Point>,
    /// Omit bodies and blobs that contain one of these texts, in any case, with any white space, escapes and Unicode
    /// form.
    pub texts: Vec<String>,
    /// Omit all blobs.
    pub no_blobs: bool,
    /// Omit all versions of files and their contents.
    pub no_files: bool,
    /// The reason for the reader of the bundle.
    pub reason: Option<String>,
}

impl Redaction {
    /// The rule by which the body of a record is omitted.
    pub(super) fn rule(&self, record: &Record) -> Option<&'static str> {
        let body = record.body_bytes()?;
        if self.records.contains(&record.point()) {
            return Some("record");
        }
        if self.kinds.contains(record.kind()) {
            return Some("kind");
        }
        if self.texts.is_empty() {
            return None;
        }
        self.patterns().any(|pattern| pattern.in_body(body)).then_some("text")
    }

    /// Whether some records are omitted and others are not.
    pub(super) fn picks_records(&self) -> bool {
        !(self.kinds.is_empty() && self.records.is_empty() && self.texts.is_empty())
    }

    fn patterns(&self) -> impl Iterator<Item = TextPattern> {
        self.texts.iter().map(|text| TextPattern::new(text))
    }
}

/// Searches blobs for texts, part by part, each blob once.
pub(super) struct Finder {
    reader: StreamMatcher,
    found: HashMap<Digest, bool>,
}

impl Finder {
    pub(super) fn new(redaction: &Redaction) -> Self {
        Self { reader: StreamMatcher::new(redaction.patterns().collect()), found: HashMap::new() }
    }

    /// The result for a blob that was searched before.
    pub(super) fn known(&self, digest: &Digest) -> Option<bool> {
        if self.reader.is_idle() { Some(false) } else { self.found.get(digest).copied() }
    }

    /// Searches the next part of a blob.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.reader.part(bytes);
    }

    /// Ends a blob. Returns whether it contains one of the texts.
    pub(super) fn end(&mut self, digest: Digest) -> bool {
        let hit = self.reader.end();
        self.found.insert(digest, hit);
        hit
    }
}
