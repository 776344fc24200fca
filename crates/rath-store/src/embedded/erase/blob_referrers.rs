//! Finds what refers to given blobs. Bodies are searched for digests as text first, and only bodies with a wanted
//! digest are parsed.

use std::collections::{HashMap, HashSet};

use memchr::memmem::Finder;
use rath_core::files::{TREE, Tree};
use rath_core::store::{Error, Result};
use rath_core::{BlobRef, Digest, Malformed, Point, RecordError, SessionId, blob_references};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::workspaces::ErasedWorkspaces;
use super::{EraseReport, EraseSet, KeptBlob};
use crate::embedded::schema::sql;
use crate::embedded::{Embedded, blobs, garbage, integrity};
use crate::packs::BlobContent;
use crate::segment::{self, SegmentEntries};

/// Only blobs longer than this, in bytes, are joined from pieces.
const JOINED_ABOVE: i64 = 1 << 20;

/// The references to the wanted blobs, except those from records that are erased.
pub(super) struct BlobReferrers<'a> {
    wanted: &'a HashSet<Digest>,
    set: &'a EraseSet,
    workspaces: &'a ErasedWorkspaces,
    named: HashMap<Digest, Vec<Point>>,
    /// Trees that remaining records, snapshots or workspaces refer to.
    roots: HashSet<Digest>,
    /// The number of the last segment that was read.
    cursor: i64,
    seen: u64,
    digest: Finder<'static>,
    tree: Finder<'static>,
    escape: Finder<'static>,
}

impl<'a> BlobReferrers<'a> {
    pub(super) fn new(wanted: &'a HashSet<Digest>, set: &'a EraseSet, workspaces: &'a ErasedWorkspaces) -> Self {
        Self {
            wanted,
            set,
            workspaces,
            named: HashMap::new(),
            roots: HashSet::new(),
            cursor: 0,
            seen: 0,
            digest: Finder::new("\"digest\""),
            tree: Finder::new(TREE),
            escape: Finder::new("\\u"),
        }
    }

    /// Reads the records that were committed since the last call, and all snapshots and workspaces.
    pub(super) fn read(&mut self, store: &Embedded, db: &Connection, progress: &mut dyn FnMut(u64)) -> Result<()> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let query =
            "SELECT g.cursor, g.first_seq, g.data, s.id FROM segments g LEFT JOIN sessions s ON s.no = g.session
            WHERE g.cursor > ?1 ORDER BY g.cursor";
        let mut query = db.prepare(query).map_err(sql)?;
        let mut rows = query.query([self.cursor]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            self.cursor = row.get(0).map_err(sql)?;
            let first_seq = row.get::<_, i64>(1).map_err(sql)? as u64;
            let Some(id) = row.get(3).map_err(sql)? else { return Err(integrity::missing_session(self.cursor)) };
            let session = SessionId(uuid::Uuid::from_bytes(id));
            let data = segment::decompress(row.get_ref(2).and_then(|data| Ok(data.as_blob()?)).map_err(sql)?);
            let names_none = self.digest.find(&data).is_none() && self.escape.find(&data).is_none();
            for (i, entry) in SegmentEntries::of(&data).enumerate() {
                let point = Point { session, seq: first_seq + i as u64 };
                // The references of a truncated segment are unknown, so nothing may be removed.
                let truncated = |truncated: crate::segment::TruncatedSegment| Error::Tampered {
                    point,
                    why: RecordError::Header(Malformed::NotAHeader(truncated.to_string())),
                };
                let entry = entry.map_err(truncated)?;
                self.seen += 1;
                if let Some((_, body)) = entry.body.filter(|_| !names_none && !self.set.covers(point)) {
                    self.search(&data[body.start as usize..body.end as usize], point);
                }
            }
            progress(self.seen);
        }
        self.read_snapshots(db)?;
        self.read_workspaces(store)
    }

    fn search(&mut self, body: &[u8], at: Point) {
        let escaped = self.escape.find(body).is_some();
        let worth_reading = escaped
            || self.tree.find(body).is_some()
            || self.digest.find_iter(body).any(|key| match digest_after_key(&body[key + 8..]) {
                Some(digest) => self.wanted.contains(&digest),
                // Another spelling of the JSON than ours, so it is parsed.
                None => true,
            });
        if worth_reading {
            blob_references(body).iter().for_each(|blob| self.name(blob, Some(at)));
        }
    }

    fn name(&mut self, blob: &BlobRef, by: Option<Point>) {
        if blob.media_type == TREE {
            self.roots.insert(blob.digest);
        }
        if self.wanted.contains(&blob.digest) {
            self.named.entry(blob.digest).or_default().extend(by);
        }
    }

    /// Reads the references of snapshots. A snapshot may have the only reference to a session's files if their record
    /// was erased.
    fn read_snapshots(&mut self, db: &Connection) -> Result<()> {
        let query = "SELECT s.id, n.state FROM snapshots n JOIN sessions s ON s.no = n.session";
        let mut query = db.prepare(query).map_err(sql)?;
        let mut rows = query.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let session = SessionId(uuid::Uuid::from_bytes(row.get(0).map_err(sql)?));
            let state = row.get_ref(1).and_then(|state| Ok(state.as_blob()?)).map_err(sql)?;
            if !self.set.emptied.contains(&session) {
                blob_references(state).iter().for_each(|blob| self.name(blob, None));
            }
        }
        Ok(())
    }

    /// Reads the references of workspaces.
    fn read_workspaces(&mut self, store: &Embedded) -> Result<()> {
        for blob in garbage::workspace_blobs(&store.paths.root, &|path| self.workspaces.contain(path))? {
            self.name(&blob, None);
        }
        Ok(())
    }

    /// Walks all remaining trees and joined blobs for references to wanted blobs.
    pub(super) fn walk(&mut self, store: &Embedded, db: &Connection) -> Result<()> {
        if self.wanted.len() == self.named.len() {
            return Ok(());
        }
        let mut open: Vec<Digest> = self.roots.iter().copied().collect();
        let mut seen: HashSet<Digest> = self.roots.clone();
        while let Some(digest) = open.pop() {
            let bytes = match blobs::content(db, &store.paths.packs, &digest)? {
                Some(BlobContent::Bytes(bytes)) => bytes,
                Some(BlobContent::Pieces(_)) => {
                    blobs::get(db, &store.paths.packs, &digest)?.map(|bytes| bytes.to_vec()).unwrap_or_default()
                }
                // A missing tree; `verify` reports it.
                None => continue,
            };
            // The entries of a damaged tree are unknown, so nothing may be removed.
            let tree = Tree::decode(&bytes).map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
            for entry in tree.entries {
                let below = entry.node.sha256;
                if self.wanted.contains(&below) {
                    self.named.entry(below).or_default();
                }
                if entry.node.is_directory() && seen.insert(below) {
                    open.push(below);
                }
            }
        }
        self.walk_joined(store, db)
    }

    fn walk_joined(&mut self, store: &Embedded, db: &Connection) -> Result<()> {
        // The entry of a joined blob has 40 bytes for each piece after a header of 53 bytes.
        let query = "SELECT digest FROM blobs WHERE bytes > ?1 AND stored < bytes / 100 AND (stored - 53) % 40 = 0";
        let mut query = db.prepare(query).map_err(sql)?;
        let rows = query.query_map([JOINED_ABOVE], |row| Ok(Digest(row.get(0)?))).map_err(sql)?;
        for digest in rows {
            let digest = digest.map_err(sql)?;
            if self.wanted.contains(&digest) && !self.named.contains_key(&digest) {
                continue;
            }
            if let Some(BlobContent::Pieces(pieces)) = blobs::content(db, &store.paths.packs, &digest)? {
                for piece in pieces.into_iter().filter(|piece| self.wanted.contains(&piece.digest)) {
                    self.named.entry(piece.digest).or_default();
                }
            }
        }
        Ok(())
    }

    /// The records that refer to each wanted blob.
    pub(super) fn into_named(self) -> HashMap<Digest, Vec<Point>> {
        self.named
    }

    /// Splits the wanted blobs: returns those without a reference, and adds the others to `report.kept`.
    pub(super) fn partition(&self, db: &Connection, report: &mut EraseReport) -> Result<Vec<Digest>> {
        let mut size = db.prepare("SELECT bytes, stored FROM blobs WHERE digest = ?1").map_err(sql)?;
        let mut dead = Vec::new();
        for digest in self.wanted {
            let found = size
                .query_row(params![digest.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
                .optional()
                .map_err(sql)?;
            let Some((bytes, stored)) = found else { continue };
            match self.named.get(digest) {
                Some(named_by) => {
                    let mut named_by = named_by.clone();
                    named_by.sort_unstable();
                    named_by.dedup();
                    report.kept.push(KeptBlob { digest: *digest, bytes: bytes as u64, named_by });
                }
                None => {
                    report.blobs += 1;
                    report.blob_bytes += stored as u64;
                    dead.push(*digest);
                }
            }
        }
        report.kept.sort_by_key(|kept| kept.digest);
        Ok(dead)
    }
}

/// The digest after its key, in the spelling that we write: `:"<hex>"`.
fn digest_after_key(text: &[u8]) -> Option<Digest> {
    let hex = text.strip_prefix(b":\"")?.get(..64)?;
    std::str::from_utf8(hex).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_in_the_spelling_of_bodies() {
        let blob = rath_core::Blob::new(b"x".to_vec(), "text/plain").reference;
        let body = serde_json::to_vec(&blob).unwrap();
        let key = memchr::memmem::find(&body, b"\"digest\"").unwrap();
        assert_eq!(digest_after_key(&body[key + 8..]), Some(blob.digest));
        assert_eq!(digest_after_key(b" : \"ab\""), None);
    }
}
