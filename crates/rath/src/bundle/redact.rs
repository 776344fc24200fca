//! What an export leaves out.

use std::collections::{BTreeSet, HashMap};

use rath_core::{Digest, Kind, Point, Record};

use crate::needle::Needle;

/// Rules for what is left out. The chain stays whole: headers are never left out.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// Bodies of these kinds.
    pub kinds: Vec<Kind>,
    /// Bodies of these records.
    pub records: BTreeSet<Point>,
    /// Bodies and blobs that hold one of these texts, in capitals or not.
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

/// So much of a part is looked at again with the next one: room for white space and escapes of escapes.
const CARRIED: usize = 64 << 10;

/// Looks for texts in blobs that come in parts, each blob once.
pub(super) struct Finder {
    needles: Vec<Needle>,
    found: HashMap<Digest, bool>,
    longest: usize,
    carried: Vec<u8>,
    hit: bool,
}

impl Finder {
    pub(super) fn new(redaction: &Redaction) -> Self {
        let needles: Vec<Needle> = redaction.needles().collect();
        let longest = needles.iter().map(Needle::longest).max().unwrap_or(0).max(CARRIED);
        Self { needles, found: HashMap::new(), longest, carried: Vec::new(), hit: false }
    }

    /// What was found in a blob that was looked at before.
    pub(super) fn known(&self, digest: &Digest) -> Option<bool> {
        if self.needles.is_empty() { Some(false) } else { self.found.get(digest).copied() }
    }

    /// The next part of a blob.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.carried.extend_from_slice(bytes);
        self.hit = self.hit || self.needles.iter().any(|needle| needle.in_content(&self.carried));
        // A text may stand across two parts.
        let keep = self.carried.len().min(self.longest);
        self.carried.drain(..self.carried.len() - keep);
    }

    /// The end of a blob: whether it holds a text.
    pub(super) fn end(&mut self, digest: Digest) -> bool {
        self.carried.clear();
        let hit = std::mem::take(&mut self.hit);
        self.found.insert(digest, hit);
        hit
    }
}
