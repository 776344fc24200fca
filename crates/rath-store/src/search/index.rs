//! The full-text index. It is a separate database, so that indexing never takes the write lock of the store's database.
//!
//! The row numbers follow the order of commits: each segment has 1,024 numbers, so that a row number gives the record,
//! and the newest records come first without sorting. A row contains no text, only the positions of words. The index is
//! a projection: see `projection` for how it is updated and what happens to a damaged one.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use rath_core::store::{Error, Result};
use rath_core::{Digest, Record};
use rayon::prelude::*;
use rusqlite::{Connection, OpenFlags, Transaction, params};

use super::text;
use super::words::{self, TokenKind};
use crate::embedded::read::SegmentRow;
use crate::embedded::{Embedded, blobs};
use crate::packs::BlobContent;
use crate::projection::{self, Database, Layout, ProjectionError};

/// The version of the index. An index with another version is rebuilt. 3: Hebrew points and Arabic vowels are ignored.
const VERSION: i64 = 3;

/// "rths" in ASCII.
const APPLICATION: i64 = 0x7274_6873;

/// The row numbers per segment, which is the most records of a segment.
pub(super) const ROWS_PER_SEGMENT: u64 = 1024;

/// The bytes of text after which a chunk is committed.
const CHUNK_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// The number of records that are tokenized in parallel. Long records need much memory.
const RECORDS_AT_ONCE: usize = 32;

/// The row numbers per entry of the table `spans`, which has the earliest and latest time of the rows.
const SPAN: u64 = 64 * ROWS_PER_SEGMENT;

/// A token that ends a phrase, so that phrases do not match across texts.
const BREAK: &str = " \u{a6} ";

const TABLES: &str = "
CREATE TABLE spans (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, least INTEGER NOT NULL, greatest INTEGER NOT NULL);
CREATE TABLE forgotten (record INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (record, id)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, tags, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);
";

/// The schema and the paths of the index.
pub(super) fn layout(root: &Path) -> Layout {
    Layout {
        title: "the search index".into(),
        path: root.join("search.db"),
        lock: root.join("search.lock"),
        application: APPLICATION,
        version: VERSION,
        tables: TABLES,
        empty: "INSERT INTO words (words) VALUES ('delete-all'); DELETE FROM spans;",
        kinds: 0,
    }
}

/// An open index.
pub(super) struct Index(Database);

impl Deref for Index {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}

impl DerefMut for Index {
    fn deref_mut(&mut self) -> &mut Database {
        &mut self.0
    }
}

/// The result of opening the index. `index` is `None` if it does not exist and cannot be created. `why` is the reason
/// why it cannot be written.
pub(super) struct Opened {
    pub(super) index: Option<Index>,
    pub(super) why: Option<Error>,
}

impl From<projection::Opened> for Opened {
    fn from(opened: projection::Opened) -> Self {
        Self { index: opened.database.map(Index), why: opened.why }
    }
}

/// The tags of a record: its kind, session and actor, as tokens of the column `tags`.
pub(super) mod tag {
    use rath_core::{Digest, SessionId};

    pub(in crate::search) fn kind(name: &str) -> String {
        hashed('k', name)
    }

    pub(in crate::search) fn actor_kind(kind: &str) -> String {
        hashed('c', &super::words::fold(kind))
    }

    pub(in crate::search) fn actor_name(name: &str) -> String {
        hashed('n', &super::words::fold(name))
    }

    pub(in crate::search) fn session(id: SessionId) -> String {
        format!("s{}", id.0.simple())
    }

    fn hashed(front: char, text: &str) -> String {
        format!("{front}{}", &Digest::of(text.as_bytes()).hex().as_str()[..16])
    }
}

/// The row of a record.
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) tags: String,
    /// Whether only the beginning of a long text is included.
    pub(super) cut: bool,
    /// Whether a blob of the record could not be read.
    pub(super) lost: bool,
}

impl Index {
    /// Opens the index of the store at `root`. Replaces an index that cannot be used.
    pub(super) fn open(root: &Path) -> Result<Opened> {
        Ok(Database::open(&layout(root))?.into())
    }

    /// Opens an existing index for reading only.
    pub(super) fn open_read_only(root: &Path) -> Option<Self> {
        Database::open_read_only(&layout(root)).map(Self)
    }

    /// An empty index in memory.
    pub(super) fn in_memory(root: &Path) -> rusqlite::Result<Self> {
        Database::in_memory(&layout(root)).map(Self)
    }

    /// Copies the list of removed records from another index, so that this index skips them too.
    pub(super) fn copy_forgotten(&self, other: &Connection) -> rusqlite::Result<()> {
        let mut forgotten = other.prepare("SELECT record, id FROM forgotten")?;
        let mut rows = forgotten.query([])?;
        let mut remember = self.db.prepare("INSERT INTO forgotten VALUES (?1, ?2)")?;
        while let Some(row) = rows.next()? {
            remember.execute(params![row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?])?;
        }
        Ok(())
    }

    /// Removes a damaged index and opens a new one.
    pub(super) fn recreate(self) -> Result<Opened> {
        Ok(self.0.recreate()?.into())
    }

    /// Indexes the records that were committed since the last call. Calls `progress` with the number of records read so
    /// far.
    pub(super) fn catch_up(
        &mut self,
        store: &Embedded,
        progress: &mut dyn FnMut(u64),
    ) -> std::result::Result<(), ProjectionError> {
        self.0.catch_up(store, &mut |chunk, rows| index_segments(store, chunk, rows), progress)
    }
}

/// Indexes the records of segments, until the text has enough bytes for one chunk. Returns the number of indexed
/// segments and records.
fn index_segments(
    store: &Embedded,
    chunk: &Transaction<'_>,
    rows: &[SegmentRow],
) -> std::result::Result<(usize, u64), ProjectionError> {
    let (mut indexed, mut records, mut bytes) = (0, 0, 0);
    let (mut least, mut greatest, mut cut) = (u64::MAX, 0, 0);
    let mut insert = chunk.prepare_cached("INSERT INTO words (rowid, text, tags) VALUES (?1, ?2, ?3)")?;
    let mut forgotten = chunk.prepare_cached("SELECT 1 FROM forgotten WHERE record = ?1 AND id = ?2")?;
    for row in rows {
        let readable = row.readable();
        for some in readable.chunks(RECORDS_AT_ONCE) {
            // Records are tokenized on all processors, and inserted by this thread.
            let entry = |record: &Record| store.read(|db| Ok(Entry::of(record, store, db)));
            let entries: Vec<Entry> = some.par_iter().map(entry).collect::<Result<_>>()?;
            for (record, entry) in some.iter().zip(entries) {
                records += 1;
                let time = record.time().map_or(0, |time| time.0);
                (least, greatest) = (least.min(time), greatest.max(time));
                let number = row_number(row.cursor as u64, record.seq() - row.first_seq);
                if record.body_bytes().is_none() || forgotten.exists(params![number, record.id().0.0])? {
                    continue;
                }
                cut += u64::from(entry.cut);
                bytes += entry.text.len();
                insert.execute(params![number, entry.text, entry.tags])?;
            }
        }
        indexed += 1;
        // Commit, so that other processes that wait for the lock can continue.
        if bytes >= CHUNK_TEXT_BYTES {
            break;
        }
    }
    if records > 0 {
        let (first, last) =
            (row_number(rows[0].cursor as u64, 0), row_number(rows[indexed - 1].cursor as u64, ROWS_PER_SEGMENT - 1));
        enter_span(chunk, first, last, least, greatest)?;
    }
    chunk.execute(
        "INSERT INTO marks VALUES ('cut', ?1) ON CONFLICT (name) DO UPDATE SET value = value + ?1",
        [cut as i64],
    )?;
    Ok((indexed, records))
}

impl Entry {
    pub(super) fn of(record: &Record, store: &Embedded, db: &Connection) -> Self {
        let (passages, lost) = text::of(record, &mut |blob, most| beginning(store, db, &blob.digest, most));
        let mut entry = Self { text: String::new(), tags: tags(record), cut: false, lost };
        for passage in &passages {
            entry.cut |= passage.cut;
            words::each(&passage.text, &mut |word, _, kind| match kind {
                TokenKind::Break => entry.text.push_str(BREAK),
                _ => {
                    entry.text.push(' ');
                    entry.text.push_str(word);
                }
            });
            entry.text.push_str(BREAK);
        }
        entry
    }
}

fn tags(record: &Record) -> String {
    let mut tags = vec![tag::kind(record.kind().as_str()), tag::session(record.session())];
    if let Ok(header) = record.header() {
        tags.extend([tag::actor_kind(&header.actor.kind), tag::actor_name(&header.actor.name)]);
    }
    tags.join(" ")
}

/// The first `most` bytes of a blob, and whether it has more.
pub(super) fn beginning(store: &Embedded, db: &Connection, digest: &Digest, most: usize) -> Option<(Vec<u8>, bool)> {
    let packs = &store.paths.packs;
    match blobs::content(db, packs, digest).ok()?? {
        BlobContent::Bytes(mut bytes) => {
            let cut = bytes.len() > most;
            bytes.truncate(most);
            Some((bytes, cut))
        }
        BlobContent::Pieces(pieces) => {
            let mut bytes = Vec::new();
            for chunk in pieces {
                match blobs::content(db, packs, &chunk.digest).ok()?? {
                    BlobContent::Bytes(more) => bytes.extend_from_slice(&more),
                    BlobContent::Pieces(_) => return None,
                }
                if bytes.len() > most {
                    bytes.truncate(most);
                    return Some((bytes, true));
                }
            }
            Some((bytes, false))
        }
    }
}

/// The row number of a record: `place` is its position in the segment.
pub(super) fn row_number(cursor: u64, place: u64) -> i64 {
    (cursor * ROWS_PER_SEGMENT + place) as i64
}

/// Extends the last span, or inserts a new one.
fn enter_span(db: &Connection, first: i64, last: i64, least: u64, greatest: u64) -> rusqlite::Result<()> {
    let newest: Option<i64> = db.query_row("SELECT max(first) FROM spans", [], |row| row.get(0))?;
    match newest.filter(|newest| last - newest < SPAN as i64) {
        Some(newest) => db.execute(
            "UPDATE spans SET last = ?2, least = min(least, ?3), greatest = max(greatest, ?4) WHERE first = ?1",
            params![newest, last, least as i64, greatest as i64],
        )?,
        None => db.execute(
            "INSERT INTO spans VALUES (?1, ?2, ?3, ?4)",
            params![first, last, least as i64, greatest as i64],
        )?,
    };
    Ok(())
}

/// Inspects an index without changing it: the last indexed segment, the number of records with a truncated text, and
/// the damage.
pub(super) fn inspect(root: &Path) -> rusqlite::Result<(u64, u64, Vec<String>)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(root.join("search.db"), flags)?;
    db.busy_timeout(Duration::from_secs(30))?;
    match projection::marks_of(&db)? {
        (APPLICATION, VERSION) => {}
        // An empty index, or one of another version, which the next search rebuilds.
        (0, 0) | (APPLICATION, _) => return Ok((0, 0, Vec::new())),
        _ => return Ok((0, 0, vec!["the file is not a search index of rath".into()])),
    }
    let mut check = db.prepare("PRAGMA quick_check(3)")?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    let damage = lines.map(|line| line.unwrap_or_else(|error| error.to_string())).filter(|line| line != "ok").collect();
    let [cut, cursor] = ["cut", "cursor"].map(|name| projection::mark::<i64>(&db, name));
    Ok((cursor?.unwrap_or(0) as u64, cut?.unwrap_or(0) as u64, damage))
}
