//! Sessions, as the database lists them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rath_core::store::{Holder, Query, Result, Row, Which};
use rath_core::{Digest, Kind, RecordId, Reference, SessionId, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, Row as SqlRow, params_from_iter};

use super::schema::{self, sql};
use super::{holder, lines};

const COLUMNS: &str = "id, head, seq, time, generation, birth, born, born_generation,
    origin_session, origin_seq, origin_id, closed, fence, holder, title, labels";

/// The rows that a query asks for, the youngest change first. `waiting` are the sessions in which something waits, where only
/// those are wanted.
pub(crate) fn select(
    db: &Connection,
    holders: &Path,
    query: &Query,
    waiting: Option<&HashSet<SessionId>>,
) -> Result<Vec<Row>> {
    let (filter, values): (&str, Vec<Value>) = match &query.which {
        Which::All => ("", vec![]),
        Which::Id(id) => ("WHERE id = ?1", vec![Value::Blob(id.0.as_bytes().to_vec())]),
        Which::ChildrenOf(id) => ("WHERE origin_session = ?1", vec![Value::Blob(id.0.as_bytes().to_vec())]),
        Which::Run(key) => ("WHERE id = (SELECT session FROM runs WHERE key = ?1)", vec![Value::Text(key.clone())]),
        Which::Prefix(prefix) => {
            // The random end of the id, or its front with or without hyphens.
            let plain = prefix.replace('-', "");
            let filter = "WHERE lower(hex(substr(id, 11))) LIKE ?1 || '%' OR lower(hex(id)) LIKE ?1 || '%'";
            (filter, vec![Value::Text(plain.replace(['%', '_'], "?"))])
        }
    };
    if matches!(query.which, Which::All) {
        lines::check_list(db)?;
    }
    // What is left out below does not count.
    let is_filtered = query.waiting || query.after.is_some() || !query.labels.is_empty();
    let most = query.limit.unwrap_or(usize::MAX);
    let limit = if is_filtered || query.limit.is_none() { String::new() } else { format!("LIMIT {most}") };
    let text = format!("SELECT {COLUMNS} FROM sessions {filter} ORDER BY time DESC, id DESC {limit}");
    let statement = match &query.which {
        Which::Run(_) => schema::prepare_added(db, &text, schema::RUNS_AND_POSTS)?,
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
        // A dead holder holds nothing.
        read.holder =
            holder_id.and_then(|id| living.entry(id.clone()).or_insert_with(|| holder::living(holders, &id)).clone());
        found.push(read);
    }
    if let Which::Prefix(prefix) = &query.which {
        found.retain(|row| row.id.matches(prefix));
        if found.is_empty() {
            // It may have been among rows that were lost.
            lines::check_list(db)?;
        }
    }
    Ok(found)
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<(Row, Option<String>)> {
    let number = |at: usize| row.get::<_, i64>(at).map(|n| n as u64);
    let digest = |bytes: [u8; 32]| RecordId(Digest(bytes));
    let session = |bytes: [u8; 16]| SessionId(uuid::Uuid::from_bytes(bytes));
    let origin = match row.get::<_, Option<[u8; 16]>>(8)? {
        Some(id) => Some(Reference { session: session(id), seq: number(9)?, id: digest(row.get(10)?) }),
        None => None,
    };
    let birth: u8 = row.get(5)?;
    let labels: Option<String> = row.get(15)?;
    let read = Row {
        id: session(row.get(0)?),
        head: digest(row.get(1)?),
        seq: number(2)?,
        time: Time(number(3)?),
        generation: number(4)?,
        birth: Kind::from_code(birth).unwrap_or(Kind::Created),
        born: Time(number(6)?),
        born_generation: number(7)?,
        origin,
        closed: row.get(11)?,
        fence: number(12)?,
        holder: None,
        title: row.get(14)?,
        labels: labels.and_then(|labels| serde_json::from_str(&labels).ok()).unwrap_or_default(),
    };
    Ok((read, row.get(13)?))
}
