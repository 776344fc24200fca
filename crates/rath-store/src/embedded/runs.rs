//! Which session was created for a run. The `created` record says it; the table makes sure that only one does.

use rath_core::SessionId;
use rath_core::store::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, sql};

/// Fails when the run was begun by another session.
pub(super) fn check(db: &Connection, key: String, session: SessionId) -> Result<()> {
    let query = "SELECT session FROM runs WHERE key = ?1";
    let found = db.prepare_cached(query).and_then(|mut query| query.query_row([&key], |row| row.get(0)).optional());
    match found.map_err(sql)?.map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes))) {
        Some(other) if other != session => Err(Error::RunTaken { key, session: other }),
        _ => Ok(()),
    }
}

/// Whether the run with this key is of this session.
pub(super) fn is(db: &Connection, key: &str, session: SessionId) -> Result<bool> {
    let query = "SELECT 1 FROM runs WHERE key = ?1 AND session = ?2";
    let found = db.prepare_cached(query).and_then(|mut query| query.exists(params![key, session.0.as_bytes()]));
    found.map_err(sql)
}

/// Enters the session that a run begins with.
pub(super) fn begin(db: &Connection, key: String, session: SessionId) -> Result<()> {
    // Two sessions of one batch may claim the same run.
    db.prepare_cached("INSERT OR IGNORE INTO runs (key, session) VALUES (?1, ?2)")
        .and_then(|mut insert| insert.execute(params![key, session.0.as_bytes()]))
        .map_err(sql)?;
    check(db, key, session)
}

/// Every run and its session, as the table has them.
pub(super) fn all(db: &Connection) -> Result<Vec<(String, SessionId)>> {
    let Some(mut query) =
        schema::prepare_added(db, "SELECT key, session FROM runs ORDER BY key", schema::RUNS_AND_POSTS)?
    else {
        return Ok(Vec::new());
    };
    let rows = query.query_map([], |row| Ok((row.get(0)?, SessionId(uuid::Uuid::from_bytes(row.get(1)?)))));
    rows.map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)
}
