//! Listing sessions.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rath_core::store::{Holder, Query, Result, SessionFilter, SessionInfo};
use rath_core::{Digest, Kind, RecordId, Reference, SessionId, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, Row as SqlRow, params_from_iter};

use super::schema::{self, sql};
use super::{holder, integrity};

/// The columns that every format has, in the order in which [`read`] expects them.
const COLUMNS: &str = "id, head, seq, time, generation, birth, born, born_generation,
    origin_session, origin_seq, origin_id, closed, fence, holder, title, labels";

/// Columns that later formats added: the name, and the first format with the column. They follow [`COLUMNS`].
const LATER: &[(&str, i64)] = &[];

/// The sessions that match a query, the last changed one first. If `waiting` is given, only those of these sessions.
pub(crate) fn select(
    db: &Connection,
    holders: &Path,
    query: &Query,
    waiting: Option<&HashSet<SessionId>>,
) -> Result<Vec<SessionInfo>> {
    let (filter, values): (&str, Vec<Value>) = match &query.filter {
        SessionFilter::All => ("", vec![]),
        SessionFilter::Id(id) => ("WHERE id = ?1", vec![Value::Blob(id.0.as_bytes().to_vec())]),
        SessionFilter::ChildrenOf(id) => ("WHERE origin_session = ?1", vec![Value::Blob(id.0.as_bytes().to_vec())]),
        SessionFilter::Run(key) => {
            ("WHERE id = (SELECT session FROM runs WHERE key = ?1)", vec![Value::Text(key.clone())])
        }
        SessionFilter::Prefix(prefix) => {
            // A prefix of the random end of the id, or of the id, with or without hyphens.
            let plain = prefix.replace('-', "");
            let filter = "WHERE lower(hex(substr(id, 11))) LIKE ?1 || '%' OR lower(hex(id)) LIKE ?1 || '%'";
            (filter, vec![Value::Text(plain.replace(['%', '_'], "?"))])
        }
    };
    if matches!(query.filter, SessionFilter::All) {
        integrity::check_session_list(db)?;
    }
    // Some filters are applied below, so SQL must not limit the rows then.
    let is_filtered = query.waiting || query.after.is_some() || !query.labels.is_empty();
    let most = query.limit.unwrap_or(usize::MAX);
    let limit = if is_filtered || query.limit.is_none() { String::new() } else { format!("LIMIT {most}") };
    let columns = schema::columns(db, COLUMNS, LATER)?;
    let text = format!("SELECT {columns} FROM sessions {filter} ORDER BY time DESC, id DESC {limit}");
    let statement = match &query.filter {
        SessionFilter::Run(_) => schema::prepare_added(db, &text, schema::RUNS_AND_POSTS)?,
        _ => Some(db.prepare_cached(&text).map_err(sql)?),
    };
    let Some(mut statement) = statement else { return Ok(Vec::new()) };
    let mut rows = statement.query(params_from_iter(values)).map_err(sql)?;
    let mut living: HashMap<String, Option<Holder>> = HashMap::new();
    let mut found = Vec::new();
    while found.len() < most
        && let Some(row) = rows.next().map_err(sql)?
    {
        let (mut read, holder_id) = read(row).map_err(sql)?;
        if !query.admits(&read) || waiting.is_some_and(|waiting| !waiting.contains(&read.id)) {
            continue;
        }
        // A lease of a process that has ended does not count.
        read.holder =
            holder_id.and_then(|id| living.entry(id.clone()).or_insert_with(|| holder::living(holders, &id)).clone());
        found.push(read);
    }
    if let SessionFilter::Prefix(prefix) = &query.filter {
        found.retain(|row| row.id.matches(prefix));
        if found.is_empty() {
            // The session may be in a row that was lost.
            integrity::check_session_list(db)?;
        }
    }
    Ok(found)
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<(SessionInfo, Option<String>)> {
    let number = |at: usize| row.get::<_, i64>(at).map(|n| n as u64);
    let digest = |bytes: [u8; 32]| RecordId(Digest(bytes));
    let session = |bytes: [u8; 16]| SessionId(uuid::Uuid::from_bytes(bytes));
    let origin = match row.get::<_, Option<[u8; 16]>>(8)? {
        Some(id) => Some(Reference { session: session(id), seq: number(9)?, id: digest(row.get(10)?) }),
        None => None,
    };
    let first_kind: u8 = row.get(5)?;
    let labels: Option<String> = row.get(15)?;
    let read = SessionInfo {
        id: session(row.get(0)?),
        head: digest(row.get(1)?),
        seq: number(2)?,
        time: Time(number(3)?),
        generation: number(4)?,
        first_kind: Kind::from_code(first_kind).unwrap_or(Kind::Created),
        created_at: Time(number(6)?),
        first_generation: number(7)?,
        origin,
        closed: row.get(11)?,
        fence: number(12)?,
        holder: None,
        title: row.get(14)?,
        labels: labels.and_then(|labels| serde_json::from_str(&labels).ok()).unwrap_or_default(),
    };
    Ok((read, row.get(13)?))
}
