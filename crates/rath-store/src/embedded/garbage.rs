//! Garbage collection: removes the blobs that no record refers to. It marks the reachable blobs from all records and
//! sweeps the rest.
//!
//! It does not run while a process saves files (`Blobs::gc_guard`), because between a save and the record with its
//! version nothing refers to the new blobs. The first mark phase runs without the write lock. Records that were
//! committed since are marked under the write lock, before the sweep.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rath_core::files::{TREE, Tree, Version};
use rath_core::store::{Cursor, Error, Result, Scan};
use rath_core::{BlobRef, Digest, blob_references};
use rath_workspace::durable::FileLock;
use rath_workspace::forget_index;
use rusqlite::{Connection, params};
use serde::Serialize;

use super::schema::sql;
use super::{Embedded, blobs, inline_blobs, integrity, read, vacuum};
use crate::packs::{self, BlobContent, PackWriter, Place};

/// A pack is rewritten if the fraction of its bytes that is live is less than this.
const MIN_LIVE: f64 = 0.7;

/// The result of a garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// The number of reachable blobs.
    pub live: u64,
    /// The stored bytes of the reachable blobs.
    pub live_bytes: u64,
    /// The part of `live_bytes` that belongs to versions: trees and contents of files.
    pub version_bytes: u64,
    /// The number of unreachable blobs.
    pub dead: u64,
    /// The stored bytes of the unreachable blobs.
    pub dead_bytes: u64,
    /// The number of packs that were rewritten or removed.
    pub packs: u64,
    /// The bytes by which the files became shorter.
    pub freed: u64,
}

/// Takes the collector's lock in shared mode, so that no collection runs. Waits for a running collection.
pub(super) fn lock_against_gc(store: &Path) -> Result<FileLock> {
    let path = lock_path(store);
    FileLock::shared(&path)
        .map_err(|error| Error::machine(format!("locking {} against garbage collection", path.display()), error))
}

pub(super) fn lock_path(store: &Path) -> PathBuf {
    store.join("gc.lock")
}

pub(super) fn lock_file(store: &Path) -> Result<File> {
    let path = lock_path(store);
    FileLock::open(&path).map_err(|error| Error::machine(format!("opening {}", path.display()), error))
}

/// The result of the mark phase.
#[derive(Default)]
struct Marks {
    live: HashSet<Digest>,
    versions: HashSet<Digest>,
    /// The blobs that were read for references, and whether as a tree.
    opened: HashSet<(Digest, bool)>,
    /// The position up to which records were read.
    cursor: Cursor,
}

impl Embedded {
    /// Removes the blobs that nothing refers to. With `dry`, only counts them. Calls `progress` with the number of
    /// records read so far.
    pub fn collect(&self, dry: bool, progress: &mut dyn FnMut(u64)) -> Result<GcReport> {
        // A dry run takes no lock and writes nothing, so it works on a read-only store.
        let lock = if dry { None } else { Some(lock_file(&self.paths.root)?) };
        if lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
            return Err(Error::machine(
                "collecting garbage",
                "another process is saving files to this store; try again later",
            ));
        }
        if !dry {
            // Deferred blobs may refer to blobs that no record refers to yet, so they are stored first.
            self.flush_writer();
        }
        let mut marks = Marks::default();
        // If rows are missing, blobs of the missing records would be removed.
        self.read(integrity::check)?;
        self.read(|db| self.mark(db, &mut marks, progress))?;
        self.mark_outside_records(&mut marks)?;
        if dry {
            return self.read(|db| count_blobs(db, &marks).map(|(garbage, _)| garbage));
        }
        // The indexes of workspaces list stored contents, which may be removed now. The workspaces rebuild them.
        for state in workspaces(&self.paths.root) {
            let _ = forget_index(&state);
        }
        let db = self.connect_to_write()?;
        db.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let swept = integrity::check(&db);
        let swept = swept.and_then(|()| self.mark(&db, &mut marks, progress)).and_then(|()| sweep(&db, &marks));
        let mut garbage = match swept {
            Ok(garbage) => garbage,
            Err(error) => {
                let _ = db.execute_batch("ROLLBACK");
                return Err(error);
            }
        };
        self.suspect_wal.commit(&db)?;
        self.compact(&db, &mut garbage)?;
        // A failure is ignored: the rebuild needs free space, and a full disk may be the reason for the collection.
        garbage.freed += vacuum::run_if_worth_it(&db, &self.suspect_wal).unwrap_or(0);
        self.suspect_wal.checkpoint_wal(&db)?;
        Ok(garbage)
    }

    /// Marks the blobs that records after the cursor refer to.
    fn mark(&self, db: &Connection, marks: &mut Marks, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut seen = 0;
        loop {
            let page = read::store_page(db, &marks.cursor, &Scan::store(marks.cursor.clone()))?;
            for record in &page.records {
                seen += 1;
                for blob in record.body_bytes().map(blob_references).unwrap_or_default() {
                    self.mark_blob(db, &blob, marks)?;
                }
            }
            marks.cursor = page.cursor;
            progress(seen);
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Marks a blob and everything that it refers to: the entries of a tree, the pieces of a joined blob.
    fn mark_blob(&self, db: &Connection, blob: &BlobRef, marks: &mut Marks) -> Result<()> {
        let mut open = vec![(blob.digest, blob.media_type == TREE, false, blob.bytes)];
        while let Some((digest, tree, of_version, bytes)) = open.pop() {
            let of_version = of_version || tree;
            marks.live.insert(digest);
            if of_version {
                marks.versions.insert(digest);
            }
            let may_be_joined = bytes > 1 << 20;
            // A file may have the same bytes as a tree, so a blob can be read in both roles.
            if !(tree || may_be_joined) || !marks.opened.insert((digest, tree)) {
                continue;
            }
            let held = blobs::content(db, &self.paths.packs, &digest)?;
            if let Some(BlobContent::Pieces(pieces)) = &held {
                open.extend(pieces.iter().map(|piece| (piece.digest, false, of_version, 0)));
            }
            let bytes = match held {
                Some(BlobContent::Bytes(bytes)) if tree => bytes.into(),
                Some(BlobContent::Pieces(_)) if tree => blobs::get(db, &self.paths.packs, &digest)?.unwrap_or_default(),
                _ => continue,
            };
            // The entries of a damaged tree are unknown, so nothing may be removed.
            let tree = Tree::decode(&bytes);
            let tree = tree.map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
            for entry in tree.entries {
                open.push((entry.node.sha256, entry.node.is_directory(), true, entry.node.size));
            }
        }
        Ok(())
    }

    /// Marks the blobs that workspaces and snapshots refer to. A snapshot may be the only reference after its records
    /// were erased.
    fn mark_outside_records(&self, marks: &mut Marks) -> Result<()> {
        for blob in workspace_blobs(&self.paths.root, &|_| false)? {
            self.read(|db| self.mark_blob(db, &blob, marks))?;
        }
        for blob in self.snapshot_blobs()? {
            self.read(|db| self.mark_blob(db, &blob, marks))?;
        }
        Ok(())
    }

    /// The blobs that snapshots refer to, each once.
    pub fn snapshot_blobs(&self) -> Result<Vec<BlobRef>> {
        self.read(|db| {
            let (mut blobs, mut seen) = (Vec::new(), HashSet::new());
            let mut query = db.prepare("SELECT state FROM snapshots").map_err(sql)?;
            let mut rows = query.query([]).map_err(sql)?;
            while let Some(row) = rows.next().map_err(sql)? {
                let state = row.get_ref(0).and_then(|state| Ok(state.as_blob()?)).map_err(sql)?;
                let new = |blob: &BlobRef| seen.insert((blob.digest, blob.media_type == TREE));
                blobs.extend(blob_references(state).into_iter().filter(new));
            }
            Ok(blobs)
        })
    }

    /// Rewrites packs that are mostly unreachable, and removes those that are completely unreachable.
    fn compact(&self, db: &Connection, garbage: &mut GcReport) -> Result<()> {
        let mut packs = db
            .prepare(
                "SELECT p.no, p.name, p.length, coalesce(sum(b.stored), 0) FROM packs p
                LEFT JOIN blobs b ON b.pack = p.no GROUP BY p.no",
            )
            .map_err(sql)?;
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let packs: Vec<(i64, String, i64, i64)> =
            packs.query_map([], row).map_err(sql)?.collect::<Result<_, _>>().map_err(sql)?;
        for (no, name, _, live) in &packs {
            let path = self.paths.packs.join(name);
            let Ok(file) = File::open(&path) else { continue };
            let length = file.metadata().map(|meta| meta.len()).unwrap_or(0);
            // A pack that a process appends to is skipped.
            if length == 0 || *live as f64 >= length as f64 * MIN_LIVE || file.try_lock().is_err() {
                continue;
            }
            let kept = self.rewrite_pack(db, *no, name)?;
            fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))?;
            garbage.packs += 1;
            garbage.freed += length.saturating_sub(kept);
        }
        self.remove_unlisted_packs(&packs.into_iter().map(|(_, name, ..)| name).collect(), garbage);
        Ok(())
    }

    /// Removes packs that are not in the table of packs. A crash can leave one.
    fn remove_unlisted_packs(&self, listed: &HashSet<String>, garbage: &mut GcReport) {
        for entry in fs::read_dir(&self.paths.packs).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(file) = File::open(entry.path()) else { continue };
            if name.ends_with(".pack") && !listed.contains(&name) && file.try_lock().is_ok() {
                let still_unknown = self.read(|db| {
                    let count = "SELECT count(*) FROM packs WHERE name = ?1";
                    db.query_row(count, [&name], |row| row.get::<_, i64>(0)).map_err(sql)
                });
                if still_unknown.is_ok_and(|count| count == 0) {
                    garbage.freed += file.metadata().map(|meta| meta.len()).unwrap_or(0);
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Copies the indexed entries of a pack to a new pack, and removes the old one from the index. Returns the length
    /// of the new pack.
    pub(super) fn rewrite_pack(&self, db: &Connection, no: i64, name: &str) -> Result<u64> {
        let io = |error| Error::machine("rewriting a pack", error);
        let mut rows =
            db.prepare("SELECT digest, offset, stored FROM blobs WHERE pack = ?1 ORDER BY offset").map_err(sql)?;
        let place = |row: &rusqlite::Row<'_>| {
            let place = Place { offset: row.get::<_, i64>(1)? as u64, stored: row.get::<_, i64>(2)? as u64 };
            Ok((Digest(row.get(0)?), place))
        };
        let live: Vec<(Digest, Place)> =
            rows.query_map([no], place).map_err(sql)?.collect::<Result<_, _>>().map_err(sql)?;
        let mut moved = BTreeMap::new();
        let fresh = format!("{}.pack", rath_core::fresh_name());
        let mut pack = match live.is_empty() {
            true => None,
            false => Some(PackWriter::create(&self.paths.packs, &fresh).map_err(io)?),
        };
        if let Some(pack) = &mut pack {
            for (digest, place) in &live {
                let entry = packs::read_entry(&self.paths.packs, name, *place);
                let entry = entry.map_err(|damage| Error::machine(format!("reading blob {digest}"), damage))?;
                moved.insert(*digest, pack.append_entry(&entry).map_err(io)?);
            }
            pack.sync().map_err(io)?;
        }
        db.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let update = || -> rusqlite::Result<()> {
            if let Some(pack) = &pack {
                db.execute("INSERT INTO packs (name, length) VALUES (?1, ?2)", params![fresh, pack.length as i64])?;
                let new = db.last_insert_rowid();
                let mut update =
                    db.prepare("UPDATE blobs SET pack = ?2, offset = ?3 WHERE digest = ?1 AND pack = ?4")?;
                for (digest, place) in &moved {
                    update.execute(params![digest.0, new, place.offset as i64, no])?;
                }
            }
            db.execute("DELETE FROM blobs WHERE pack = ?1", [no])?;
            db.execute("DELETE FROM packs WHERE no = ?1", [no])?;
            Ok(())
        };
        if let Err(error) = update().map_err(sql).and_then(|()| self.suspect_wal.commit(db)) {
            let _ = db.execute_batch("ROLLBACK");
            return Err(error);
        }
        Ok(pack.map_or(0, |pack| pack.length))
    }

    /// The version whose digest starts with these hex digits; `None` if there is none or several.
    pub fn version(&self, prefix: &str) -> Result<Option<Version>> {
        let from = format!("{prefix:0<64}").parse::<Digest>();
        let to = format!("{prefix:f<64}").parse::<Digest>();
        let (Ok(from), Ok(to)) = (from, to) else { return Ok(None) };
        self.read(|db| {
            let query = "SELECT digest, bytes FROM blobs WHERE digest BETWEEN ?1 AND ?2 LIMIT 100";
            let mut query = db.prepare(query).map_err(sql)?;
            let rows = query
                .query_map(params![from.0, to.0], |row| Ok((Digest(row.get(0)?), row.get::<_, i64>(1)?)))
                .map_err(sql)?;
            let mut found = None;
            for row in rows {
                let (digest, bytes) = row.map_err(sql)?;
                if let Some(BlobContent::Bytes(content)) = blobs::content(db, &self.paths.packs, &digest)?
                    && Tree::decode(&content).is_ok()
                {
                    if found.is_some() {
                        return Ok(None);
                    }
                    let tree = BlobRef { digest, bytes: bytes as u64, media_type: TREE.into() };
                    found = Some(Version { tree, rules: None });
                }
            }
            Ok(found)
        })
    }
}

/// The state directories of the workspaces of this store.
fn workspaces(root: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root.join("workspaces")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The blobs that workspaces refer to: the versions of an interrupted restore, and the version that each workspace had
/// last. State files for which `is_removed` returns `true` are skipped.
pub(super) fn workspace_blobs(root: &Path, is_removed: &dyn Fn(&Path) -> bool) -> Result<Vec<BlobRef>> {
    let mut blobs = Vec::new();
    for state in workspaces(root) {
        for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let remembers = name == "restoring" || name.starts_with("at-") || name.starts_with("going-");
            if remembers && !is_removed(&entry.path()) {
                let unreadable = |error: std::io::Error| {
                    let doing = format!("reading {}, which refers to versions", entry.path().display());
                    Error::machine(doing, error)
                };
                let text = fs::read(entry.path()).map_err(unreadable)?;
                // The references of a damaged file are unknown, so nothing may be removed.
                serde_json::from_slice::<serde::de::IgnoredAny>(&text).map_err(|error| unreadable(error.into()))?;
                blobs.extend(blob_references(&text));
            }
        }
    }
    Ok(blobs)
}

/// Counts reachable and unreachable blobs, and returns the unreachable ones.
fn count_blobs(db: &Connection, marks: &Marks) -> Result<(GcReport, Vec<Digest>)> {
    let mut garbage = GcReport::default();
    let mut dead = Vec::new();
    let mut rows = db.prepare("SELECT digest, stored FROM blobs").map_err(sql)?;
    let mut rows = rows.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let (digest, stored) = (Digest(row.get(0).map_err(sql)?), row.get::<_, i64>(1).map_err(sql)? as u64);
        if marks.live.contains(&digest) {
            garbage.live += 1;
            garbage.live_bytes += stored;
            garbage.version_bytes += if marks.versions.contains(&digest) { stored } else { 0 };
        } else {
            garbage.dead += 1;
            garbage.dead_bytes += stored;
            dead.push(digest);
        }
    }
    Ok((garbage, dead))
}

fn sweep(db: &Connection, marks: &Marks) -> Result<GcReport> {
    let (garbage, dead) = count_blobs(db, marks)?;
    let mut delete = db.prepare("DELETE FROM blobs WHERE digest = ?1").map_err(sql)?;
    for digest in dead {
        delete.execute([digest.0]).map_err(sql)?;
    }
    inline_blobs::delete_unreferenced(db)?;
    Ok(garbage)
}
