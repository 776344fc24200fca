//! Compares the index with the records. The index has no text, so SQLite cannot detect a damaged entry that is well
//! formed.

use rusqlite::{Connection, Rows};

use super::index::{self, Index, ROWS_PER_SEGMENT};
use crate::embedded::{Embedded, schema};
use crate::projection::ProjectionError;

/// The most records for which the comparison runs. It indexes all records again, and `rath doctor` should be fast.
const MAX_RECORDS: i64 = 20_000;

/// The most bytes of an index for which the comparison runs.
const MAX_BYTES: u64 = 32 << 20;

/// Selects every word with its positions.
const INSTANCES: &str = "SELECT term, doc, col, offset FROM temp.tokens WHERE doc <= ?1";

/// Whether the index equals a new index of the same records; `None` if the index is too large or missing.
pub(super) fn matches_records(store: &Embedded, bytes: u64) -> std::result::Result<Option<bool>, ProjectionError> {
    let count = "SELECT coalesce(sum(count), 0) FROM segments";
    let records = store.read(|db| db.query_row(count, [], |row| row.get::<_, i64>(0)).map_err(schema::sql))?;
    if records > MAX_RECORDS || bytes > MAX_BYTES {
        return Ok(None);
    }
    let Some(stored) = Index::open_read_only(&store.paths.root) else { return Ok(None) };
    let snapshot = stored.db.unchecked_transaction()?;
    let last = index::row_number(stored.reached()?.cursor, ROWS_PER_SEGMENT - 1);
    let mut fresh = Index::in_memory(&store.paths.root)?;
    fresh.copy_forgotten(&stored.db)?;
    fresh.catch_up(store, &mut |_| {})?;
    let same = are_same(&stored.db, &fresh.db, last)?;
    drop(snapshot);
    Ok(Some(same))
}

fn are_same(one: &Connection, other: &Connection, last: i64) -> rusqlite::Result<bool> {
    for db in [one, other] {
        db.execute_batch("CREATE VIRTUAL TABLE temp.tokens USING fts5vocab('main', 'words', 'instance')")?;
    }
    let (mut one, mut other) = (one.prepare(INSTANCES)?, other.prepare(INSTANCES)?);
    let (mut one, mut other) = (one.query([last])?, other.query([last])?);
    loop {
        match (next(&mut one)?, next(&mut other)?) {
            (None, None) => return Ok(true),
            (one, other) if one != other => return Ok(false),
            _ => {}
        }
    }
}

type Instance = (Vec<u8>, i64, String, i64);

fn next(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Instance>> {
    match rows.next()? {
        Some(row) => Ok(Some((row.get_ref(0)?.as_bytes()?.to_vec(), row.get(1)?, row.get(2)?, row.get(3)?))),
        None => Ok(None),
    }
}
