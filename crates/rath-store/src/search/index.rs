//! The index: a database of its own beside the ledger, so that indexing never takes the ledger's write lock.
//!
//! Its rows are numbered as the ledger committed them: 1,024 numbers a segment, so that a number leads to its record,
//! and the newest come first without sorting. A row holds no text, only where words stand. It is a projection: see
//! `projection` for how it catches up and what becomes of a damaged one.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use rath_core::store::{Error, Result};
use rath_core::{Digest, Record};
use rayon::prelude::*;
use rusqlite::{Connection, OpenFlags, Transaction, params};

use super::text;
use super::words::{self, Sort};
use crate::embedded::read::SegmentRow;
use crate::embedded::{Embedded, blobs};
use crate::packs::Held;
use crate::projection::{self, Database, Layout, Trouble};

/// Changes with what is indexed and how: another one is made anew. 3: Hebrew points and Arabic vowels do not count.
const VERSION: i64 = 3;

/// "rths" in ASCII.
const APPLICATION: i64 = 0x7274_6873;

/// Records of a segment, at most.
pub(super) const PLACES: u64 = 1024;

/// A piece is committed when so many bytes of segments were read.
const PIECE: usize = 8 * 1024 * 1024;

/// Records whose words are cut at once: long ones take room.
const TOGETHER: usize = 32;

/// Times are kept for stretches of so many numbers.
const SPAN: u64 = 64 * PLACES;

/// Stands where no phrase goes across.
const BREAK: &str = " \u{a6} ";

const TABLES: &str = "
CREATE TABLE spans (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, least INTEGER NOT NULL, greatest INTEGER NOT NULL);
CREATE TABLE forgotten (record INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (record, id)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, tags, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);
";

/// Where the index is, and what it looks like.
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

/// The index, open.
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

/// An index, where there is one, and why it cannot be written, where it cannot.
pub(super) struct Opened {
    pub(super) index: Option<Index>,
    pub(super) why: Option<Error>,
}

impl From<projection::Opened> for Opened {
    fn from(opened: projection::Opened) -> Self {
        Self { index: opened.database.map(Index), why: opened.why }
    }
}

/// What a record is by, besides its words.
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

/// The index's row for a record.
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) tags: String,
    /// Whether some text of it is longer than what is read.
    pub(super) cut: bool,
    /// Whether a blob of it could not be read.
    pub(super) lost: bool,
}

impl Index {
    /// Opens the index of the store at `root`, made anew where it cannot be used.
    pub(super) fn open(root: &Path) -> Result<Opened> {
        Ok(Database::open(&layout(root))?.into())
    }

    /// Opens an index that is there, where nothing may be written.
    pub(super) fn open_as_it_is(root: &Path) -> Option<Self> {
        Database::open_as_it_is(&layout(root)).map(Self)
    }

    /// An empty one that nobody else sees.
    pub(super) fn in_memory(root: &Path) -> rusqlite::Result<Self> {
        Database::in_memory(&layout(root)).map(Self)
    }

    /// Passes over the records that another index was told to forget.
    pub(super) fn forget_what(&self, other: &Connection) -> rusqlite::Result<()> {
        let mut forgotten = other.prepare("SELECT record, id FROM forgotten")?;
        let mut rows = forgotten.query([])?;
        let mut remember = self.db.prepare("INSERT INTO forgotten VALUES (?1, ?2)")?;
        while let Some(row) = rows.next()? {
            remember.execute(params![row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?])?;
        }
        Ok(())
    }

    /// Gives up a damaged index and opens a new one.
    pub(super) fn anew(self) -> Result<Opened> {
        Ok(self.0.anew()?.into())
    }

    /// Indexes what was committed since the last time. `progress` hears how many records were read.
    pub(super) fn catch_up(
        &mut self,
        store: &Embedded,
        progress: &mut dyn FnMut(u64),
    ) -> std::result::Result<(), Trouble> {
        self.0.catch_up(store, &mut |piece, rows| enter(store, piece, rows), progress)
    }
}

/// Enters the words of records; stops where they are many. Returns how many segments were read, and how many records.
fn enter(store: &Embedded, piece: &Transaction<'_>, rows: &[SegmentRow]) -> std::result::Result<(usize, u64), Trouble> {
    let (mut taken, mut records, mut bytes) = (0, 0, 0);
    let (mut least, mut greatest, mut cut) = (u64::MAX, 0, 0);
    let mut insert = piece.prepare_cached("INSERT INTO words (rowid, text, tags) VALUES (?1, ?2, ?3)")?;
    let mut forgotten = piece.prepare_cached("SELECT 1 FROM forgotten WHERE record = ?1 AND id = ?2")?;
    for row in rows {
        let readable = row.readable();
        for some in readable.chunks(TOGETHER) {
            // Words are cut on all cores, and entered by one.
            let entry = |record: &Record| store.read(|db| Ok(Entry::of(record, store, db)));
            let entries: Vec<Entry> = some.par_iter().map(entry).collect::<Result<_>>()?;
            for (record, entry) in some.iter().zip(entries) {
                records += 1;
                let time = record.time().map_or(0, |time| time.0);
                (least, greatest) = (least.min(time), greatest.max(time));
                let number = number_of(row.cursor as u64, record.seq() - row.first_seq);
                if record.body_bytes().is_none() || forgotten.exists(params![number, record.id().0.0])? {
                    continue;
                }
                cut += u64::from(entry.cut);
                bytes += entry.text.len();
                insert.execute(params![number, entry.text, entry.tags])?;
            }
        }
        taken += 1;
        // Others wait for their turn.
        if bytes >= 2 * PIECE {
            break;
        }
    }
    if records > 0 {
        let (first, last) = (number_of(rows[0].cursor as u64, 0), number_of(rows[taken - 1].cursor as u64, PLACES - 1));
        enter_span(piece, first, last, least, greatest)?;
    }
    piece.execute(
        "INSERT INTO marks VALUES ('cut', ?1) ON CONFLICT (name) DO UPDATE SET value = value + ?1",
        [cut as i64],
    )?;
    Ok((taken, records))
}

impl Entry {
    pub(super) fn of(record: &Record, store: &Embedded, db: &Connection) -> Self {
        let (passages, lost) = text::of(record, &mut |blob, most| beginning(store, db, &blob.digest, most));
        let mut entry = Self { text: String::new(), tags: tags(record), cut: false, lost };
        for passage in &passages {
            entry.cut |= passage.cut;
            words::each(&passage.text, &mut |word, _, sort| match sort {
                Sort::Break => entry.text.push_str(BREAK),
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

/// The first bytes of a blob, and whether there are more.
pub(super) fn beginning(store: &Embedded, db: &Connection, digest: &Digest, most: usize) -> Option<(Vec<u8>, bool)> {
    let packs = &store.paths.packs;
    match blobs::held(db, packs, digest).ok()?? {
        Held::Bytes(mut bytes) => {
            let cut = bytes.len() > most;
            bytes.truncate(most);
            Some((bytes, cut))
        }
        Held::Pieces(pieces) => {
            let mut bytes = Vec::new();
            for piece in pieces {
                match blobs::held(db, packs, &piece.digest).ok()?? {
                    Held::Bytes(more) => bytes.extend_from_slice(&more),
                    Held::Pieces(_) => return None,
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

/// A record's number in the index.
pub(super) fn number_of(cursor: u64, place: u64) -> i64 {
    (cursor * PLACES + place) as i64
}

/// Widens the last stretch, or begins another.
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

/// Looks at an index without changing it: how far it has come, how many records are cut, and what is wrong with it.
pub(super) fn look(root: &Path) -> rusqlite::Result<(u64, u64, Vec<String>)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(root.join("search.db"), flags)?;
    db.busy_timeout(Duration::from_secs(30))?;
    match projection::marks_of(&db)? {
        (APPLICATION, VERSION) => {}
        // Nothing is in it yet, or what another version of us put there: the next search makes it anew.
        (0, 0) | (APPLICATION, _) => return Ok((0, 0, Vec::new())),
        _ => return Ok((0, 0, vec!["it is not an index of ours".into()])),
    }
    let mut check = db.prepare("PRAGMA quick_check(3)")?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    let damage = lines.map(|line| line.unwrap_or_else(|error| error.to_string())).filter(|line| line != "ok").collect();
    let [cut, cursor] = ["cut", "cursor"].map(|name| projection::mark::<i64>(&db, name));
    Ok((cursor?.unwrap_or(0) as u64, cut?.unwrap_or(0) as u64, damage))
}
