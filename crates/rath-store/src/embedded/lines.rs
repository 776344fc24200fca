//! Whether the database lists every session that it has records of, each as long as those are, and every pack that it has
//! contents in.
//!
//! SQLite does not say when rows went with a page: a query finds less, and that is all. Who destroys what no record
//! names has to know first that he sees all records.

use std::collections::HashMap;

use rath_core::SessionId;
use rath_core::store::{Error, Result, Trouble};
use rusqlite::Connection;

use super::schema::sql;

/// So many complaints say enough.
const MOST: usize = 10;

/// What the segments of a session add up to.
struct Line {
    records: i64,
    first: i64,
    end: i64,
    segment: i64,
}

/// Fails unless all lines are whole: with rows missing, nobody knows what is still named.
pub(super) fn check(db: &Connection) -> Result<()> {
    match faults(db)?.into_iter().next() {
        None => Ok(()),
        Some(why) => Err(damaged("reading what the store lists", why)),
    }
}

/// What is missing; empty when all is there.
pub(super) fn faults(db: &Connection) -> Result<Vec<String>> {
    let mut lines: HashMap<i64, Line> = HashMap::new();
    // Read from the tables themselves: an index may still have what a table lost.
    let mut segments = db
        .prepare("SELECT session, first_seq, count, cursor FROM segments NOT INDEXED ORDER BY cursor")
        .map_err(sql)?;
    let mut rows = segments.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let number = |at: usize| row.get::<_, i64>(at).map_err(sql);
        let (session, first, count, cursor) = (number(0)?, number(1)?, number(2)?, number(3)?);
        let line = lines.entry(session).or_insert(Line { records: 0, first, end: 0, segment: cursor });
        line.records = line.records.saturating_add(count);
        line.first = line.first.min(first);
        line.end = line.end.max(first.saturating_add(count));
    }
    let mut faults = Vec::new();
    let mut sessions = db.prepare("SELECT no, id, seq FROM sessions NOT INDEXED").map_err(sql)?;
    let mut rows = sessions.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let no: i64 = row.get(0).map_err(sql)?;
        let id = SessionId(uuid::Uuid::from_bytes(row.get(1).map_err(sql)?));
        let listed = row.get::<_, i64>(2).map_err(sql)?.saturating_add(1);
        let there = lines.remove(&no).unwrap_or(Line { records: 0, first: 0, end: 0, segment: 0 });
        if (there.records, there.first, there.end) != (listed, 0, listed) {
            faults.push(format!("session {id} is listed with {listed} records, and {} are there", there.records));
        }
    }
    let mut unlisted: Vec<i64> = lines.into_values().map(|line| line.segment).collect();
    unlisted.sort_unstable();
    faults.extend(unlisted.into_iter().map(not_listed));
    let lost = "SELECT DISTINCT pack FROM blobs WHERE pack != 0 AND pack NOT IN (SELECT no FROM packs NOT INDEXED)";
    let mut lost = db.prepare(lost).map_err(sql)?;
    for pack in lost.query_map([], |row| row.get::<_, i64>(0)).map_err(sql)? {
        faults.push(format!("contents are in pack {}, which is not listed", pack.map_err(sql)?));
    }
    faults.truncate(MOST);
    Ok(faults)
}

/// Fails where the table of sessions has lost rows that its index still has. Quick enough for every list of sessions.
pub(super) fn check_list(db: &Connection) -> Result<()> {
    let query = "SELECT (SELECT count(*) FROM sessions NOT INDEXED),
        (SELECT count(id) FROM sessions INDEXED BY sqlite_autoindex_sessions_1)";
    let counted = db
        .prepare_cached(query)
        .and_then(|mut query| query.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))));
    match counted.map_err(sql)? {
        (there, named) if there == named => Ok(()),
        (there, named) => {
            Err(damaged("listing sessions", format!("{there} are there, and the index of their ids has {named}")))
        }
    }
}

/// A segment whose session has no row.
pub(crate) fn unlisted(cursor: i64) -> Error {
    damaged("reading records", not_listed(cursor))
}

/// A segment that is the last, and is not found behind the one before it.
pub(crate) fn unreadable(cursor: i64) -> Error {
    damaged("reading records", format!("segment {cursor} is the last one, and no query finds it"))
}

fn not_listed(cursor: i64) -> String {
    format!("segment {cursor} belongs to a session that is not listed")
}

fn damaged(doing: &str, why: String) -> Error {
    Error::trouble(doing, Trouble::Damaged, why)
}
