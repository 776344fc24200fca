//! The index: a database of its own beside the ledger, so that indexing never takes the ledger's write lock.
//!
//! Its rows are numbered as the ledger committed them: 1,024 numbers a segment, so that a number leads to its record,
//! and the newest come first without sorting. A row holds no text, only where words stand. Several processes may catch
//! up at once: each takes the next piece under the database's own lock. Whoever dies in the middle leaves the piece to
//! the next. What is damaged, missing or of another version is made anew.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_core::store::{Error, Result};
use rath_core::{Digest, Record, SessionId, Time};
use rayon::prelude::*;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

use super::text;
use super::words::{self, Sort};
use crate::embedded::read::SegmentRow;
use crate::embedded::{Embedded, blobs, lines, schema};
use crate::packs::Held;
use crate::segment::{self, Slots};

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

/// How often whoever replaces the index looks whether others are done with it, and how long it waits in between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// As long as some pieces take on a slow disk.
const LONGEST: Duration = Duration::from_secs(120);

/// Stands where no phrase goes across.
const BREAK: &str = " \u{a6} ";

const TABLES: &str = "
CREATE TABLE marks (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE spans (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, least INTEGER NOT NULL, greatest INTEGER NOT NULL);
CREATE TABLE forgotten (record INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (record, id)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, tags, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);
";

/// The index, open.
pub(super) struct Index {
    pub(super) db: Connection,
    /// Held by all who use the database; alone, by who replaces it.
    lock: Option<File>,
}

/// An index, where there is one, and why it cannot be written, where it cannot.
pub(super) struct Opened {
    pub(super) index: Option<Index>,
    pub(super) why: Option<Error>,
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

/// How far the index has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The last segment.
    pub(super) cursor: u64,
    /// The id of the last record in it.
    last: Option<Vec<u8>>,
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
        let path = root.join("search.db");
        let as_it_is = |why: Error| Ok(Opened { index: Self::open_as_it_is(&path), why: Some(why) });
        for _ in 0..3 {
            let lock = match lock_file(root) {
                Ok(lock) => lock,
                Err(error) => return as_it_is(Error::machine("opening search.lock", error)),
            };
            lock.lock_shared().map_err(|error| Error::machine("waiting for the search index", error))?;
            match connect(&path) {
                Ok(Some(db)) => {
                    return Ok(Opened { index: Some(Self { db, lock: Some(lock) }), why: None });
                }
                Ok(None) => {}
                Err(error) if is_damage(&error) => {}
                Err(error) if is_out_of_room(&error) => return as_it_is(unusable(error)),
                Err(error) => return Err(unusable(error)),
            }
            drop(lock);
            replace(root, &path)?;
        }
        Err(Error::machine("opening the search index", "it cannot be made anew; remove search.db from the store"))
    }

    /// Opens an index that is there, where nothing may be written.
    pub(super) fn open_as_it_is(path: &Path) -> Option<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let ours = |db: &Connection| marks(db).is_ok_and(|marks| marks == (APPLICATION, VERSION));
        let db = Connection::open_with_flags(path, flags).ok().filter(ours);
        // Where no log is waiting, the file is read as it is.
        let unchanging = || schema::open_unchanging(path).ok().filter(ours);
        let db = db.or_else(|| if schema::has_log(path) { None } else { unchanging() })?;
        Some(Self { db, lock: None })
    }

    /// An empty one that nobody else sees.
    pub(super) fn in_memory() -> rusqlite::Result<Self> {
        let db = Connection::open_in_memory()?;
        db.execute_batch(TABLES)?;
        Ok(Self { db, lock: None })
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
    pub(super) fn anew(self, root: &Path) -> Result<Opened> {
        let Self { db, lock } = self;
        drop((db, lock));
        replace_whatever(root)?;
        Self::open(root)
    }

    pub(super) fn reached(&self) -> rusqlite::Result<Reached> {
        reached(&self.db)
    }

    /// Indexes what was committed since the last time. `progress` hears how many records were read.
    pub(super) fn catch_up(
        &mut self,
        store: &Embedded,
        progress: &mut dyn FnMut(u64),
    ) -> std::result::Result<(), Trouble> {
        if !self.is_of(store)? {
            self.clear()?;
        }
        let mut seen = 0;
        loop {
            let last = store.read(last_segment)?;
            let from = self.reached()?.cursor;
            if from >= last {
                return Ok(());
            }
            seen += self.catch_up_a_piece(store)?;
            progress(seen);
            // Others may have come further meanwhile, or removed what was left; else it stands still for good.
            if self.reached()?.cursor == from && store.read(last_segment)? == last {
                return Err(lines::unreadable(last as i64).into());
            }
        }
    }

    /// Whether the segment that was indexed last is still the one that the store has there. A store that was set back,
    /// and went on otherwise, has another.
    fn is_of(&self, store: &Embedded) -> std::result::Result<bool, Trouble> {
        let Reached { cursor, last } = self.reached()?;
        let Some(last) = last else { return Ok(cursor == 0) };
        let there: Option<Vec<u8>> = store.read(|db| {
            db.prepare_cached("SELECT data FROM segments WHERE cursor = ?1")
                .and_then(|mut query| query.query_row([cursor as i64], |row| row.get(0)).optional())
                .map_err(schema::sql)
        })?;
        Ok(match there {
            Some(data) => last_id(&segment::unfold(&data)) == Some(last),
            // It was removed; numbers are given again only when there is no greater one.
            None => store.read(last_segment)? > cursor,
        })
    }

    fn catch_up_a_piece(&mut self, store: &Embedded) -> std::result::Result<u64, Trouble> {
        let piece = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read under the lock: what is forgotten meanwhile waits, and sees what was written here.
        let from = reached(&piece)?;
        let rows = store.read(|db| segments_after(db, from.cursor))?;
        let Some(first) = rows.first().map(|row| number_of(row.cursor as u64, 0)) else { return Ok(0) };
        let (mut end, mut records, mut bytes) = (from, 0, 0);
        let (mut least, mut greatest, mut cut) = (u64::MAX, 0, 0);
        {
            let mut insert = piece.prepare_cached("INSERT INTO words (rowid, text, tags) VALUES (?1, ?2, ?3)")?;
            let mut forgotten = piece.prepare_cached("SELECT 1 FROM forgotten WHERE record = ?1 AND id = ?2")?;
            for row in &rows {
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
                end = Reached { cursor: row.cursor as u64, last: last_id(&row.data) };
                // Others wait for their turn.
                if bytes >= 2 * PIECE {
                    break;
                }
            }
        }
        if records > 0 {
            enter_span(&piece, first, number_of(end.cursor, PLACES - 1), least, greatest)?;
        }
        reach(&piece, &end)?;
        piece.execute(
            "INSERT INTO marks VALUES ('cut', ?1) ON CONFLICT (name) DO UPDATE SET value = value + ?1",
            [cut as i64],
        )?;
        piece.commit()?;
        Ok(records)
    }

    /// Empties the index for good; it is filled again at the next question. What was forgotten stays so.
    pub(super) fn clear(&mut self) -> rusqlite::Result<()> {
        let clearing = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        clearing
            .execute_batch("INSERT INTO words (words) VALUES ('delete-all'); DELETE FROM marks; DELETE FROM spans;")?;
        clearing.commit()
    }

    /// Moves the log into the database and cuts it off, so that nothing that was taken out is left in it.
    pub(super) fn flush(&self) -> Result<()> {
        let busy: i64 = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(unusable)?;
        match busy {
            0 => Ok(()),
            _ => Err(Error::machine(
                "cutting off the log of the search index",
                "another process is reading it; try again when its search is over",
            )),
        }
    }
}

/// Why an index did not do what it was asked.
pub(super) enum Trouble {
    /// The database said no.
    Index(rusqlite::Error),
    /// The ledger did.
    Store(Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::Index(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Store(error)
    }
}

impl Trouble {
    /// Whether a new index would help.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Trouble::Index(error) if is_damage(error))
    }

    /// Whether the index is as it was, and nothing can be added to it.
    pub(super) fn is_out_of_room(&self) -> bool {
        matches!(self, Trouble::Index(error) if is_out_of_room(error))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Index(error) => unusable(error),
            Trouble::Store(error) => error,
        }
    }
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

pub(super) fn last_segment(db: &Connection) -> Result<u64> {
    db.query_row("SELECT coalesce(max(cursor), 0) FROM segments", [], |row| row.get::<_, i64>(0))
        .map(|cursor| cursor as u64)
        .map_err(schema::sql)
}

/// The next segments, some megabytes of them.
fn segments_after(db: &Connection, cursor: u64) -> Result<Vec<SegmentRow>> {
    let query = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
        LEFT JOIN sessions s ON s.no = g.session WHERE g.cursor > ?1 ORDER BY g.cursor";
    let mut query = db.prepare_cached(query).map_err(schema::sql)?;
    let mut rows = query.query([cursor as i64]).map_err(schema::sql)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(schema::sql)? {
        // One without a session would be passed over for ever, and never come to its end.
        let Some(id) = row.get(4).map_err(schema::sql)? else {
            return Err(lines::unlisted(row.get(0).map_err(schema::sql)?));
        };
        let segment = SegmentRow::read(row, SessionId(uuid::Uuid::from_bytes(id))).map_err(schema::sql)?;
        bytes += segment.data.len();
        found.push(segment);
        if bytes >= PIECE {
            break;
        }
    }
    Ok(found)
}

/// The id of the last record of a segment.
fn last_id(data: &[u8]) -> Option<Vec<u8>> {
    let slot = Slots::of(data).map_while(std::result::Result::ok).last()?;
    Some(Digest::of(&data[slot.header.start as usize..slot.header.end as usize]).0.to_vec())
}

fn reached(db: &Connection) -> rusqlite::Result<Reached> {
    Ok(Reached { cursor: mark::<i64>(db, "cursor")?.unwrap_or(0) as u64, last: mark(db, "last")? })
}

fn mark<T: rusqlite::types::FromSql>(db: &Connection, name: &str) -> rusqlite::Result<Option<T>> {
    db.prepare_cached("SELECT value FROM marks WHERE name = ?1")?.query_row([name], |row| row.get(0)).optional()
}

fn reach(db: &Connection, to: &Reached) -> rusqlite::Result<()> {
    let mut set = db.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2)")?;
    set.execute(params!["cursor", to.cursor as i64])?;
    set.execute(params!["last", to.last])?;
    Ok(())
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

fn lock_file(root: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(root.join("search.lock"))
}

/// A connection on an index that is ours; `None` when it is another's, or of another version.
fn connect(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(LONGEST)?;
    let ours = match marks(&db)? {
        (APPLICATION, VERSION) => true,
        (0, 0) => create(&db)?,
        _ => false,
    };
    if !ours {
        return Ok(None);
    }
    // What a crash of the machine takes from the index is read again from the ledger.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // Nothing that was taken out stays in a page that is free.
    db.pragma_update(None, "secure_delete", "ON")?;
    db.pragma_update(None, "cache_size", -32_000)?;
    Ok(Some(db))
}

/// Writes the tables into a new database. Another process may be doing the same.
fn create(db: &Connection) -> rusqlite::Result<bool> {
    keep_a_log(db)?;
    let making = rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    if marks(&making)? == (0, 0) {
        let empty: bool = making.query_row("SELECT count(*) = 0 FROM sqlite_master", [], |row| row.get(0))?;
        if !empty {
            return Ok(false);
        }
        making.execute_batch(TABLES)?;
        making.pragma_update(None, "application_id", APPLICATION)?;
        making.pragma_update(None, "user_version", VERSION)?;
        making.commit()?;
    }
    Ok(marks(db)? == (APPLICATION, VERSION))
}

/// Has a new database keep a log. Of two that begin this at once, SQLite tells one so without waiting.
fn keep_a_log(db: &Connection) -> rusqlite::Result<()> {
    let began = Time::now();
    let is_busy = |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
    loop {
        let is_early = Time::now().micros_since(began) < LONGEST.as_micros() as u64;
        match db.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && is_early => std::thread::sleep(PAUSE / 10),
            done => return done,
        }
    }
}

fn marks(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let ask = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

/// Removes an index that cannot be used, when nobody uses it and nobody else has replaced it.
fn replace(root: &Path, path: &Path) -> Result<()> {
    let lock = alone(root)?;
    let useless = match connect(path) {
        Ok(db) => db.is_none(),
        Err(error) => is_damage(&error),
    };
    match useless {
        true => remove(path),
        false => Ok(()),
    }?;
    drop(lock);
    Ok(())
}

/// Removes the index.
pub(super) fn replace_whatever(root: &Path) -> Result<()> {
    let lock = alone(root)?;
    remove(&root.join("search.db"))?;
    drop(lock);
    Ok(())
}

fn alone(root: &Path) -> Result<File> {
    let lock = lock_file(root).map_err(|error| Error::machine("opening search.lock", error))?;
    for _ in 0..LOOKS {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(Error::machine("waiting for others who search", error)),
        }
    }
    let why = "another process has been searching for a minute; try again when its search is over";
    Err(Error::machine("replacing the search index", why))
}

fn remove(path: &Path) -> Result<()> {
    let with = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    for file in [path.to_owned(), with("-wal"), with("-shm")] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::machine(format!("removing {}", file.display()), error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        // A table that is gone.
        Some(ErrorCode::Unknown) => error.to_string().contains("no such"),
        _ => matches!(error, rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..)),
    }
}

fn is_out_of_room(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | SystemIoFailure))
}

pub(super) fn unusable(error: rusqlite::Error) -> Error {
    schema::doing("working with the search index")(error)
}

/// Looks at an index without changing it: how far it has come, how many records are cut, and what is wrong with it.
pub(super) fn look(root: &Path) -> rusqlite::Result<(u64, u64, Vec<String>)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(root.join("search.db"), flags)?;
    db.busy_timeout(Duration::from_secs(30))?;
    match marks(&db)? {
        (APPLICATION, VERSION) => {}
        // Nothing is in it yet, or what another version of us put there: the next search makes it anew.
        (0, 0) | (APPLICATION, _) => return Ok((0, 0, Vec::new())),
        _ => return Ok((0, 0, vec!["it is not an index of ours".into()])),
    }
    let mut check = db.prepare("PRAGMA quick_check(3)")?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    let damage = lines.map(|line| line.unwrap_or_else(|error| error.to_string())).filter(|line| line != "ok").collect();
    let cut: Option<i64> = mark(&db, "cut")?;
    Ok((reached(&db)?.cursor, cut.unwrap_or(0) as u64, damage))
}
