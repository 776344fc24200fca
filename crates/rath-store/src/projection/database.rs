//! The database of a projection: a file beside the ledger, so that folding never takes the ledger's write lock.
//!
//! Several processes may catch up at once: each takes the next piece under the database's own lock. Whoever dies in the
//! middle leaves the piece to the next. What is damaged, missing or of another version is emptied or replaced, and
//! folded again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_core::store::{Error, Result};
use rath_core::{Digest, Time};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::Trouble;
use crate::embedded::read::{SegmentRow, last_segment, segments_after};
use crate::embedded::{Embedded, lines, schema};
use crate::segment::{self, Slots};

/// How often whoever replaces a database looks whether others are done with it, and how long it waits in between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// As long as some pieces take on a slow disk.
const LONGEST: Duration = Duration::from_secs(120);

/// How far it has come.
const MARKS: &str = "CREATE TABLE marks (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;";

/// What the database of a projection looks like, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// What errors call it.
    pub(crate) title: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// Held by all who use the database; alone, by who replaces it.
    pub(crate) lock: PathBuf,
    /// Marks the database as ours.
    pub(crate) application: i64,
    /// Changes with what is stored and how: a database of another version is replaced.
    pub(crate) version: i64,
    /// Makes its tables, besides that of marks.
    pub(crate) tables: &'static str,
    /// Empties them.
    pub(crate) empty: &'static str,
    /// The kinds of records that it folds, as a mask; 0 for all.
    pub(crate) kinds: u64,
}

/// The database of a projection, open.
pub(crate) struct Database {
    pub(crate) db: Connection,
    pub(crate) layout: Layout,
    _lock: Option<File>,
}

/// A database, where there is one, and why it cannot be written, where it cannot.
pub(crate) struct Opened {
    pub(crate) database: Option<Database>,
    pub(crate) why: Option<Error>,
}

/// How far a projection has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The last segment.
    pub(crate) cursor: u64,
    /// The id of the last record in it.
    last: Option<Vec<u8>>,
}

/// Folds segments in an open transaction, at least the first of them. Returns how many, and how many records they had.
pub(crate) type Fold<'a> = dyn FnMut(&Transaction<'_>, &[SegmentRow]) -> Result<(usize, u64), Trouble> + 'a;

impl Database {
    /// Opens the database, made anew where it cannot be used.
    pub(crate) fn open(layout: &Layout) -> Result<Opened> {
        let as_it_is = |why: Error| Ok(Opened { database: Self::open_as_it_is(layout), why: Some(why) });
        for _ in 0..3 {
            let lock = match lock_file(layout) {
                Ok(lock) => lock,
                Err(error) => return as_it_is(Error::machine(format!("opening {}", layout.lock.display()), error)),
            };
            lock.lock_shared().map_err(|error| Error::machine(format!("waiting for {}", layout.title), error))?;
            match connect(layout) {
                Ok(Some(db)) => {
                    let database = Self { db, layout: layout.clone(), _lock: Some(lock) };
                    return Ok(Opened { database: Some(database), why: None });
                }
                Ok(None) => {}
                Err(error) if is_damage(&error) => {}
                Err(error) if is_out_of_room(&error) => return as_it_is(unusable(layout, error)),
                Err(error) => return Err(unusable(layout, error)),
            }
            drop(lock);
            replace(layout)?;
        }
        let why = format!("it cannot be made anew; remove {}", layout.path.display());
        Err(Error::machine(format!("opening {}", layout.title), why))
    }

    /// Opens a database that is there, where nothing may be written.
    pub(crate) fn open_as_it_is(layout: &Layout) -> Option<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let ours = |db: &Connection| layout.is_that_of(db).unwrap_or(false);
        let db = Connection::open_with_flags(&layout.path, flags).ok().filter(ours);
        // Where no log is waiting, the file is read as it is.
        let unchanging = || schema::open_unchanging(&layout.path).ok().filter(ours);
        let db = db.or_else(|| if schema::has_log(&layout.path) { None } else { unchanging() })?;
        Some(Self { db, layout: layout.clone(), _lock: None })
    }

    /// An empty one that nobody else sees.
    pub(crate) fn in_memory(layout: &Layout) -> rusqlite::Result<Self> {
        let db = Connection::open_in_memory()?;
        db.execute_batch(&layout.make())?;
        Ok(Self { db, layout: layout.clone(), _lock: None })
    }

    /// Gives up a damaged database and opens a new one.
    pub(crate) fn anew(self) -> Result<Opened> {
        let Self { db, layout, _lock } = self;
        drop((db, _lock));
        remove(&layout)?;
        Self::open(&layout)
    }

    /// How far it has come.
    pub(crate) fn reached(&self) -> rusqlite::Result<Reached> {
        reached(&self.db)
    }

    /// Folds what was committed since the last time. `progress` hears how many records were read.
    pub(crate) fn catch_up(
        &mut self,
        store: &Embedded,
        fold: &mut Fold<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Trouble> {
        if !self.is_of(store)? {
            self.clear()?;
        }
        let mut seen = 0;
        loop {
            let last = store.read(last_segment)? as u64;
            let from = self.reached()?.cursor;
            if from >= last {
                return Ok(());
            }
            seen += self.catch_up_a_piece(store, fold)?;
            progress(seen);
            // Others may have come further meanwhile, or removed what was left; else it stands still for good.
            if self.reached()?.cursor == from && store.read(last_segment)? as u64 == last {
                return Err(lines::unreadable(last as i64).into());
            }
        }
    }

    /// Whether the segment that was folded last is still the one that the store has there. A store that was set back,
    /// and went on otherwise, has another.
    fn is_of(&self, store: &Embedded) -> Result<bool, Trouble> {
        let Reached { cursor, last } = self.reached()?;
        let Some(last) = last else { return Ok(cursor == 0) };
        Ok(match store.read(|db| last_id_of(db, cursor))? {
            Some(there) => there == last,
            // It was removed; numbers are given again only when there is no greater one.
            None => store.read(last_segment)? as u64 > cursor,
        })
    }

    fn catch_up_a_piece(&mut self, store: &Embedded, fold: &mut Fold<'_>) -> Result<u64, Trouble> {
        let kinds = self.layout.kinds;
        let piece = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read under the lock: what is forgotten meanwhile waits, and sees what was written here.
        let from = reached(&piece)?;
        let (rows, end) = store.read(|db| segments_after(db, from.cursor as i64, kinds))?;
        let (taken, records) = if rows.is_empty() { (0, 0) } else { fold(&piece, &rows)? };
        if rows.is_empty() && kinds == 0 {
            return Ok(0);
        }
        // Where not all of them were taken, the piece ends with the last one that was.
        let end = if taken < rows.len() { rows[taken.max(1) - 1].cursor } else { end };
        if end as u64 <= from.cursor {
            return Ok(0);
        }
        let last = match rows.iter().find(|row| row.cursor == end) {
            Some(row) => last_id(&row.data),
            None => store.read(|db| last_id_of(db, end as u64))?,
        };
        reach(&piece, &Reached { cursor: end as u64, last })?;
        piece.commit()?;
        Ok(records)
    }

    /// Empties it for good; it is filled again at the next question.
    pub(crate) fn clear(&mut self) -> rusqlite::Result<()> {
        let clearing = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        clearing.execute_batch(self.layout.empty)?;
        clearing.execute_batch("DELETE FROM marks")?;
        clearing.commit()
    }

    /// Moves the log into the database and cuts it off, so that nothing that was taken out is left in it.
    pub(crate) fn flush(&self) -> Result<()> {
        let busy = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match busy.map_err(|error| unusable(&self.layout, error))? {
            0 => Ok(()),
            _ => Err(Error::machine(
                format!("cutting off the log of {}", self.layout.title),
                "another process is reading it; try again when its search is over",
            )),
        }
    }
}

impl Layout {
    fn make(&self) -> String {
        format!("{MARKS} {}", self.tables)
    }

    /// Whether a database is this one, of this version.
    fn is_that_of(&self, db: &Connection) -> rusqlite::Result<bool> {
        Ok(marks_of(db)? == (self.application, self.version))
    }
}

/// The id of the last record of a segment of the ledger.
fn last_id_of(ledger: &Connection, cursor: u64) -> Result<Option<Vec<u8>>> {
    let data: Option<Vec<u8>> = ledger
        .prepare_cached("SELECT data FROM segments WHERE cursor = ?1")
        .and_then(|mut query| query.query_row([cursor as i64], |row| row.get(0)).optional())
        .map_err(schema::sql)?;
    Ok(data.and_then(|data| last_id(&segment::unfold(&data))))
}

fn last_id(data: &[u8]) -> Option<Vec<u8>> {
    let slot = Slots::of(data).map_while(std::result::Result::ok).last()?;
    Some(Digest::of(&data[slot.header.start as usize..slot.header.end as usize]).0.to_vec())
}

fn reached(db: &Connection) -> rusqlite::Result<Reached> {
    Ok(Reached { cursor: mark::<i64>(db, "cursor")?.unwrap_or(0) as u64, last: mark(db, "last")? })
}

/// What is noted under a name.
pub(crate) fn mark<T: rusqlite::types::FromSql>(db: &Connection, name: &str) -> rusqlite::Result<Option<T>> {
    db.prepare_cached("SELECT value FROM marks WHERE name = ?1")?.query_row([name], |row| row.get(0)).optional()
}

fn reach(db: &Connection, to: &Reached) -> rusqlite::Result<()> {
    let mut set = db.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2)")?;
    set.execute(params!["cursor", to.cursor as i64])?;
    set.execute(params!["last", to.last])?;
    Ok(())
}

fn lock_file(layout: &Layout) -> std::io::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&layout.lock);
    match open() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            layout.lock.parent().map_or(Ok(()), fs::create_dir_all)?;
            open()
        }
        opened => opened,
    }
}

/// A connection on a database that is ours; `None` when it is another's, or of another version.
fn connect(layout: &Layout) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&layout.path, flags)?;
    db.busy_timeout(LONGEST)?;
    let ours = match marks_of(&db)? {
        (0, 0) => create(&db, layout)?,
        marks => marks == (layout.application, layout.version),
    };
    if !ours {
        return Ok(None);
    }
    // What a crash of the machine takes from it is read again from the ledger.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // Nothing that was taken out stays in a page that is free.
    db.pragma_update(None, "secure_delete", "ON")?;
    db.pragma_update(None, "cache_size", -32_000)?;
    Ok(Some(db))
}

/// Writes the tables into a new database. Another process may be doing the same.
fn create(db: &Connection, layout: &Layout) -> rusqlite::Result<bool> {
    keep_a_log(db)?;
    let making = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    if marks_of(&making)? == (0, 0) {
        let empty: bool = making.query_row("SELECT count(*) = 0 FROM sqlite_master", [], |row| row.get(0))?;
        if !empty {
            return Ok(false);
        }
        making.execute_batch(&layout.make())?;
        making.pragma_update(None, "application_id", layout.application)?;
        making.pragma_update(None, "user_version", layout.version)?;
        making.commit()?;
    }
    layout.is_that_of(db)
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

/// What a database says it is: whose, and of which version.
pub(crate) fn marks_of(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let ask = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

/// Removes a database that cannot be used, when nobody uses it and nobody else has replaced it.
fn replace(layout: &Layout) -> Result<()> {
    let lock = alone(layout)?;
    let useless = match connect(layout) {
        Ok(db) => db.is_none(),
        Err(error) => is_damage(&error),
    };
    if useless {
        remove_files(&layout.path)?;
    }
    drop(lock);
    Ok(())
}

/// Removes the database.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let lock = alone(layout)?;
    remove_files(&layout.path)?;
    drop(lock);
    Ok(())
}

fn alone(layout: &Layout) -> Result<File> {
    let lock =
        lock_file(layout).map_err(|error| Error::machine(format!("opening {}", layout.lock.display()), error))?;
    for _ in 0..LOOKS {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => {
                return Err(Error::machine(format!("waiting for others who use {}", layout.title), error));
            }
        }
    }
    let why = "another process has been using it for a minute; try again when it is done";
    Err(Error::machine(format!("replacing {}", layout.title), why))
}

fn remove_files(path: &Path) -> Result<()> {
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

pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        // A table that is gone.
        Some(ErrorCode::Unknown) => error.to_string().contains("no such"),
        _ => matches!(error, rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..)),
    }
}

pub(super) fn is_out_of_room(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | SystemIoFailure))
}

fn unusable(layout: &Layout, error: rusqlite::Error) -> Error {
    schema::doing(format!("working with {}", layout.title))(error)
}
