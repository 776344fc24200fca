//! Who names a blob. Bodies are searched for digests as text, and only those that have one of the wanted are read.

use std::collections::{HashMap, HashSet};

use memchr::memmem::Finder;
use rath_core::files::{TREE, Tree};
use rath_core::store::{Error, Result};
use rath_core::{BlobRef, Digest, Fault, Malformed, Point, SessionId, blob_references};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::places::Places;
use super::{Destroyed, Doom, Kept};
use crate::embedded::schema::sql;
use crate::embedded::{Embedded, blobs, garbage, lines};
use crate::packs::Held;
use crate::segment::{self, Slots};

/// The most that is held at once of what is read; a joined content is longer.
const JOINED_ABOVE: i64 = 1 << 20;

/// What names the wanted blobs, besides what is doomed.
pub(super) struct Namers<'a> {
    wanted: &'a HashSet<Digest>,
    doom: &'a Doom,
    places: &'a Places,
    named: HashMap<Digest, Vec<Point>>,
    /// Trees that something living names.
    roots: HashSet<Digest>,
    /// The last segment that was looked at.
    cursor: i64,
    seen: u64,
    digest: Finder<'static>,
    tree: Finder<'static>,
    escape: Finder<'static>,
}

impl<'a> Namers<'a> {
    pub(super) fn new(wanted: &'a HashSet<Digest>, doom: &'a Doom, places: &'a Places) -> Self {
        Self {
            wanted,
            doom,
            places,
            named: HashMap::new(),
            roots: HashSet::new(),
            cursor: 0,
            seen: 0,
            digest: Finder::new("\"digest\""),
            tree: Finder::new(TREE),
            escape: Finder::new("\\u"),
        }
    }

    /// Looks at the records since the last time.
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
            let Some(id) = row.get(3).map_err(sql)? else { return Err(lines::unlisted(self.cursor)) };
            let session = SessionId(uuid::Uuid::from_bytes(id));
            let data = segment::unfold(row.get_ref(2).and_then(|data| Ok(data.as_blob()?)).map_err(sql)?);
            let names_none = self.digest.find(&data).is_none() && self.escape.find(&data).is_none();
            for (i, slot) in Slots::of(&data).enumerate() {
                let point = Point { session, seq: first_seq + i as u64 };
                // What a torn segment names is not known: then nothing may go.
                let torn = |torn: crate::segment::Torn| Error::Tampered {
                    point,
                    why: Fault::Header(Malformed::NotAHeader(torn.to_string())),
                };
                let slot = slot.map_err(torn)?;
                self.seen += 1;
                if let Some((_, body)) = slot.body.filter(|_| !names_none && !self.doom.covers(point)) {
                    self.look(&data[body.start as usize..body.end as usize], point);
                }
            }
            progress(self.seen);
        }
        self.read_snapshots(db)?;
        self.read_workspaces(store)
    }

    fn look(&mut self, body: &[u8], at: Point) {
        let escaped = self.escape.find(body).is_some();
        let worth_reading = escaped
            || self.tree.find(body).is_some()
            || self.digest.find_iter(body).any(|key| match digest_behind(&body[key + 8..]) {
                Some(digest) => self.wanted.contains(&digest),
                // Spelled otherwise than we do: read it.
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

    /// A folded state may be all that names a session's files, once the record that did is erased.
    fn read_snapshots(&mut self, db: &Connection) -> Result<()> {
        let query = "SELECT s.id, n.state FROM snapshots n JOIN sessions s ON s.no = n.session";
        let mut query = db.prepare(query).map_err(sql)?;
        let mut rows = query.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let session = SessionId(uuid::Uuid::from_bytes(row.get(0).map_err(sql)?));
            let state = row.get_ref(1).and_then(|state| Ok(state.as_blob()?)).map_err(sql)?;
            if !self.doom.whole.contains(&session) {
                blob_references(state).iter().for_each(|blob| self.name(blob, None));
            }
        }
        Ok(())
    }

    /// What workspaces are about to need.
    fn read_workspaces(&mut self, store: &Embedded) -> Result<()> {
        for blob in garbage::remembered(&store.paths.root, &|path| self.places.cover(path))? {
            self.name(&blob, None);
        }
        Ok(())
    }

    /// Walks every living tree, and the pieces of every living content that has some.
    pub(super) fn walk(&mut self, store: &Embedded, db: &Connection) -> Result<()> {
        if self.wanted.len() == self.named.len() {
            return Ok(());
        }
        let mut open: Vec<Digest> = self.roots.iter().copied().collect();
        let mut seen: HashSet<Digest> = self.roots.clone();
        while let Some(digest) = open.pop() {
            let bytes = match blobs::held(db, &store.paths.packs, &digest)? {
                Some(Held::Bytes(bytes)) => bytes,
                Some(Held::Pieces(_)) => {
                    blobs::get(db, &store.paths.packs, &digest)?.map(|bytes| bytes.to_vec()).unwrap_or_default()
                }
                // Lost already: `verify` says so.
                None => continue,
            };
            // A damaged tree hides what is below it: then nothing may go.
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
        // A joined content takes forty bytes for each of its pieces, and is never short.
        let query = "SELECT digest FROM blobs WHERE bytes > ?1 AND stored < bytes / 100 AND (stored - 53) % 40 = 0";
        let mut query = db.prepare(query).map_err(sql)?;
        let rows = query.query_map([JOINED_ABOVE], |row| Ok(Digest(row.get(0)?))).map_err(sql)?;
        for digest in rows {
            let digest = digest.map_err(sql)?;
            if self.wanted.contains(&digest) && !self.named.contains_key(&digest) {
                continue;
            }
            if let Some(Held::Pieces(pieces)) = blobs::held(db, &store.paths.packs, &digest)? {
                for piece in pieces.into_iter().filter(|piece| self.wanted.contains(&piece.digest)) {
                    self.named.entry(piece.digest).or_default();
                }
            }
        }
        Ok(())
    }

    /// Who names what.
    pub(super) fn into_named(self) -> HashMap<Digest, Vec<Point>> {
        self.named
    }

    /// Which of the wanted go, and which stay for whom.
    pub(super) fn sentence(&self, db: &Connection, destroyed: &mut Destroyed) -> Result<Vec<Digest>> {
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
                    destroyed.kept.push(Kept { digest: *digest, bytes: bytes as u64, named_by });
                }
                None => {
                    destroyed.blobs += 1;
                    destroyed.blob_bytes += stored as u64;
                    dead.push(*digest);
                }
            }
        }
        destroyed.kept.sort_by_key(|kept| kept.digest);
        Ok(dead)
    }
}

/// The digest that follows its key, spelled as we spell it.
fn digest_behind(text: &[u8]) -> Option<Digest> {
    let hex = text.strip_prefix(b":\"")?.get(..64)?;
    std::str::from_utf8(hex).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_as_bodies_spell_it() {
        let blob = rath_core::Blob::new(b"x".to_vec(), "text/plain").reference;
        let body = serde_json::to_vec(&blob).unwrap();
        let key = memchr::memmem::find(&body, b"\"digest\"").unwrap();
        assert_eq!(digest_behind(&body[key + 8..]), Some(blob.digest));
        assert_eq!(digest_behind(b" : \"ab\""), None);
    }
}
