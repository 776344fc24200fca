//! The tables, and what a connection must be told.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use rath_core::store::{Error, Result, Trouble};
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags};

use super::{log, riders, shape};

/// The format that this version writes, and the greatest it reads. 2: packs hold joined blobs. 3: runs and posts. 4: long
/// segments are squeezed. 5: little blobs ride in the database. An older store becomes one of this format when it is first written to, see `raise`.
pub const FORMAT: i64 = 5;

/// The first formats with [`ADDED_IN_3`], and with [`riders`].
pub(super) const RUNS_AND_POSTS: i64 = 3;
pub(super) const RIDERS: i64 = 5;

/// "rath" in ASCII: marks the database as ours.
const APPLICATION: i64 = 0x7261_7468;

/// WAL databases can be corrupted by several connections before this version of SQLite.
const SQLITE_AT_LEAST: i32 = 3_051_003;

/// Kinds of lineage have the codes 0 to 8; segments that hold one are found by a partial index.
pub(super) const LINEAGE: u64 = 0x1ff;

pub(super) const TABLES: &str = "
CREATE TABLE sessions (
    no              INTEGER PRIMARY KEY,
    id              BLOB NOT NULL UNIQUE,
    head            BLOB NOT NULL,
    seq             INTEGER NOT NULL,
    time            INTEGER NOT NULL,
    generation      INTEGER NOT NULL,
    birth           INTEGER NOT NULL,
    born            INTEGER NOT NULL,
    born_generation INTEGER NOT NULL,
    origin_session  BLOB,
    origin_seq      INTEGER,
    origin_id       BLOB,
    closed          INTEGER NOT NULL,
    fence           INTEGER NOT NULL,
    holder          TEXT,
    title           TEXT,
    labels          TEXT
);
CREATE INDEX sessions_origin ON sessions (origin_session) WHERE origin_session IS NOT NULL;
CREATE TABLE segments (
    cursor     INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL,
    first_seq  INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    kinds      INTEGER NOT NULL,
    data       BLOB NOT NULL
);
CREATE UNIQUE INDEX segments_place ON segments (session, first_seq);
CREATE INDEX segments_lineage ON segments (session, first_seq) WHERE kinds & 511 != 0;
CREATE TABLE snapshots (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    state   BLOB NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE TABLE packs (
    no     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL
);
CREATE TABLE blobs (
    digest   BLOB PRIMARY KEY,
    bytes    INTEGER NOT NULL,
    pack     INTEGER NOT NULL,
    offset   INTEGER NOT NULL,
    stored   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE projections (
    name   TEXT PRIMARY KEY,
    cursor INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE ids (
    prefix  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    PRIMARY KEY (prefix, segment)
) WITHOUT ROWID;
";

/// Which session was created for a run, and the inboxes. A post that was taken stays, emptied: it is known again.
pub(super) const ADDED_IN_3: &str = "
CREATE TABLE IF NOT EXISTS runs (
    key     TEXT PRIMARY KEY,
    session BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS posts (
    no      INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session BLOB NOT NULL,
    body    BLOB NOT NULL,
    taken   INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS posts_waiting ON posts (session) WHERE taken = 0;
";

pub(crate) fn sql(error: rusqlite::Error) -> Error {
    doing("working with the database")(error)
}

pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(rusqlite::Error) -> Error {
    let what = what.into();
    move |error| Error::trouble(what, trouble(&error), error)
}

/// What kind of refusal SQLite's is.
fn trouble(error: &rusqlite::Error) -> Trouble {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        // A column that holds what we never write there.
        None if matches!(
            error,
            rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        ) =>
        {
            Trouble::Damaged
        }
        Some(Code::DiskFull) => Trouble::Full,
        Some(Code::ReadOnly | Code::PermissionDenied) => Trouble::ReadOnly,
        Some(Code::SystemIoFailure) => Trouble::Disk,
        // What we write fits into the tables, and what is in them fits into memory: else they are not what they were.
        Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::ConstraintViolation | Code::TooBig) => Trouble::Damaged,
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => Trouble::Busy,
        _ => Trouble::Other,
    }
}

/// How a connection will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Writes the tables into a new database.
pub(super) fn create(path: &Path) -> Result<()> {
    check_sqlite()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(doing("creating the database"))?;
    let set_up = || {
        db.pragma_update(None, "page_size", 4096)?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} {ADDED_IN_3} {} PRAGMA user_version = {FORMAT}; COMMIT;",
            riders::TABLE
        ))
    };
    set_up().map_err(doing("creating the database"))?;
    // Closing does it too, and does not say when there is no room.
    empty_log(&db)
}

/// Writes the log over itself, byte for byte, and syncs it, while nobody appends to it. To move it into the database
/// instead would write over pages whose way back, the log, may not be there after a power cut.
pub(super) fn write_log_again(db: &Connection) -> Result<()> {
    let what = "writing the log again";
    let Some(database) = db.path().filter(|path| !path.is_empty()) else { return Ok(()) };
    let log = Path::new(database).with_extension("db-wal");
    db.execute_batch("BEGIN IMMEDIATE").map_err(doing(what))?;
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().read(true).write(true).open(log)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        file.rewind()?;
        file.write_all(&bytes)?;
        file.sync_data()
    };
    let written = write();
    let _ = db.execute_batch("ROLLBACK");
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::machine(what, error)),
        _ => Ok(()),
    }
}

/// Syncs the log. What any process committed without a sync is durable afterwards.
pub(super) fn sync_log(db: &Connection) -> Result<()> {
    let Some(database) = db.path().filter(|path| !path.is_empty()) else { return Ok(()) };
    let log = Path::new(database).with_extension("db-wal");
    let synced = std::fs::OpenOptions::new().write(true).open(log).and_then(|log| log.sync_data());
    synced.map_err(|error| Error::machine("syncing the log", error))
}

/// Moves what nobody reads any more into the database. What others still read is moved later.
pub(super) fn shorten_log(db: &Connection) -> Result<()> {
    let moved = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    moved.map_err(doing("moving the log into the database"))
}

/// Writes everything in the log into the database, durably, and cuts it off.
pub(super) fn empty_log(db: &Connection) -> Result<()> {
    let what = "moving the log into the database";
    let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(doing(what))?;
    match busy {
        0 => Ok(()),
        _ => Err(Error::trouble(what, Trouble::Busy, "another process has been reading for long")),
    }
}

/// Opens a connection and checks that the database is one we can read.
pub(super) fn connect(path: &Path, access: Access) -> Result<Connection> {
    check_sqlite()?;
    let db = match access {
        Access::Write => open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        Access::Read => open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
    };
    match marks(&db) {
        Err(error) if access == Access::Read && is_read_only(&error) && !has_log(path) => {
            // Where nothing may be written and no log is waiting, the file is read as it is.
            let db = open_unchanging(path)?;
            accept(marks(&db), path)?;
            return Ok(db);
        }
        Err(error) if is_read_only(&error) && !is_writable(path) => {
            let why = match access {
                Access::Read => "its log is to be moved into it first, and nothing may be written there",
                Access::Write => "nothing may be written there",
            };
            return Err(Error::trouble(format!("opening {}", path.display()), Trouble::ReadOnly, why));
        }
        marks => accept(marks, path)?,
    }
    if access == Access::Write {
        shape::check_triggers(&db, path)?;
        synced(&db, true).map_err(sql)?;
        // Nobody would hear when it fails.
        db.pragma_update(None, "wal_autocheckpoint", 0).map_err(sql)?;
        db.pragma_update(None, "secure_delete", "ON").map_err(sql)?;
        db.pragma_update(None, "journal_size_limit", log::ROOM).map_err(sql)?;
    }
    Ok(db)
}

/// Chooses whether commits are synced.
pub(super) fn synced(db: &Connection, yes: bool) -> rusqlite::Result<()> {
    db.execute_batch(if yes { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
}

/// The store's format.
pub(super) fn format(db: &Connection) -> Result<i64> {
    Ok(marks(db).map_err(sql)?.1)
}

/// Prepares a query of a table that a format added; `None` where an older store, opened for reading, does not have it yet.
pub(super) fn prepare_added<'db>(db: &'db Connection, query: &str, added: i64) -> Result<Option<CachedStatement<'db>>> {
    match db.prepare_cached(query) {
        Ok(statement) => Ok(Some(statement)),
        Err(_) if format(db)? < added => Ok(None),
        Err(error) => Err(sql(error)),
    }
}

/// How long one waits for another process to have written.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

fn open(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let db = db.map_err(doing("opening the database"))?;
    db.busy_timeout(PATIENCE).map_err(sql)?;
    db.set_prepared_statement_cache_capacity(64);
    // Else a statement that might use a partial index is planned anew each time something is bound to it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql)?;
    Ok(db)
}

pub(crate) fn open_unchanging(path: &Path) -> Result<Connection> {
    let escape = |c: char| match c {
        '%' | '?' | '#' => format!("%{:02x}", c as u32),
        c => c.to_string(),
    };
    let uri: String = path.to_string_lossy().chars().map(escape).collect();
    open(Path::new(&format!("file:{uri}?immutable=1")), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

pub(crate) fn has_log(path: &Path) -> bool {
    std::fs::metadata(path.with_extension("db-wal")).is_ok_and(|log| log.len() > 0)
}

fn is_read_only(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(ReadOnly | CannotOpen))
}

/// Whether its directory takes files of this process.
fn is_writable(path: &Path) -> bool {
    path.parent().is_some_and(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
}

/// What the database says it is: whose, and of which format.
fn marks(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let ask = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

fn accept(marks: rusqlite::Result<(i64, i64)>, path: &Path) -> Result<()> {
    // Where processes wrote there was a store: then its database is not what it was.
    let was_one = path.with_file_name("holders").is_dir();
    let none = || match was_one {
        true => Error::trouble(
            format!("opening {}", path.display()),
            Trouble::Damaged,
            "it is not a store's database any more: cut off, or written over",
        ),
        false => Error::NotAStore(path.display().to_string()),
    };
    match marks {
        Ok((APPLICATION, found)) if found > FORMAT => Err(Error::Future { found, known: FORMAT }),
        Ok((APPLICATION, 1..)) => Ok(()),
        Ok(_) => Err(none()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => Err(none()),
        Err(error) => Err(doing("opening the database")(error)),
    }
}

fn check_sqlite() -> Result<()> {
    match rusqlite::version_number() {
        version if version >= SQLITE_AT_LEAST => Ok(()),
        version => Err(Error::machine(
            "checking SQLite",
            format!(
                "version {version} is too old: {SQLITE_AT_LEAST} or later is needed to be safe with several processes"
            ),
        )),
    }
}
