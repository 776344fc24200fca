//! Rebuilds the database file without its free pages.

use rath_core::store::Result;
use rusqlite::Connection;

use super::schema::{doing, sql};
use super::suspect_wal::SuspectWal;

/// The least bytes of free pages for which [`run_if_worth_it`] rebuilds the file.
const MIN_FREE: u64 = 4 << 20;

/// Rebuilds the database file. The time is proportional to the size of the database. Returns how many bytes shorter the
/// file is.
pub(super) fn run(db: &Connection, suspect_wal: &SuspectWal, what: &str) -> Result<u64> {
    suspect_wal.repair(db)?;
    let before = length(db)?;
    suspect_wal.check_database(db.execute_batch("VACUUM").map_err(doing(what)))?;
    Ok(before.saturating_sub(length(db)?))
}

/// Rebuilds the database file if at least a quarter of it, and at least 4 MiB, is free.
pub(super) fn run_if_worth_it(db: &Connection, suspect_wal: &SuspectWal) -> Result<u64> {
    let free = pragma(db, "freelist_count")? * pragma(db, "page_size")?;
    match free >= MIN_FREE && free * 4 >= length(db)? {
        true => run(db, suspect_wal, "compacting the database"),
        false => Ok(0),
    }
}

fn length(db: &Connection) -> Result<u64> {
    Ok(pragma(db, "page_count")? * pragma(db, "page_size")?)
}

fn pragma(db: &Connection, name: &str) -> Result<u64> {
    db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map(|value| value as u64).map_err(sql)
}
