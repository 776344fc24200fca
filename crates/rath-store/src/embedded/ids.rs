//! The index from record ids to segments. It is updated when a record is looked up by id.

use rath_core::store::{Error, Result};
use rath_core::{Digest, Record, SessionId};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::Embedded;
use super::integrity;
use super::read::SegmentRow;
use super::schema::sql;
use super::write_request::WriteRequest;
use crate::segment::{self, SegmentEntries};

/// The most records that a lookup by prefix returns.
const MAX_MATCHES: usize = 10;

/// Inserts the ids of all records since the last update.
pub(super) fn catch_up(db: &Connection) -> Result<()> {
    let mut cursor = cursor(db)?;
    let mut segments =
        db.prepare_cached("SELECT cursor, data FROM segments WHERE cursor > ?1 ORDER BY cursor").map_err(sql)?;
    let mut insert = db.prepare_cached("INSERT OR IGNORE INTO ids (prefix, segment) VALUES (?1, ?2)").map_err(sql)?;
    let mut rows = segments.query([cursor]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        cursor = row.get(0).map_err(sql)?;
        let data = row.get_ref(1).map_err(sql)?;
        let data = data.as_blob().map_err(|error| Error::machine("reading a segment", error))?;
        let data = segment::decompress(data);
        for entry in SegmentEntries::of(&data).flatten() {
            let id = Digest::of(&data[entry.header.start as usize..entry.header.end as usize]);
            insert.execute(params![front(&id), cursor]).map_err(sql)?;
        }
    }
    db.execute("INSERT OR REPLACE INTO projections (name, cursor) VALUES ('ids', ?1)", [cursor]).map_err(sql)?;
    Ok(())
}

/// The number of the last indexed segment.
pub(super) fn cursor(db: &Connection) -> Result<i64> {
    let cursor = db.query_row("SELECT cursor FROM projections WHERE name = 'ids'", [], |row| row.get(0));
    Ok(cursor.optional().map_err(sql)?.unwrap_or(0))
}

/// The first eight bytes of an id, as a signed integer that sorts like the bytes.
pub(super) fn front(id: &Digest) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.0[..8]);
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

impl Embedded {
    /// Rebuilds the index of record ids. Returns the number of indexed records.
    pub fn rebuild_id_index(&self) -> Result<u64> {
        let db = self.connect_to_write()?;
        let made = rusqlite::Transaction::new_unchecked(&db, TransactionBehavior::Immediate).map_err(sql)?;
        made.execute_batch("DELETE FROM ids; DELETE FROM projections WHERE name = 'ids'").map_err(sql)?;
        catch_up(&made)?;
        let count = made.query_row("SELECT coalesce(sum(count), 0) FROM segments", [], |row| row.get::<_, i64>(0));
        let count = count.map_err(sql)? as u64;
        self.suspect_wal.check_wal(made.commit().map_err(sql))?;
        self.suspect_wal.checkpoint_wal(&db)?;
        Ok(count)
    }

    /// The records whose ids start with these hex digits.
    pub(super) async fn by_prefix(&self, prefix: &str) -> Result<Vec<Record>> {
        if prefix.is_empty()
            || prefix.len() > 64
            || !prefix.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        {
            return Ok(Vec::new());
        }
        let behind = self.read(|db| {
            let last: Option<i64> =
                db.query_row("SELECT max(cursor) FROM segments", [], |row| row.get(0)).map_err(sql)?;
            Ok(last.unwrap_or(0) > cursor(db)?)
        })?;
        if behind
            && let Err(error) = self.write(|reply| WriteRequest::CatchUpIds { reply }).await
            && !matches!(error, Error::Machine { .. })
        {
            return Err(error);
        }
        let digits = &prefix[..prefix.len().min(16)];
        let (low, high) = (bound(digits, '0'), bound(digits, 'f'));
        self.read(|db| {
            let indexed = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM ids i
                JOIN segments g ON g.cursor = i.segment LEFT JOIN sessions s ON s.no = g.session
                WHERE i.prefix BETWEEN ?1 AND ?2 LIMIT 40";
            let mut found = matching(db, indexed, params![low, high], prefix)?;
            // Segments that are not indexed, because the index could not be written.
            let unseen = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
                LEFT JOIN sessions s ON s.no = g.session WHERE g.cursor > ?1 ORDER BY g.cursor";
            found.extend(matching(db, unseen, params![cursor(db)?], prefix)?);
            found.dedup_by_key(|record| record.id());
            found.truncate(MAX_MATCHES);
            Ok(found)
        })
    }
}

/// The records with this prefix in the segments that `query` selects.
fn matching(db: &Connection, query: &str, values: &[&dyn rusqlite::ToSql], prefix: &str) -> Result<Vec<Record>> {
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let mut rows = query.query(values).map_err(sql)?;
    let mut found: Vec<Record> = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let Some(id) = row.get(4).map_err(sql)? else {
            return Err(integrity::missing_session(row.get(0).map_err(sql)?));
        };
        let records = SegmentRow::read(row, SessionId(uuid::Uuid::from_bytes(id))).map_err(sql)?.records()?;
        for record in records.into_iter().filter(|record| record.id().to_string().starts_with(prefix)) {
            // A segment with two matching records is selected twice.
            if found.iter().all(|known| known.id() != record.id()) {
                found.push(record);
            }
        }
        if found.len() >= MAX_MATCHES {
            break;
        }
    }
    Ok(found)
}

fn bound(digits: &str, fill: char) -> i64 {
    let digits: String = digits.chars().chain(std::iter::repeat(fill)).take(16).collect();
    (u64::from_str_radix(&digits, 16).unwrap_or(0) ^ (1 << 63)) as i64
}
