//! The index of runs: the session of each run key. The `created` record of a session has the key; the table ensures
//! that only one session has it.

use rath_core::SessionId;
use rath_core::store::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, sql};

/// Returns an error if another session was created for the run.
pub(super) fn check(db: &Connection, key: String, session: SessionId) -> Result<()> {
    let query = "SELECT session FROM runs WHERE key = ?1";
    let found = db.prepare_cached(query).and_then(|mut query| query.query_row([&key], |row| row.get(0)).optional());
    match found.map_err(sql)?.map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes))) {
        Some(other) if other != session => Err(Error::RunTaken { key, session: other }),
        _ => Ok(()),
    }
}

/// Whether this session was created for the run with this key.
pub(super) fn is(db: &Connection, key: &str, session: SessionId) -> Result<bool> {
    let query = "SELECT 1 FROM runs WHERE key = ?1 AND session = ?2";
    let found = db.prepare_cached(query).and_then(|mut query| query.exists(params![key, session.0.as_bytes()]));
    found.map_err(sql)
}

/// Inserts the session of a run.
pub(super) fn insert(db: &Connection, key: String, session: SessionId) -> Result<()> {
    // Two sessions of one batch may claim the same run.
    db.prepare_cached("INSERT OR IGNORE INTO runs (key, session) VALUES (?1, ?2)")
        .and_then(|mut insert| insert.execute(params![key, session.0.as_bytes()]))
        .map_err(sql)?;
    check(db, key, session)
}

/// All rows of the table.
pub(super) fn all(db: &Connection) -> Result<Vec<(String, SessionId)>> {
    let Some(mut query) =
        schema::prepare_added(db, "SELECT key, session FROM runs ORDER BY key", schema::RUNS_AND_POSTS)?
    else {
        return Ok(Vec::new());
    };
    let rows = query.query_map([], |row| Ok((row.get(0)?, SessionId(uuid::Uuid::from_bytes(row.get(1)?)))));
    rows.map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)
}
