//! Holds the index against the records. It has no text of its own, so an entry that was damaged and is still well formed
//! looks like any other to SQLite; only the records know better.

use rusqlite::{Connection, Rows};

use super::index::{self, Index, PLACES};
use crate::embedded::{Embedded, schema};
use crate::projection::Trouble;

/// Up to so many records, in an index of so many bytes, words are cut once more to be compared. More would keep whoever
/// only asks how the store is waiting.
const RECORDS: i64 = 20_000;
const BYTES: u64 = 32 << 20;

/// Every word, where it stands.
const INSTANCES: &str = "SELECT term, doc, col, offset FROM temp.said WHERE doc <= ?1";

/// Whether the index says what the records say, as far as it has come; `None` where nobody looked.
pub(super) fn is_true(store: &Embedded, bytes: u64) -> std::result::Result<Option<bool>, Trouble> {
    let count = "SELECT coalesce(sum(count), 0) FROM segments";
    let records = store.read(|db| db.query_row(count, [], |row| row.get::<_, i64>(0)).map_err(schema::sql))?;
    if records > RECORDS || bytes > BYTES {
        return Ok(None);
    }
    let Some(there) = Index::open_as_it_is(&store.paths.root) else { return Ok(None) };
    let moment = there.db.unchecked_transaction()?;
    let last = index::number_of(there.reached()?.cursor, PLACES - 1);
    let mut anew = Index::in_memory(&store.paths.root)?;
    anew.forget_what(&there.db)?;
    anew.catch_up(store, &mut |_| {})?;
    let same = are_same(&there.db, &anew.db, last)?;
    drop(moment);
    Ok(Some(same))
}

fn are_same(one: &Connection, other: &Connection, last: i64) -> rusqlite::Result<bool> {
    for db in [one, other] {
        db.execute_batch("CREATE VIRTUAL TABLE temp.said USING fts5vocab('main', 'words', 'instance')")?;
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
