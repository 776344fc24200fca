//! A question to the index, and the records that answer it. Each is read again before it is handed out: what was erased,
//! altered or is not what the index says is not shown.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use rath_core::store::{Query, Result};
use rath_core::{Record, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::index::{Index, PLACES, beginning, number_of, tag};
use super::{Hit, Matched, Order, Question, text};
use crate::embedded::read::{SegmentRow, last_segment};
use crate::embedded::{Embedded, rows, schema};
use crate::projection::Trouble;

/// So many sessions are looked for by the index; more are sorted out afterwards.
const BY_TAG: usize = 64;

/// Which lines count, each up to a record. `None` for all.
type Lines = Option<HashMap<SessionId, u64>>;

/// Shows the records that answer, in the order that was asked for, until `each` has enough.
pub(super) fn answer(
    store: &Embedded,
    index: Option<&Index>,
    question: &Question,
    each: &mut dyn FnMut(Hit) -> ControlFlow<()>,
) -> std::result::Result<(), Trouble> {
    let lines = lines(store, question)?;
    if lines.as_ref().is_some_and(HashMap::is_empty) {
        return Ok(());
    }
    let reached = match index {
        Some(index) => index.reached()?.cursor,
        None => 0,
    };
    let mut asking = Asking { store, question, lines, segment: None };
    let indexed = |asking: &mut Asking<'_>, each: &mut dyn FnMut(Hit) -> ControlFlow<()>| match index {
        Some(index) => asking.indexed(index, each),
        None => Ok(ControlFlow::Continue(())),
    };
    match question.order {
        Order::Oldest => {
            if indexed(&mut asking, each)?.is_continue() {
                let _ = asking.unindexed(reached, each)?;
            }
        }
        Order::Newest => {
            if asking.unindexed(reached, each)?.is_continue() {
                let _ = indexed(&mut asking, each)?;
            }
        }
    }
    Ok(())
}

/// The sessions that the question is about: those it names, those with its labels, or both.
fn lines(store: &Embedded, question: &Question) -> Result<Lines> {
    let mut lines: Lines = question.within.as_ref().map(|within| within.iter().copied().collect());
    if !question.labels.is_empty() {
        let query = Query { labels: question.labels.clone(), ..Query::all() };
        let labelled = store.read(|db| rows::select(db, &store.paths.holders, &query, None))?;
        let within = |id: SessionId| match &lines {
            Some(lines) => lines.get(&id).copied(),
            None => Some(u64::MAX),
        };
        lines = Some(labelled.into_iter().filter_map(|row| Some((row.id, within(row.id)?))).collect());
    }
    Ok(lines)
}

struct Asking<'a> {
    store: &'a Embedded,
    question: &'a Question,
    lines: Lines,
    /// The segment that was read last.
    segment: Option<Arc<SegmentRow>>,
}

impl Asking<'_> {
    fn expression(&self) -> String {
        let any = |tags: Vec<String>| {
            let quoted: Vec<_> = tags.iter().map(|tag| format!("\"{tag}\"")).collect();
            format!("tags : ({})", quoted.join(" OR "))
        };
        let mut parts = vec![format!("text : ({})", self.question.pattern.expression())];
        if !self.question.kinds.is_empty() {
            parts.push(any(self.question.kinds.iter().map(|kind| tag::kind(kind.as_str())).collect()));
        }
        if let Some(actor) = &self.question.actor {
            parts.extend(actor.kind.iter().map(|kind| any(vec![tag::actor_kind(kind)])));
            parts.extend(actor.name.iter().map(|name| any(vec![tag::actor_name(name)])));
        }
        if let Some(lines) = self.lines.as_ref().filter(|lines| lines.len() <= BY_TAG) {
            parts.push(any(lines.keys().map(|id| tag::session(*id)).collect()));
        }
        parts.join(" AND ")
    }

    /// The numbers between which the times lie that are asked for.
    fn bounds(&self, db: &Connection) -> rusqlite::Result<(i64, i64)> {
        let Question { since, until, .. } = self.question;
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
        each: &mut dyn FnMut(Hit) -> ControlFlow<()>,
    ) -> std::result::Result<ControlFlow<()>, Trouble> {
        let order = match self.question.order {
            Order::Newest => "DESC",
            Order::Oldest => "ASC",
        };
        let (first, last) = self.bounds(&index.db)?;
        let query =
            format!("SELECT rowid FROM words WHERE words MATCH ?1 AND rowid BETWEEN ?2 AND ?3 ORDER BY rowid {order}");
        let mut query = index.db.prepare_cached(&query)?;
        let mut numbers = query.query(params![self.expression(), first, last])?;
        let store = self.store;
        while let Some(row) = numbers.next()? {
            let number: i64 = row.get(0)?;
            let (cursor, place) = (number as u64 / PLACES, number as u64 % PLACES);
            let hit = store.read(|db| self.at(db, cursor, place))?;
            if hit.is_some_and(|hit| each(hit).is_break()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the index has not seen, where it cannot be written: record by record.
    fn unindexed(&mut self, reached: u64, each: &mut dyn FnMut(Hit) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        let store = self.store;
        let last = store.read(last_segment)? as u64;
        let cursors: Box<dyn Iterator<Item = u64>> = match self.question.order {
            Order::Newest => Box::new((reached + 1..=last).rev()),
            Order::Oldest => Box::new(reached + 1..=last),
        };
        for cursor in cursors {
            let Some(segment) = store.read(|db| self.segment(db, cursor))? else { continue };
            let mut records = segment.readable();
            if self.question.order == Order::Newest {
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

    /// The record at a place of the index, if it is one that is asked for.
    fn at(&mut self, db: &Connection, cursor: u64, place: u64) -> Result<Option<Hit>> {
        // Lines that do not count are sorted out before their records are read.
        if self.lines.as_ref().is_some_and(|lines| lines.len() > BY_TAG) && !self.is_on_a_line(db, cursor, place)? {
            return Ok(None);
        }
        let Some(segment) = self.segment(db, cursor)? else { return Ok(None) };
        let Ok(Some(record)) = segment.record(segment.first_seq + place) else { return Ok(None) };
        Ok(self.check(db, record))
    }

    fn is_on_a_line(&self, db: &Connection, cursor: u64, place: u64) -> Result<bool> {
        let query = "SELECT s.id, g.first_seq FROM segments g JOIN sessions s ON s.no = g.session WHERE g.cursor = ?1";
        let found: Option<([u8; 16], i64)> = db
            .prepare_cached(query)
            .and_then(|mut query| query.query_row([cursor as i64], |row| Ok((row.get(0)?, row.get(1)?))).optional())
            .map_err(schema::sql)?;
        Ok(found.is_some_and(|(id, first)| self.counts(SessionId(uuid::Uuid::from_bytes(id)), first as u64 + place)))
    }

    fn counts(&self, session: SessionId, seq: u64) -> bool {
        self.lines.as_ref().is_none_or(|lines| lines.get(&session).is_some_and(|to| seq <= *to))
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

    /// The record as an answer, if it is one.
    fn check(&self, db: &Connection, record: Record) -> Option<Hit> {
        let Question { pattern, kinds, actor, since, until, .. } = self.question;
        let header = record.header().ok()?;
        let fits = (kinds.is_empty() || kinds.contains(record.kind()))
            && actor.as_ref().is_none_or(|actor| actor.is(&header.actor))
            && since.is_none_or(|since| header.time >= since)
            && until.is_none_or(|until| header.time <= until)
            && self.counts(record.session(), record.seq());
        if !fits {
            return None;
        }
        let (passages, _) = text::of(&record, &mut |blob, most| beginning(self.store, db, &blob.digest, most));
        let texts: Vec<&str> = passages.iter().map(|passage| passage.text.as_str()).collect();
        let found = pattern.find(&texts)?;
        let matched = passages.into_iter().zip(found).filter(|(_, places)| !places.is_empty());
        let passages = matched.map(|(passage, places)| Matched { passage, places }).collect();
        Some(Hit { record, header, passages })
    }
}

/// The numbers of records in the index, by where they stand; `None` where the ledger has no such record.
pub(super) fn number(db: &Connection, point: rath_core::Point) -> Result<Option<(i64, Arc<SegmentRow>)>> {
    let segment = crate::embedded::read::segment_at(db, point)?;
    Ok(segment.map(|segment| (number_of(segment.cursor as u64, point.seq - segment.first_seq), Arc::new(segment))))
}
