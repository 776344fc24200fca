//! What an export leaves out.

use std::collections::{BTreeSet, HashMap};

use rath_core::{Digest, Kind, Point, Record};
use serde_json::Value;

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
        // Text may be written with escapes: what counts is what a reader of the JSON sees.
        let value: Value = serde_json::from_slice(body).ok()?;
        self.says(&value).then_some("text")
    }

    fn says(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.holds(text),
            Value::Array(items) => items.iter().any(|item| self.says(item)),
            Value::Object(fields) => fields.iter().any(|(name, value)| self.holds(name) || self.says(value)),
            _ => false,
        }
    }

    fn holds(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.texts.iter().any(|wanted| text.contains(&wanted.to_lowercase()))
    }
}

/// Looks for texts in blobs that come in parts, each blob once.
pub(super) struct Finder<'a> {
    redaction: &'a Redaction,
    found: HashMap<Digest, bool>,
    longest: usize,
    carried: Vec<u8>,
    hit: bool,
}

impl<'a> Finder<'a> {
    pub(super) fn new(redaction: &'a Redaction) -> Self {
        let longest = redaction.texts.iter().map(String::len).max().unwrap_or(0);
        Self { redaction, found: HashMap::new(), longest, carried: Vec::new(), hit: false }
    }

    /// What was found in a blob that was looked at before.
    pub(super) fn known(&self, digest: &Digest) -> Option<bool> {
        if self.redaction.texts.is_empty() { Some(false) } else { self.found.get(digest).copied() }
    }

    /// The next part of a blob.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.carried.extend_from_slice(bytes);
        self.hit = self.hit || self.redaction.holds(&String::from_utf8_lossy(&self.carried));
        // A text may stand across two parts. In capitals it may be a little longer.
        let keep = self.carried.len().min(2 * self.longest + 8);
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
