//! What an export leaves out.

use std::collections::{BTreeSet, HashMap};

use rath_core::{Digest, Kind, Point, Record};

use crate::needle::{Needle, Reader};

/// Rules for what is left out. The chain stays whole: headers are never left out.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// Bodies of these kinds.
    pub kinds: Vec<Kind>,
    /// Bodies of these records, each of which must be in the bundle.
    pub records: BTreeSet<Point>,
    /// Bodies and blobs that hold one of these texts, however it is written.
    pub texts: Vec<String>,
    /// All blobs.
    pub no_blobs: bool,
    /// Versions of files, with everything in them.
    pub no_files: bool,
    /// The reason, for who reads the bundle.
    pub because: Option<String>,
}

impl Redaction {
    /// The rule by which a body is left out.
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
        self.needles().any(|needle| needle.in_body(body)).then_some("text")
    }

    /// Whether it leaves out some records, and not others.
    pub(super) fn picks_records(&self) -> bool {
        !(self.kinds.is_empty() && self.records.is_empty() && self.texts.is_empty())
    }

    fn needles(&self) -> impl Iterator<Item = Needle> {
        self.texts.iter().map(|text| Needle::new(text))
    }
}

/// Looks for texts in blobs that come in parts, each blob once.
pub(super) struct Finder {
    reader: Reader,
    found: HashMap<Digest, bool>,
}

impl Finder {
    pub(super) fn new(redaction: &Redaction) -> Self {
        Self { reader: Reader::new(redaction.needles().collect()), found: HashMap::new() }
    }

    /// What was found in a blob that was looked at before.
    pub(super) fn known(&self, digest: &Digest) -> Option<bool> {
        if self.reader.is_idle() { Some(false) } else { self.found.get(digest).copied() }
    }

    /// The next part of a blob.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.reader.part(bytes);
    }

    /// The end of a blob: whether it holds a text.
    pub(super) fn end(&mut self, digest: Digest) -> bool {
        let hit = self.reader.end();
        self.found.insert(digest, hit);
        hit
    }
}
