//! The tables of the database, the settings of its connections, and the conversion of SQLite's errors.

use std::borrow::Cow;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use rath_core::store::{Error, IoErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags};

use super::{inline_blobs, schema_check, wal};

/// The store format that this version writes, and the highest that it writes to. The first write to an older store
/// upgrades it: see `upgrade.rs`. What each format added is in `STEPS`.
pub const FORMAT: i64 = 6;

/// What each format added to the database, oldest first. All steps create a new store. The steps after an older store's
/// format upgrade it. The steps up to a format are the expected schema of stores of that format.
///
/// To add a column, append a step with `ALTER TABLE … ADD COLUMN`; never change an existing step. So the schema text
/// that SQLite keeps is the same in a new store and in an upgraded one. A query of such a column must name it with
/// [`columns`], because a store of an older format that is opened for reading does not have it.
pub(super) const STEPS: &[(i64, &str)] = &[
    (1, TABLES),
    // Packs may have joined blobs. The tables do not change.
    (2, ""),
    (3, ADDED_IN_3),
    // Segments may be compressed. Existing segments do not change.
    (4, ""),
    (5, inline_blobs::TABLE),
    // Record kinds with the codes 46 to 49 and 56: the tables stay the same. A version that does not know these codes
    // must not write such a store, because it would store new records of these kinds under `Kind::OTHER_CODE`.
    (6, ""),
];

/// The first format with the tables `runs` and `posts`.
pub(super) const RUNS_AND_POSTS: i64 = 3;

/// The first format with the table of [`inline_blobs`].
pub(super) const INLINE_BLOBS: i64 = 5;

/// SQLite's application id of a store: "rath" in ASCII.
const APPLICATION: i64 = 0x7261_7468;

/// The oldest version of SQLite that is accepted. Earlier versions can corrupt a WAL database with several connections.
const SQLITE_AT_LEAST: i32 = 3_051_003;

/// The mask of the kinds with the codes 0 to 8, which record the lineage of sessions. A partial index lists the
/// segments with such records.
pub(super) const LINEAGE: u64 = 0x1ff;

const TABLES: &str = "
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

/// `runs` is the session of each run key, and `posts` the inboxes. A consumed post keeps its row with an empty body, so
/// that the same post is not delivered twice.
const ADDED_IN_3: &str = "
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
    move |error| Error::with_kind(what, io_error_kind(&error), error)
}

/// The I/O error kind of a SQLite error.
fn io_error_kind(error: &rusqlite::Error) -> IoErrorKind {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        // A column has a value of a type that is never written to it.
        None if matches!(
            error,
            rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        ) =>
        {
            IoErrorKind::Damaged
        }
        Some(Code::DiskFull) => IoErrorKind::Full,
        Some(Code::ReadOnly | Code::PermissionDenied) => IoErrorKind::ReadOnly,
        Some(Code::SystemIoFailure) => IoErrorKind::Disk,
        // These errors cannot come from valid data: what is written satisfies the constraints and the size limits.
        Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::ConstraintViolation | Code::TooBig) => {
            IoErrorKind::Damaged
        }
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => IoErrorKind::Busy,
        _ => IoErrorKind::Other,
    }
}

/// Whether a connection reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Creates a database with all tables.
pub(super) fn create(path: &Path) -> Result<()> {
    check_sqlite()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(doing("creating the database"))?;
    let set_up = || {
        db.pragma_update(None, "page_size", 4096)?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        let tables: String = STEPS.iter().map(|(_, step)| *step).collect();
        db.execute_batch(&format!("BEGIN IMMEDIATE; {tables} PRAGMA user_version = {FORMAT}; COMMIT;"))
    };
    set_up().map_err(doing("creating the database"))?;
    // Closing the connection does this too, but reports no error if the disk is full.
    truncate_wal(&db)
}

/// Overwrites the WAL with its own bytes and syncs it, under the write lock. A checkpoint would be wrong here: it
/// overwrites database pages, and the WAL that could restore them may not be on the disk after a power cut.
pub(super) fn rewrite_wal(db: &Connection) -> Result<()> {
    let what = "rewriting the database log";
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

/// Syncs the WAL. Commits of all processes that were made without a sync are durable afterwards.
pub(super) fn sync_wal(db: &Connection) -> Result<()> {
    let Some(database) = db.path().filter(|path| !path.is_empty()) else { return Ok(()) };
    let log = Path::new(database).with_extension("db-wal");
    let set_synchronous = std::fs::OpenOptions::new().write(true).open(log).and_then(|log| log.sync_data());
    set_synchronous.map_err(|error| Error::machine("syncing the log", error))
}

/// Copies the part of the WAL that no reader needs into the database.
pub(super) fn checkpoint_wal(db: &Connection) -> Result<()> {
    let moved = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    moved.map_err(doing("moving the log into the database"))
}

/// Copies the whole WAL into the database, durably, and truncates the WAL.
pub(super) fn truncate_wal(db: &Connection) -> Result<()> {
    let what = "moving the log into the database";
    let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(doing(what))?;
    match busy {
        0 => Ok(()),
        _ => Err(Error::with_kind(what, IoErrorKind::Busy, "another process has a long read transaction")),
    }
}

/// Opens a connection, and checks that the database is a store of a format that this version can read, or write.
pub(super) fn connect(path: &Path, access: Access) -> Result<Connection> {
    check_sqlite()?;
    let db = match access {
        Access::Write => open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        Access::Read => open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
    };
    match marks(&db) {
        Err(error) if access == Access::Read && is_read_only(&error) && !has_wal(path) => {
            // In a read-only directory, a database without a WAL can be read as an immutable file.
            let db = open_unchanging(path)?;
            accept(marks(&db), path, &db, access)?;
            return Ok(db);
        }
        Err(error) if is_read_only(&error) && !is_writable(path) => {
            let why = match access {
                Access::Read => {
                    "the directory is read-only, and the database log must be moved into the database before it can be read"
                }
                Access::Write => "the directory is read-only",
            };
            return Err(Error::with_kind(format!("opening {}", path.display()), IoErrorKind::ReadOnly, why));
        }
        found => accept(found, path, &db, access)?,
    }
    if access == Access::Write {
        schema_check::check_triggers(&db, path)?;
        set_synchronous(&db, true).map_err(sql)?;
        // A failed automatic checkpoint would not be reported. The writer checkpoints itself.
        db.pragma_update(None, "wal_autocheckpoint", 0).map_err(sql)?;
        db.pragma_update(None, "secure_delete", "ON").map_err(sql)?;
        db.pragma_update(None, "journal_size_limit", wal::SIZE_LIMIT).map_err(sql)?;
    }
    Ok(db)
}

/// Sets whether commits of a connection are synced.
pub(super) fn set_synchronous(db: &Connection, yes: bool) -> rusqlite::Result<()> {
    db.execute_batch(if yes { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
}

/// The format of the store.
pub(super) fn format(db: &Connection) -> Result<i64> {
    Ok(marks(db).map_err(sql)?.1)
}

/// Prepares a query of a table that the format `added` introduced; `None` if the store has an older format, without
/// that table.
pub(super) fn prepare_added<'db>(db: &'db Connection, query: &str, added: i64) -> Result<Option<CachedStatement<'db>>> {
    match db.prepare_cached(query) {
        Ok(statement) => Ok(Some(statement)),
        Err(_) if format(db)? < added => Ok(None),
        Err(error) => Err(sql(error)),
    }
}

/// The column list of a query: `first` are columns that every format has, `later` are added columns, each with the
/// format that added it. For a store of an older format, missing columns are replaced by NULL.
pub(super) fn columns<'a>(db: &Connection, first: &'a str, later: &[(&str, i64)]) -> Result<Cow<'a, str>> {
    if later.is_empty() {
        return Ok(first.into());
    }
    let format = format(db)?;
    let later = later.iter().map(|(column, since)| if format < *since { "NULL" } else { *column });
    Ok([first].into_iter().chain(later).collect::<Vec<_>>().join(", ").into())
}

/// How long a connection waits for a lock on the database.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

fn open(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let db = db.map_err(doing("opening the database"))?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(sql)?;
    db.set_prepared_statement_cache_capacity(64);
    // Without this, a statement that could use a partial index is planned again for each set of bound values.
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

pub(crate) fn has_wal(path: &Path) -> bool {
    std::fs::metadata(path.with_extension("db-wal")).is_ok_and(|log| log.len() > 0)
}

fn is_read_only(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(ReadOnly | CannotOpen))
}

/// Whether this process can create files in the directory of the database.
fn is_writable(path: &Path) -> bool {
    path.parent().is_some_and(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
}

/// The application id and the format of the database.
fn marks(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let ask = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

/// Returns an error for a database that is not a store. A store of a later format cannot be written, and can be read
/// only if it has every table and column that this version reads.
fn accept(marks: rusqlite::Result<(i64, i64)>, path: &Path, db: &Connection, access: Access) -> Result<()> {
    // The directory `holders` exists only where a process has written to a store, so a foreign file there is a damaged
    // database.
    let was_one = path.with_file_name("holders").is_dir();
    let none = || match was_one {
        true => Error::with_kind(
            format!("opening {}", path.display()),
            IoErrorKind::Damaged,
            "the file is not a store's database any more: it was truncated or overwritten",
        ),
        false => Error::NotAStore(path.display().to_string()),
    };
    match marks {
        Ok((APPLICATION, found)) if found > FORMAT => {
            match access == Access::Read && schema_check::has_all_columns(db)? {
                true => Ok(()),
                false => Err(Error::Future { found, known: FORMAT }),
            }
        }
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
