//! Writes the database anew, without what is free in it.

use rath_core::store::Result;
use rusqlite::Connection;

use super::doubt::Doubt;
use super::schema::{doing, sql};

/// As many free bytes are many.
const MANY: u64 = 4 << 20;

/// Writes the database anew, which takes as long as it is large. Returns by how many bytes it is shorter.
pub(super) fn write(db: &Connection, doubt: &Doubt, what: &str) -> Result<u64> {
    doubt.settle(db)?;
    let before = length(db)?;
    doubt.of_pages(db.execute_batch("VACUUM").map_err(doing(what)))?;
    Ok(before.saturating_sub(length(db)?))
}

/// The same, where much of it is free.
pub(super) fn write_if_worth_it(db: &Connection, doubt: &Doubt) -> Result<u64> {
    let free = pragma(db, "freelist_count")? * pragma(db, "page_size")?;
    match free >= MANY && free * 4 >= length(db)? {
        true => write(db, doubt, "giving back what is free in the database"),
        false => Ok(0),
    }
}

fn length(db: &Connection) -> Result<u64> {
    Ok(pragma(db, "page_count")? * pragma(db, "page_size")?)
}

fn pragma(db: &Connection, name: &str) -> Result<u64> {
    db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map(|value| value as u64).map_err(sql)
}
