//! The state that stored records fold into.

use std::collections::{HashMap, HashSet};

use rath_core::body::Forked;
use rath_core::store::{Result, Scan};
use rath_core::{Fault, Point, Refold, SessionId, State};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::read;
use super::schema::sql;

/// The state after `point`, which is also what a fork there starts with. Snapshots are taken at their word.
pub(super) fn state_at(db: &Connection, point: Point) -> Option<Refold> {
    let (mut to_fold, mut seen) = (Vec::new(), HashSet::new());
    let mut at = point;
    let mut state = loop {
        let query = "SELECT n.seq, n.state FROM snapshots n JOIN sessions s ON s.no = n.session
            WHERE s.id = ?1 AND n.seq BETWEEN 0 AND ?2 ORDER BY n.seq DESC LIMIT 1";
        let snapshot: Option<(i64, Vec<u8>)> = db
            .prepare_cached(query)
            .and_then(|mut query| {
                let values = params![at.session.0.as_bytes(), at.seq as i64];
                query.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .ok()?;
        if let Some((seq, bytes)) = snapshot {
            to_fold.push((at.session, seq as u64 + 1, at.seq));
            break Refold::of(State::from_snapshot(&bytes)?);
        }
        // A forged fork point may lead back here.
        if !seen.insert(at.session) {
            return None;
        }
        to_fold.push((at.session, 0, at.seq));
        match read::at(db, Point { seq: 0, ..at }).ok()??.body::<Forked>() {
            Ok(body) => at = body.from,
            Err(Fault::Kind { .. }) => break Refold::default(),
            // The body that named the fork point is gone; the column still does.
            Err(Fault::Erased) => at = origin(db, at.session)?,
            Err(_) => return None,
        }
    };
    while let Some((session, mut from, to)) = to_fold.pop() {
        while from <= to {
            let page = read::session_page(db, session, from, to, &Scan::session(session, from, to)).ok()?;
            for record in &page.records {
                state.apply(record).ok()?;
            }
            from = if page.more { page.position } else { to + 1 };
        }
    }
    Some(state)
}

/// The state that the record at `seq` of a session is folded onto.
pub(super) fn state_before(db: &Connection, session: SessionId, seq: u64) -> Option<Refold> {
    match seq.checked_sub(1) {
        Some(seq) => state_at(db, Point { session, seq }),
        None => origin(db, session).map_or_else(|| Some(Refold::default()), |point| state_at(db, point)),
    }
}

/// Goes on from that state over the records `first..=last`, and shows what each amounts to. Snapshots are taken at their
/// word: behind bodies that are gone nobody else knows.
pub(super) fn follow(
    db: &Connection,
    session: SessionId,
    first: u64,
    last: u64,
    state: &mut Refold,
    each: &mut dyn FnMut(u64, &State),
) -> Option<()> {
    let query = "SELECT n.seq, n.state FROM snapshots n JOIN sessions s ON s.no = n.session
        WHERE s.id = ?1 AND n.seq BETWEEN ?2 AND ?3";
    let mut query = db.prepare_cached(query).ok()?;
    let values = params![session.0.as_bytes(), first as i64, last as i64];
    let rows = query.query_map(values, |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Vec<u8>>(1)?))).ok()?;
    let snapshots: HashMap<u64, Vec<u8>> = rows.collect::<rusqlite::Result<_>>().ok()?;
    let mut from = first;
    while from <= last {
        let page = read::session_page(db, session, from, last, &Scan::session(session, from, last)).ok()?;
        for record in &page.records {
            state.apply(record).ok()?;
            if let Some(known) = snapshots.get(&record.seq()).and_then(|bytes| State::from_snapshot(bytes)) {
                *state = Refold::of(known);
            }
            each(record.seq(), state.state());
        }
        from = if page.more { page.position } else { last + 1 };
    }
    Some(())
}

/// Where a session was forked from, as its row says.
pub(super) fn origin(db: &Connection, session: SessionId) -> Option<Point> {
    let query = "SELECT origin_session, origin_seq FROM sessions WHERE id = ?1 AND origin_session IS NOT NULL";
    let row = |row: &Row<'_>| {
        let session = SessionId(uuid::Uuid::from_bytes(row.get(0)?));
        Ok(Point { session, seq: row.get::<_, i64>(1)? as u64 })
    };
    db.prepare_cached(query).and_then(|mut query| query.query_row([session.0.as_bytes()], row)).ok()
}

/// Whether a session has questions that nobody answered. One whose state cannot be folded may have: reading it says why.
pub(super) fn asks(db: &Connection, session: SessionId) -> Result<bool> {
    let head = db.prepare_cached("SELECT seq FROM sessions WHERE id = ?1");
    let head = head.and_then(|mut head| head.query_row([session.0.as_bytes()], |row| row.get::<_, i64>(0)).optional());
    let Some(seq) = head.map_err(sql)? else { return Ok(false) };
    let state = state_at(db, Point { session, seq: seq as u64 });
    Ok(state.is_none_or(|state| state.state().asks.iter().any(|ask| !ask.inherited)))
}
