//! The database of a projection. It is a separate file, so that updating it never takes the write lock of the store's
//! database.
//!
//! Several processes may update it at the same time: each processes the next chunk of segments under the write lock of
//! the projection's database. If a process dies, its chunk is rolled back and another process takes it. A database that
//! is damaged or has another version is replaced and rebuilt from the records.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_core::store::{Error, Result};
use rath_core::{Digest, Time};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::ProjectionError;
use crate::embedded::read::{SegmentRow, last_segment, segments_after};
use crate::embedded::{Embedded, integrity, schema};
use crate::segment::{self, SegmentEntries};

/// How often a process tries to get exclusive access to replace a database.
const LOCK_ATTEMPTS: u32 = 600;

/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection waits for a lock. Processing several chunks may take this long on a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(120);

/// The table with the cursor of the projection.
const MARKS: &str = "CREATE TABLE marks (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;";

/// The schema and the paths of a projection's database.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The name in errors.
    pub(crate) title: String,
    /// The path of the database.
    pub(crate) path: PathBuf,
    /// The lock file. Every user of the database locks it in shared mode, and a process that replaces the database
    /// exclusively.
    pub(crate) lock: PathBuf,
    /// SQLite's application id.
    pub(crate) application: i64,
    /// The version of the stored data. A database with another version is replaced.
    pub(crate) version: i64,
    /// The SQL that creates the tables, except the table `marks`.
    pub(crate) tables: &'static str,
    /// The SQL that empties the tables.
    pub(crate) empty: &'static str,
    /// The mask of the record kinds that the projection reads; 0 for all.
    pub(crate) kinds: u64,
}

/// An open database of a projection.
pub(crate) struct Database {
    pub(crate) db: Connection,
    pub(crate) layout: Layout,
    _lock: Option<File>,
}

/// The result of opening a database. `database` is `None` if it does not exist and cannot be created. `why` is the
/// reason why it cannot be written.
pub(crate) struct Opened {
    pub(crate) database: Option<Database>,
    pub(crate) why: Option<Error>,
}

/// The position up to which a projection has processed the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The number of the last processed segment.
    pub(crate) cursor: u64,
    /// The id of the last record in the last processed segment.
    last: Option<Vec<u8>>,
}

/// Processes segments in an open transaction, at least the first one. Returns the number of processed segments and of
/// their records.
pub(crate) type Fold<'a> = dyn FnMut(&Transaction<'_>, &[SegmentRow]) -> Result<(usize, u64), ProjectionError> + 'a;

impl Database {
    /// Opens the database. Replaces a database that cannot be used.
    pub(crate) fn open(layout: &Layout) -> Result<Opened> {
        let read_only = |why: Error| Ok(Opened { database: Self::open_read_only(layout), why: Some(why) });
        for _ in 0..3 {
            let lock = match lock_file(layout) {
                Ok(lock) => lock,
                Err(error) => return read_only(Error::machine(format!("opening {}", layout.lock.display()), error)),
            };
            lock.lock_shared().map_err(|error| Error::machine(format!("waiting for {}", layout.title), error))?;
            match connect(layout) {
                Ok(Some(db)) => {
                    let database = Self { db, layout: layout.clone(), _lock: Some(lock) };
                    return Ok(Opened { database: Some(database), why: None });
                }
                Ok(None) => {}
                Err(error) if is_damage(&error) => {}
                Err(error) if is_not_writable(&error) => return read_only(unusable(layout, error)),
                Err(error) => return Err(unusable(layout, error)),
            }
            drop(lock);
            replace(layout)?;
        }
        let why = format!("it cannot be replaced; remove {}", layout.path.display());
        Err(Error::machine(format!("opening {}", layout.title), why))
    }

    /// Opens an existing database for reading only.
    pub(crate) fn open_read_only(layout: &Layout) -> Option<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let ours = |db: &Connection| layout.matches(db).unwrap_or(false);
        let db = Connection::open_with_flags(&layout.path, flags).ok().filter(ours);
        // In a read-only directory, a database without a WAL can be read as an immutable file.
        let unchanging = || schema::open_unchanging(&layout.path).ok().filter(ours);
        let db = db.or_else(|| if schema::has_wal(&layout.path) { None } else { unchanging() })?;
        Some(Self { db, layout: layout.clone(), _lock: None })
    }

    /// An empty database in memory.
    pub(crate) fn in_memory(layout: &Layout) -> rusqlite::Result<Self> {
        let db = Connection::open_in_memory()?;
        db.execute_batch(&layout.make())?;
        Ok(Self { db, layout: layout.clone(), _lock: None })
    }

    /// Removes a damaged database and opens a new one.
    pub(crate) fn recreate(self) -> Result<Opened> {
        let Self { db, layout, _lock } = self;
        drop((db, _lock));
        remove(&layout)?;
        Self::open(&layout)
    }

    /// The position up to which the records are processed.
    pub(crate) fn reached(&self) -> rusqlite::Result<Reached> {
        reached(&self.db)
    }

    /// Processes the records that were committed since the last call. Calls `progress` with the number of records read
    /// so far.
    pub(crate) fn catch_up(
        &mut self,
        store: &Embedded,
        fold: &mut Fold<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ProjectionError> {
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
            seen += self.process_chunk(store, fold)?;
            progress(seen);
            // Without progress by this process or another one, a segment cannot be found, and this loop would not end.
            if self.reached()?.cursor == from && store.read(last_segment)? as u64 == last {
                return Err(integrity::missing_segment(last as i64).into());
            }
        }
    }

    /// Whether the last processed segment is still the same in the store. A store that was restored from an older copy
    /// may have another segment with that number.
    fn is_of(&self, store: &Embedded) -> Result<bool, ProjectionError> {
        let Reached { cursor, last } = self.reached()?;
        let Some(last) = last else { return Ok(cursor == 0) };
        Ok(match store.read(|db| last_id_of(db, cursor))? {
            Some(there) => there == last,
            // The segment was removed. Its number is reused only if no segment has a higher number.
            None => store.read(last_segment)? as u64 > cursor,
        })
    }

    fn process_chunk(&mut self, store: &Embedded, fold: &mut Fold<'_>) -> Result<u64, ProjectionError> {
        let kinds = self.layout.kinds;
        let chunk = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read under the write lock, so that a concurrent removal of erased records runs before or after this chunk.
        let from = reached(&chunk)?;
        let (rows, end) = store.read(|db| segments_after(db, from.cursor as i64, kinds))?;
        let (processed, records) = if rows.is_empty() { (0, 0) } else { fold(&chunk, &rows)? };
        if rows.is_empty() && kinds == 0 {
            return Ok(0);
        }
        // The chunk ends with the last processed segment.
        let end = if processed < rows.len() { rows[processed.max(1) - 1].cursor } else { end };
        if end as u64 <= from.cursor {
            return Ok(0);
        }
        let last = match rows.iter().find(|row| row.cursor == end) {
            Some(row) => last_id(&row.data),
            None => store.read(|db| last_id_of(db, end as u64))?,
        };
        reach(&chunk, &Reached { cursor: end as u64, last })?;
        chunk.commit()?;
        Ok(records)
    }

    /// Empties the database. It is rebuilt when it is next used.
    pub(crate) fn clear(&mut self) -> rusqlite::Result<()> {
        let clearing = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        clearing.execute_batch(self.layout.empty)?;
        clearing.execute_batch("DELETE FROM marks")?;
        clearing.commit()
    }

    /// Checkpoints and truncates the write-ahead log, so that it contains no removed data.
    pub(crate) fn truncate_wal(&self) -> Result<()> {
        let busy = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match busy.map_err(|error| unusable(&self.layout, error))? {
            0 => Ok(()),
            _ => Err(Error::machine(
                format!("truncating the log of {}", self.layout.title),
                "another process is reading it; try again when that search has finished",
            )),
        }
    }
}

impl Layout {
    fn make(&self) -> String {
        format!("{MARKS} {}", self.tables)
    }

    /// Whether a database has this application id and version.
    fn matches(&self, db: &Connection) -> rusqlite::Result<bool> {
        Ok(marks_of(db)? == (self.application, self.version))
    }
}

/// The id of the last record of a segment of the store.
fn last_id_of(store: &Connection, cursor: u64) -> Result<Option<Vec<u8>>> {
    let data: Option<Vec<u8>> = store
        .prepare_cached("SELECT data FROM segments WHERE cursor = ?1")
        .and_then(|mut query| query.query_row([cursor as i64], |row| row.get(0)).optional())
        .map_err(schema::sql)?;
    Ok(data.and_then(|data| last_id(&segment::decompress(&data))))
}

fn last_id(data: &[u8]) -> Option<Vec<u8>> {
    let entry = SegmentEntries::of(data).map_while(std::result::Result::ok).last()?;
    Some(Digest::of(&data[entry.header.start as usize..entry.header.end as usize]).0.to_vec())
}

fn reached(db: &Connection) -> rusqlite::Result<Reached> {
    Ok(Reached { cursor: mark::<i64>(db, "cursor")?.unwrap_or(0) as u64, last: mark(db, "last")? })
}

/// The value of a row of the table `marks`.
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

/// Opens a connection; `None` if the database has another application id or version.
fn connect(layout: &Layout) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&layout.path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    let ours = match marks_of(&db)? {
        (0, 0) => create(&db, layout)?,
        marks => marks == (layout.application, layout.version),
    };
    if !ours {
        return Ok(None);
    }
    // Commits that a power cut loses are repeated from the records.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // Removed data is overwritten in free pages.
    db.pragma_update(None, "secure_delete", "ON")?;
    db.pragma_update(None, "cache_size", -32_000)?;
    Ok(Some(db))
}

/// Creates the tables of a new database. Another process may do the same at the same time.
fn create(db: &Connection, layout: &Layout) -> rusqlite::Result<bool> {
    set_wal_mode(db)?;
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
    layout.matches(db)
}

/// Switches a new database to WAL mode. If two processes do this at the same time, SQLite returns `SQLITE_BUSY` to one
/// of them without waiting, so it is repeated.
fn set_wal_mode(db: &Connection) -> rusqlite::Result<()> {
    let began = Time::now();
    let is_busy = |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
    loop {
        let is_early = Time::now().micros_since(began) < BUSY_TIMEOUT.as_micros() as u64;
        match db.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && is_early => std::thread::sleep(LOCK_PAUSE / 10),
            done => return done,
        }
    }
}

/// The application id and the version of a database.
pub(crate) fn marks_of(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let ask = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

/// Removes a database that cannot be used, when no process uses it. Does nothing if another process has replaced it
/// already.
fn replace(layout: &Layout) -> Result<()> {
    let lock = lock_exclusively(layout)?;
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

/// Removes the database, when no process uses it.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let lock = lock_exclusively(layout)?;
    remove_files(&layout.path)?;
    drop(lock);
    Ok(())
}

fn lock_exclusively(layout: &Layout) -> Result<File> {
    let lock =
        lock_file(layout).map_err(|error| Error::machine(format!("opening {}", layout.lock.display()), error))?;
    for _ in 0..LOCK_ATTEMPTS {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => {
                return Err(Error::machine(format!("waiting for exclusive access to {}", layout.title), error));
            }
        }
    }
    let why = "another process has been using it for 60 s; try again when that process has finished";
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
        // A missing table.
        Some(ErrorCode::Unknown) => error.to_string().contains("no such"),
        _ => matches!(error, rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..)),
    }
}

pub(super) fn is_not_writable(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | SystemIoFailure))
}

fn unusable(layout: &Layout, error: rusqlite::Error) -> Error {
    schema::doing(format!("working with {}", layout.title))(error)
}
