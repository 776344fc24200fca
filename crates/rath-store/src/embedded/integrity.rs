//! Checks that no rows are missing: each session has a row and all its records, and each pack that a blob is in has a
//! row.
//!
//! If SQLite loses a page, queries return fewer rows, and no error. Garbage collection and erasure delete blobs that no
//! record refers to, so they first check that all records are visible.

use std::collections::HashMap;

use rath_core::SessionId;
use rath_core::store::{Error, IoErrorKind, Result};
use rusqlite::Connection;

use super::schema::sql;

/// The most faults that are reported.
const MAX_FAULTS: usize = 10;

/// The extent of a session's segments.
struct Extent {
    records: i64,
    first: i64,
    end: i64,
    segment: i64,
}

/// Returns an error if rows are missing, because blobs that are still referenced would look unreferenced.
pub(super) fn check(db: &Connection) -> Result<()> {
    match faults(db)?.into_iter().next() {
        None => Ok(()),
        Some(why) => Err(damaged("checking that the store is complete", why)),
    }
}

/// Describes the missing rows.
pub(super) fn faults(db: &Connection) -> Result<Vec<String>> {
    let mut extents: HashMap<i64, Extent> = HashMap::new();
    // Read from the tables and not from an index, which may still have rows that the table lost.
    let mut segments = db
        .prepare("SELECT session, first_seq, count, cursor FROM segments NOT INDEXED ORDER BY cursor")
        .map_err(sql)?;
    let mut rows = segments.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let number = |at: usize| row.get::<_, i64>(at).map_err(sql);
        let (session, first, count, cursor) = (number(0)?, number(1)?, number(2)?, number(3)?);
        let extent = extents.entry(session).or_insert(Extent { records: 0, first, end: 0, segment: cursor });
        extent.records = extent.records.saturating_add(count);
        extent.first = extent.first.min(first);
        extent.end = extent.end.max(first.saturating_add(count));
    }
    let mut faults = Vec::new();
    let mut sessions = db.prepare("SELECT no, id, seq FROM sessions NOT INDEXED").map_err(sql)?;
    let mut rows = sessions.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let no: i64 = row.get(0).map_err(sql)?;
        let id = SessionId(uuid::Uuid::from_bytes(row.get(1).map_err(sql)?));
        let listed = row.get::<_, i64>(2).map_err(sql)?.saturating_add(1);
        let there = extents.remove(&no).unwrap_or(Extent { records: 0, first: 0, end: 0, segment: 0 });
        if (there.records, there.first, there.end) != (listed, 0, listed) {
            faults.push(format!("session {id} should have {listed} records, but has {}", there.records));
        }
    }
    let mut unlisted: Vec<i64> = extents.into_values().map(|extent| extent.segment).collect();
    unlisted.sort_unstable();
    faults.extend(unlisted.into_iter().map(no_session_of));
    let lost = "SELECT DISTINCT pack FROM blobs WHERE pack != 0 AND pack NOT IN (SELECT no FROM packs NOT INDEXED)";
    let mut lost = db.prepare(lost).map_err(sql)?;
    for pack in lost.query_map([], |row| row.get::<_, i64>(0)).map_err(sql)? {
        faults.push(format!("blobs are in pack {}, which is not in the table of packs", pack.map_err(sql)?));
    }
    faults.truncate(MAX_FAULTS);
    Ok(faults)
}

/// Returns an error if the table `sessions` has lost rows that its index still has. Fast enough for every listing of
/// sessions.
pub(super) fn check_session_list(db: &Connection) -> Result<()> {
    let query = "SELECT (SELECT count(*) FROM sessions NOT INDEXED),
        (SELECT count(id) FROM sessions INDEXED BY sqlite_autoindex_sessions_1)";
    let counted = db
        .prepare_cached(query)
        .and_then(|mut query| query.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))));
    match counted.map_err(sql)? {
        (there, named) if there == named => Ok(()),
        (there, named) => Err(damaged(
            "listing sessions",
            format!("the table has {there} sessions, and the index of their ids has {named}"),
        )),
    }
}

/// The error for a segment whose session has no row.
pub(crate) fn missing_session(cursor: i64) -> Error {
    damaged("reading records", no_session_of(cursor))
}

/// The error for a last segment that no query finds.
pub(crate) fn missing_segment(cursor: i64) -> Error {
    damaged("reading records", format!("segment {cursor} is the last one, but queries do not find it"))
}

fn no_session_of(cursor: i64) -> String {
    format!("segment {cursor} belongs to a session that is not in the table of sessions")
}

fn damaged(doing: &str, why: String) -> Error {
    Error::with_kind(doing, IoErrorKind::Damaged, why)
}
