//! Blobs that no record names, found by walking from every record, and the room they take.
//!
//! Nothing is collected while a process saves files (`Blobs::gc_guard`): between a save and the record that names its
//! version, the blobs have no name. What is marked is marked at one moment; what was committed since is marked again under the
//! write lock, before anything goes.

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
use super::{Embedded, anew, blobs, lines, read, riders};
use crate::packs::{self, Held, PackWriter, Place};

/// A pack with less than this part alive is written anew.
const WORTH_KEEPING: f64 = 0.7;

/// What a collection found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Blobs that a record or a tree names.
    pub live: u64,
    /// Bytes they take.
    pub live_bytes: u64,
    /// Of those, bytes of versions: trees and contents of files.
    pub version_bytes: u64,
    /// Blobs that nothing names.
    pub dead: u64,
    /// Bytes they take.
    pub dead_bytes: u64,
    /// Packs written anew or removed.
    pub packs: u64,
    /// Bytes that were given back to the disk.
    pub freed: u64,
}

/// Shares the lock that a collection takes alone; waits for one that is running.
pub(super) fn keep_away(store: &Path) -> Result<FileLock> {
    let path = lock_path(store);
    FileLock::shared(&path)
        .map_err(|error| Error::machine(format!("locking {} against a collection", path.display()), error))
}

pub(super) fn lock_path(store: &Path) -> PathBuf {
    store.join("gc.lock")
}

pub(super) fn lock_file(store: &Path) -> Result<File> {
    let path = lock_path(store);
    FileLock::open(&path).map_err(|error| Error::machine(format!("opening {}", path.display()), error))
}

/// What is reachable.
#[derive(Default)]
struct Marks {
    live: HashSet<Digest>,
    versions: HashSet<Digest>,
    /// What was looked into, and whether as a tree.
    opened: HashSet<(Digest, bool)>,
    /// How far the records were looked at.
    cursor: Cursor,
}

impl Embedded {
    /// Says what nothing names any more; with `dry` unset, removes it. `progress` hears how many records were read.
    pub fn collect(&self, dry: bool, progress: &mut dyn FnMut(u64)) -> Result<Garbage> {
        // Who only looks writes nothing, and may look where nothing can be written.
        let lock = if dry { None } else { Some(lock_file(&self.paths.root)?) };
        if lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
            return Err(Error::machine(
                "collecting garbage",
                "somebody is working on files of this store; try again later",
            ));
        }
        if !dry {
            // What waits for a record may stand on what none names yet.
            self.let_writer_catch_up();
        }
        let mut marks = Marks::default();
        // What is not listed would not be found, and what it names would go.
        self.read(lines::check)?;
        self.read(|db| self.mark(db, &mut marks, progress))?;
        self.mark_beside(&mut marks)?;
        if dry {
            return self.read(|db| weigh(db, &marks).map(|(garbage, _)| garbage));
        }
        // What a workspace remembers of contents may be about to go: it looks again.
        for state in workspaces(&self.paths.root) {
            let _ = forget_index(&state);
        }
        let db = self.connect_to_write()?;
        db.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let swept = lines::check(&db);
        let swept = swept.and_then(|()| self.mark(&db, &mut marks, progress)).and_then(|()| sweep(&db, &marks));
        let mut garbage = match swept {
            Ok(garbage) => garbage,
            Err(error) => {
                let _ = db.execute_batch("ROLLBACK");
                return Err(error);
            }
        };
        self.doubt.commit(&db)?;
        self.compact(&db, &mut garbage)?;
        // It needs room, which may be what is missing.
        garbage.freed += anew::write_if_worth_it(&db, &self.doubt).unwrap_or(0);
        self.doubt.shorten_log(&db)?;
        Ok(garbage)
    }

    /// Marks what records after the cursor name.
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

    /// Marks a blob; of a tree, everything below it; of a joined one, its pieces.
    fn mark_blob(&self, db: &Connection, blob: &BlobRef, marks: &mut Marks) -> Result<()> {
        let mut open = vec![(blob.digest, blob.media_type == TREE, false, blob.bytes)];
        while let Some((digest, tree, of_version, bytes)) = open.pop() {
            let of_version = of_version || tree;
            marks.live.insert(digest);
            if of_version {
                marks.versions.insert(digest);
            }
            let may_be_joined = bytes > 1 << 20;
            // A file may hold the bytes of a tree: it is looked into as both.
            if !(tree || may_be_joined) || !marks.opened.insert((digest, tree)) {
                continue;
            }
            let held = blobs::held(db, &self.paths.packs, &digest)?;
            if let Some(Held::Pieces(pieces)) = &held {
                open.extend(pieces.iter().map(|piece| (piece.digest, false, of_version, 0)));
            }
            let bytes = match held {
                Some(Held::Bytes(bytes)) if tree => bytes.into(),
                Some(Held::Pieces(_)) if tree => blobs::get(db, &self.paths.packs, &digest)?.unwrap_or_default(),
                _ => continue,
            };
            // A damaged tree hides what is below it: then nothing may be collected.
            let tree = Tree::decode(&bytes);
            let tree = tree.map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
            for entry in tree.entries {
                open.push((entry.node.sha256, entry.node.is_directory(), true, entry.node.size));
            }
        }
        Ok(())
    }

    /// What is named beside records: by workspaces, and by folded states whose record was erased.
    fn mark_beside(&self, marks: &mut Marks) -> Result<()> {
        for blob in remembered(&self.paths.root, &|_| false)? {
            self.read(|db| self.mark_blob(db, &blob, marks))?;
        }
        for blob in self.folded_blobs()? {
            self.read(|db| self.mark_blob(db, &blob, marks))?;
        }
        Ok(())
    }

    /// The blobs that folded states name, each once.
    pub fn folded_blobs(&self) -> Result<Vec<BlobRef>> {
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

    /// Writes packs anew that are mostly dead, and removes those that are dead.
    fn compact(&self, db: &Connection, garbage: &mut Garbage) -> Result<()> {
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
            // One that a process writes to is left alone.
            if length == 0 || *live as f64 >= length as f64 * WORTH_KEEPING || file.try_lock().is_err() {
                continue;
            }
            let kept = self.move_out(db, *no, name)?;
            fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))?;
            garbage.packs += 1;
            garbage.freed += length.saturating_sub(kept);
        }
        self.remove_strays(&packs.into_iter().map(|(_, name, ..)| name).collect(), garbage);
        Ok(())
    }

    /// Packs that a crash left without an index.
    fn remove_strays(&self, listed: &HashSet<String>, garbage: &mut Garbage) {
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

    /// Moves what lives in a pack to a new one. Returns how many bytes that is.
    pub(super) fn move_out(&self, db: &Connection, no: i64, name: &str) -> Result<u64> {
        let io = |error| Error::machine("writing a pack anew", error);
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
        if let Err(error) = update().map_err(sql).and_then(|()| self.doubt.commit(db)) {
            let _ = db.execute_batch("ROLLBACK");
            return Err(error);
        }
        Ok(pack.map_or(0, |pack| pack.length))
    }

    /// The version whose digest begins with these digits.
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
                if let Some(Held::Bytes(content)) = blobs::held(db, &self.paths.packs, &digest)?
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

/// Where workspaces of this store remember what they saw.
fn workspaces(root: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root.join("workspaces")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// What workspaces are about to need: versions between which a restore was interrupted, and those last seen. `gone` says
/// which of the files that remember it do not count.
pub(super) fn remembered(root: &Path, gone: &dyn Fn(&Path) -> bool) -> Result<Vec<BlobRef>> {
    let mut blobs = Vec::new();
    for state in workspaces(root) {
        for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let remembers = name == "restoring" || name.starts_with("at-") || name.starts_with("going-");
            if remembers && !gone(&entry.path()) {
                let unreadable = |error: std::io::Error| {
                    let doing = format!("reading {}, which names versions to keep", entry.path().display());
                    Error::machine(doing, error)
                };
                let text = fs::read(entry.path()).map_err(unreadable)?;
                // What it names is not known: then nothing may go.
                serde_json::from_slice::<serde::de::IgnoredAny>(&text).map_err(|error| unreadable(error.into()))?;
                blobs.extend(blob_references(&text));
            }
        }
    }
    Ok(blobs)
}

/// Counts what lives and what does not; hands over the dead.
fn weigh(db: &Connection, marks: &Marks) -> Result<(Garbage, Vec<Digest>)> {
    let mut garbage = Garbage::default();
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

fn sweep(db: &Connection, marks: &Marks) -> Result<Garbage> {
    let (garbage, dead) = weigh(db, marks)?;
    let mut delete = db.prepare("DELETE FROM blobs WHERE digest = ?1").map_err(sql)?;
    for digest in dead {
        delete.execute([digest.0]).map_err(sql)?;
    }
    riders::put_off_strangers(db)?;
    Ok(garbage)
}
