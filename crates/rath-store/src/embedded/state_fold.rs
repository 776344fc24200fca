//! Folding stored records into the state of a session, starting from snapshots.

use std::collections::{HashMap, HashSet};

use rath_core::body::Forked;
use rath_core::store::{Result, Scan};
use rath_core::{Point, RecordError, Refold, SessionId, State, StoredState};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::read;
use super::schema::sql;

/// The state after `point`, which is also the initial state of a fork at `point`. Snapshots are trusted. `None` if a
/// record cannot be read or folded.
pub(super) fn state_at(db: &Connection, point: Point) -> Option<Refold> {
    let (mut to_fold, mut seen) = (Vec::new(), HashSet::new());
    let mut at = point;
    let mut state = loop {
        if let Some((seq, state)) = nearest(db, at)? {
            to_fold.push((at.session, seq + 1, at.seq));
            break Refold::of(state);
        }
        // A forged fork point may make a cycle.
        if !seen.insert(at.session) {
            return None;
        }
        to_fold.push((at.session, 0, at.seq));
        match read::at(db, Point { seq: 0, ..at }).ok()??.body::<Forked>() {
            Ok(body) => at = body.from,
            Err(RecordError::Kind { .. }) => break Refold::default(),
            // The body with the fork point was erased. The column of the session still has it.
            Err(RecordError::Erased) => at = origin(db, at.session)?,
            Err(_) => return None,
        }
    };
    while let Some((session, from, to)) = to_fold.pop() {
        fold_records(db, session, from, to, &mut state, &mut |_, _| {})?;
    }
    Some(state)
}

/// The nearest snapshot of the current fold version at or before a record.
fn nearest(db: &Connection, at: Point) -> Option<Option<(u64, State)>> {
    let query = "SELECT n.seq, n.state FROM snapshots n JOIN sessions s ON s.no = n.session
        WHERE s.id = ?1 AND n.seq BETWEEN 0 AND ?2 ORDER BY n.seq DESC";
    let mut query = db.prepare_cached(query).ok()?;
    let mut rows = query.query(params![at.session.0.as_bytes(), at.seq as i64]).ok()?;
    while let Some(row) = rows.next().ok()? {
        if let Some(state) = State::from_snapshot(row.get_ref(1).ok()?.as_blob().ok()?) {
            return Some(Some((row.get::<_, i64>(0).ok()? as u64, state)));
        }
    }
    Some(None)
}

/// The state before the record at `seq` of a session.
pub(super) fn state_before(db: &Connection, session: SessionId, seq: u64) -> Option<Refold> {
    match seq.checked_sub(1) {
        Some(seq) => state_at(db, Point { session, seq }),
        None => origin(db, session).map_or_else(|| Some(Refold::default()), |point| state_at(db, point)),
    }
}

/// Folds the records `first..=last` into `state`, and calls `each` with the state after each of them. Snapshots are
/// trusted, because after an erased body only they have the state.
pub(super) fn fold_records(
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
            match snapshots.get(&record.seq()).and_then(|bytes| State::read_snapshot(bytes)) {
                Some(StoredState::Current(known)) => *state = Refold::of(known),
                Some(StoredState::Other(other)) => state.take_from(&other),
                None => {}
            }
            each(record.seq(), state.state());
        }
        from = if page.more { page.position } else { last + 1 };
    }
    Some(())
}

/// The fork point of a session, from its row.
pub(super) fn origin(db: &Connection, session: SessionId) -> Option<Point> {
    let query = "SELECT origin_session, origin_seq FROM sessions WHERE id = ?1 AND origin_session IS NOT NULL";
    let row = |row: &Row<'_>| {
        let session = SessionId(uuid::Uuid::from_bytes(row.get(0)?));
        Ok(Point { session, seq: row.get::<_, i64>(1)? as u64 })
    };
    db.prepare_cached(query).and_then(|mut query| query.query_row([session.0.as_bytes()], row)).ok()
}

/// Whether a session has open questions of its own. Returns `true` if its state cannot be folded, so that the caller
/// reads the session and gets the error.
pub(super) fn has_open_questions(db: &Connection, session: SessionId) -> Result<bool> {
    let head = db.prepare_cached("SELECT seq FROM sessions WHERE id = ?1");
    let head = head.and_then(|mut head| head.query_row([session.0.as_bytes()], |row| row.get::<_, i64>(0)).optional());
    let Some(seq) = head.map_err(sql)? else { return Ok(false) };
    let state = state_at(db, Point { session, seq: seq as u64 });
    Ok(state.is_none_or(|state| state.state().asks.iter().any(|ask| !ask.inherited)))
}
