//! Runs a query: looks it up in the index, and reads each record again before it is returned. Records that were erased
//! or altered, or that do not match although the index lists them, are skipped.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use rath_core::store::{Query, Result};
use rath_core::{Record, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::index::{Index, ROWS_PER_SEGMENT, beginning, row_number, tag};
use super::{MatchedPassage, SearchHit, SearchOrder, SearchQuery, text};
use crate::embedded::read::{SegmentRow, last_segment};
use crate::embedded::{Embedded, rows, schema};
use crate::projection::ProjectionError;

/// The most sessions that are part of the index lookup. With more sessions, hits are filtered afterwards.
const MAX_SESSION_TAGS: usize = 64;

/// The sessions to search, each up to a seq. `None`: all sessions.
type Scope = Option<HashMap<SessionId, u64>>;

/// Calls `each` with every hit, in the order of the query, until it breaks.
pub(super) fn run(
    store: &Embedded,
    index: Option<&Index>,
    query: &SearchQuery,
    each: &mut dyn FnMut(SearchHit) -> ControlFlow<()>,
) -> std::result::Result<(), ProjectionError> {
    let scope = scope_of(store, query)?;
    if scope.as_ref().is_some_and(HashMap::is_empty) {
        return Ok(());
    }
    let reached = match index {
        Some(index) => index.reached()?.cursor,
        None => 0,
    };
    let mut execution = Execution { store, query, scope, segment: None };
    let indexed = |execution: &mut Execution<'_>, each: &mut dyn FnMut(SearchHit) -> ControlFlow<()>| match index {
        Some(index) => execution.indexed(index, each),
        None => Ok(ControlFlow::Continue(())),
    };
    match query.order {
        SearchOrder::Oldest => {
            if indexed(&mut execution, each)?.is_continue() {
                let _ = execution.unindexed(reached, each)?;
            }
        }
        SearchOrder::Newest => {
            if execution.unindexed(reached, each)?.is_continue() {
                let _ = indexed(&mut execution, each)?;
            }
        }
    }
    Ok(())
}

/// The sessions to search, from the sessions and the labels of the query.
fn scope_of(store: &Embedded, query: &SearchQuery) -> Result<Scope> {
    let mut scope: Scope = query.within.as_ref().map(|within| within.iter().copied().collect());
    if !query.labels.is_empty() {
        let query = Query { labels: query.labels.clone(), ..Query::all() };
        let labelled = store.read(|db| rows::select(db, &store.paths.holders, &query, None))?;
        let within = |id: SessionId| match &scope {
            Some(scope) => scope.get(&id).copied(),
            None => Some(u64::MAX),
        };
        scope = Some(labelled.into_iter().filter_map(|row| Some((row.id, within(row.id)?))).collect());
    }
    Ok(scope)
}

struct Execution<'a> {
    store: &'a Embedded,
    query: &'a SearchQuery,
    scope: Scope,
    /// The last segment that was read.
    segment: Option<Arc<SegmentRow>>,
}

impl Execution<'_> {
    fn expression(&self) -> String {
        let any = |tags: Vec<String>| {
            let quoted: Vec<_> = tags.iter().map(|tag| format!("\"{tag}\"")).collect();
            format!("tags : ({})", quoted.join(" OR "))
        };
        let mut parts = vec![format!("text : ({})", self.query.pattern.expression())];
        if !self.query.kinds.is_empty() {
            parts.push(any(self.query.kinds.iter().map(|kind| tag::kind(kind.as_str())).collect()));
        }
        if let Some(actor) = &self.query.actor {
            parts.extend(actor.kind.iter().map(|kind| any(vec![tag::actor_kind(kind)])));
            parts.extend(actor.name.iter().map(|name| any(vec![tag::actor_name(name)])));
        }
        if let Some(scope) = self.scope.as_ref().filter(|scope| scope.len() <= MAX_SESSION_TAGS) {
            parts.push(any(scope.keys().map(|id| tag::session(*id)).collect()));
        }
        parts.join(" AND ")
    }

    /// The range of index rows that may have a time within the query's bounds.
    fn bounds(&self, db: &Connection) -> rusqlite::Result<(i64, i64)> {
        let SearchQuery { since, until, .. } = self.query;
        if since.is_none() && until.is_none() {
            return Ok((0, i64::MAX));
        }
        let limit =
            |time: Option<rath_core::Time>, or| time.map_or(or, |time| i64::try_from(time.0).unwrap_or(i64::MAX));
        let bounds =
            "SELECT coalesce(min(first), 1), coalesce(max(last), 0) FROM spans WHERE greatest >= ?1 AND least <= ?2";
        db.query_row(bounds, params![limit(*since, 0), limit(*until, i64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn indexed(
        &mut self,
        index: &Index,
        each: &mut dyn FnMut(SearchHit) -> ControlFlow<()>,
    ) -> std::result::Result<ControlFlow<()>, ProjectionError> {
        let order = match self.query.order {
            SearchOrder::Newest => "DESC",
            SearchOrder::Oldest => "ASC",
        };
        let (first, last) = self.bounds(&index.db)?;
        let query =
            format!("SELECT rowid FROM words WHERE words MATCH ?1 AND rowid BETWEEN ?2 AND ?3 ORDER BY rowid {order}");
        let mut query = index.db.prepare_cached(&query)?;
        let mut numbers = query.query(params![self.expression(), first, last])?;
        let store = self.store;
        while let Some(row) = numbers.next()? {
            let number: i64 = row.get(0)?;
            let (cursor, place) = (number as u64 / ROWS_PER_SEGMENT, number as u64 % ROWS_PER_SEGMENT);
            let hit = store.read(|db| self.at(db, cursor, place))?;
            if hit.is_some_and(|hit| each(hit).is_break()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Searches the records that are not indexed, one by one. There are some only if the index could not be updated.
    fn unindexed(
        &mut self,
        reached: u64,
        each: &mut dyn FnMut(SearchHit) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let store = self.store;
        let last = store.read(last_segment)? as u64;
        let cursors: Box<dyn Iterator<Item = u64>> = match self.query.order {
            SearchOrder::Newest => Box::new((reached + 1..=last).rev()),
            SearchOrder::Oldest => Box::new(reached + 1..=last),
        };
        for cursor in cursors {
            let Some(segment) = store.read(|db| self.segment(db, cursor))? else { continue };
            let mut records = segment.readable();
            if self.query.order == SearchOrder::Newest {
                records.reverse();
            }
            for record in records {
                let hit = store.read(|db| Ok(self.check(db, record)))?;
                if hit.is_some_and(|hit| each(hit).is_break()) {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads the record of an index row and checks it against the query.
    fn at(&mut self, db: &Connection, cursor: u64, place: u64) -> Result<Option<SearchHit>> {
        // Records of other sessions are skipped before their segment is decompressed.
        if self.scope.as_ref().is_some_and(|scope| scope.len() > MAX_SESSION_TAGS)
            && !self.is_in_scope(db, cursor, place)?
        {
            return Ok(None);
        }
        let Some(segment) = self.segment(db, cursor)? else { return Ok(None) };
        let Ok(Some(record)) = segment.record(segment.first_seq + place) else { return Ok(None) };
        Ok(self.check(db, record))
    }

    fn is_in_scope(&self, db: &Connection, cursor: u64, place: u64) -> Result<bool> {
        let query = "SELECT s.id, g.first_seq FROM segments g JOIN sessions s ON s.no = g.session WHERE g.cursor = ?1";
        let found: Option<([u8; 16], i64)> = db
            .prepare_cached(query)
            .and_then(|mut query| query.query_row([cursor as i64], |row| Ok((row.get(0)?, row.get(1)?))).optional())
            .map_err(schema::sql)?;
        Ok(found.is_some_and(|(id, first)| self.includes(SessionId(uuid::Uuid::from_bytes(id)), first as u64 + place)))
    }

    fn includes(&self, session: SessionId, seq: u64) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.get(&session).is_some_and(|to| seq <= *to))
    }

    fn segment(&mut self, db: &Connection, cursor: u64) -> Result<Option<Arc<SegmentRow>>> {
        if let Some(segment) = self.segment.as_ref().filter(|segment| segment.cursor as u64 == cursor) {
            return Ok(Some(segment.clone()));
        }
        let query = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
            JOIN sessions s ON s.no = g.session WHERE g.cursor = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            let session = SessionId(uuid::Uuid::from_bytes(row.get(4)?));
            SegmentRow::read(row, session)
        };
        let segment = db
            .prepare_cached(query)
            .and_then(|mut query| query.query_row([cursor as i64], read).optional())
            .map_err(schema::sql)?;
        self.segment = segment.map(Arc::new);
        Ok(self.segment.clone())
    }

    /// Checks a record against the query, and finds the matches in its texts.
    fn check(&self, db: &Connection, record: Record) -> Option<SearchHit> {
        let SearchQuery { pattern, kinds, actor, since, until, .. } = self.query;
        let header = record.header().ok()?;
        let fits = (kinds.is_empty() || kinds.contains(record.kind()))
            && actor.as_ref().is_none_or(|actor| actor.is(&header.actor))
            && since.is_none_or(|since| header.time >= since)
            && until.is_none_or(|until| header.time <= until)
            && self.includes(record.session(), record.seq());
        if !fits {
            return None;
        }
        let (passages, _) = text::of(&record, &mut |blob, most| beginning(self.store, db, &blob.digest, most));
        let texts: Vec<&str> = passages.iter().map(|passage| passage.text.as_str()).collect();
        let found = pattern.find(&texts)?;
        let matched = passages.into_iter().zip(found).filter(|(_, ranges)| !ranges.is_empty());
        let passages = matched.map(|(passage, ranges)| MatchedPassage { passage, ranges }).collect();
        Some(SearchHit { record, header, passages })
    }
}

/// The index row of a record, and its segment; `None` if the store has no such record.
pub(super) fn row_of(db: &Connection, point: rath_core::Point) -> Result<Option<(i64, Arc<SegmentRow>)>> {
    let segment = crate::embedded::read::segment_at(db, point)?;
    Ok(segment.map(|segment| (row_number(segment.cursor as u64, point.seq - segment.first_seq), Arc::new(segment))))
}
