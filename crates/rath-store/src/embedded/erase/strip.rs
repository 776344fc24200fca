//! Takes bodies out of the database, and what was folded from them: snapshots, titles, labels, runs, posts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rath_core::body::Grant;
use rath_core::files::Conflict;
use rath_core::store::{Error, Result, Scan};
use rath_core::{BlobRef, Digest, Gone, Kind, Placement, Point, Record, RecordId, SessionId, State, blob_references};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Doom, Doomed};
use crate::embedded::folded;
use crate::embedded::read::{self, SegmentRow};
use crate::embedded::schema::sql;
use crate::embedded::{ids, schema};
use crate::segment::{self, Slots};

/// Fails unless every doomed record is there, with the id that was seen.
pub(super) fn check(db: &Connection, doomed: &Doomed) -> Result<()> {
    let mut sessions: BTreeMap<SessionId, BTreeMap<u64, RecordId>> = BTreeMap::new();
    for reference in &doomed.records {
        sessions.entry(reference.session).or_default().insert(reference.seq, reference.id);
    }
    for (session, mut ids) in sessions {
        each_segment(db, session, &ids.keys().copied().collect(), &mut |segment| {
            for (i, slot) in Slots::of(&segment.data).flatten().enumerate() {
                let seq = segment.first_seq + i as u64;
                let header = &segment.data[slot.header.start as usize..slot.header.end as usize];
                if ids.get(&seq).is_some_and(|id| id.0 == Digest::of(header)) {
                    ids.remove(&seq);
                }
            }
            Ok(())
        })?;
        if let Some(id) = ids.values().next() {
            return Err(Error::NotFound(format!("record {id}")));
        }
    }
    Ok(())
}

/// Shows each body that will go.
pub(super) fn each_doomed(
    db: &Connection,
    doomed: &Doomed,
    doom: &Doom,
    each: &mut dyn FnMut(SessionId, &[u8]),
) -> Result<()> {
    let gone = doomed.sessions.iter().map(|head| (head.session, None));
    for (session, seqs) in doom.records.iter().map(|(session, seqs)| (*session, Some(seqs))).chain(gone) {
        let range = seqs.cloned().unwrap_or_else(|| BTreeSet::from([0, u64::MAX >> 1]));
        each_segment(db, session, &range, &mut |segment| {
            for (i, slot) in Slots::of(&segment.data).flatten().enumerate() {
                let seq = segment.first_seq + i as u64;
                if let Some((_, body)) = slot.body.filter(|_| seqs.is_none_or(|seqs| seqs.contains(&seq))) {
                    each(session, &segment.data[body.start as usize..body.end as usize]);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// How many doomed records still have a body.
pub(super) fn living(db: &Connection, doom: &Doom) -> Result<u64> {
    let mut count = 0;
    for (session, seqs) in &doom.records {
        each_segment(db, *session, seqs, &mut |segment| {
            let slots = Slots::of(&segment.data).flatten().enumerate();
            let doomed =
                slots.filter(|(i, slot)| slot.body.is_some() && seqs.contains(&(segment.first_seq + *i as u64)));
            count += doomed.count() as u64;
            Ok(())
        })?;
    }
    Ok(count)
}

/// Whether no record of a session has a body besides these.
pub(super) fn leaves_nothing(db: &Connection, session: SessionId, seqs: &BTreeSet<u64>) -> Result<bool> {
    let mut nothing = true;
    each_segment(db, session, &BTreeSet::from([0, u64::MAX >> 1]), &mut |segment| {
        let mut slots = Slots::of(&segment.data).flatten().enumerate();
        nothing &= slots.all(|(i, slot)| slot.body.is_none() || seqs.contains(&(segment.first_seq + i as u64)));
        Ok(())
    })?;
    Ok(nothing)
}

/// The blobs that a session's snapshots name.
pub(super) fn folded_blobs(db: &Connection, session: SessionId) -> Result<Vec<BlobRef>> {
    let query = "SELECT n.state FROM snapshots n JOIN sessions s ON s.no = n.session WHERE s.id = ?1";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let states = query.query_map([session.0.as_bytes()], |row| row.get::<_, Vec<u8>>(0)).map_err(sql)?;
    let mut blobs = Vec::new();
    for state in states {
        blobs.extend(blob_references(&state.map_err(sql)?));
    }
    Ok(blobs)
}

/// The segments of a session between the first and the last of `seqs`, those that hold one of them.
fn each_segment(
    db: &Connection,
    session: SessionId,
    seqs: &BTreeSet<u64>,
    each: &mut dyn FnMut(SegmentRow) -> Result<()>,
) -> Result<()> {
    let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { return Ok(()) };
    let no = "SELECT no FROM sessions WHERE id = ?1";
    let no: Option<i64> = db.query_row(no, [session.0.as_bytes()], |row| row.get(0)).optional().map_err(sql)?;
    let query = format!(
        "SELECT {} FROM segments WHERE session = ?1 AND first_seq <= ?3 AND first_seq + count > ?2 ORDER BY first_seq",
        read::COLUMNS
    );
    let mut query = db.prepare_cached(&query).map_err(sql)?;
    let mut rows = query.query(params![no, *first as i64, *last as i64]).map_err(sql)?;
    let mut segments = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        segments.push(SegmentRow::read(row, session).map_err(sql)?);
        // Each is handed over before the next is read, except while rows are open that a caller may change.
        if segments.len() >= 64 {
            segments.drain(..).try_for_each(&mut *each)?;
        }
    }
    drop(rows);
    segments.into_iter().try_for_each(each)
}

/// What erased records left in folded states.
#[derive(Default)]
struct Traces {
    records: HashSet<RecordId>,
    grants: Vec<Grant>,
    places: Vec<Placement>,
    conflicts: Vec<Conflict>,
}

impl Traces {
    fn note(&mut self, record: &Record) {
        self.records.insert(record.id());
        // What the record says by itself: folded onto nothing.
        let mut said = State::default();
        if said.apply(record).is_ok() {
            self.grants.extend(said.granted);
            self.places.extend(said.placement.map(|place| *place));
            self.conflicts.extend(said.conflicts);
        }
    }

    /// Takes them out of a state, except what `remaining` bodies say too.
    fn leave(&self, state: &mut State, remaining: &State) {
        for step in state.steps.iter_mut().filter(|step| self.records.contains(&step.record)) {
            step.name = State::ERASED.into();
        }
        for call in state.calls.iter_mut().filter(|call| self.records.contains(&call.record)) {
            call.tool = State::ERASED.into();
        }
        for ask in state.asks.iter_mut().filter(|ask| self.records.contains(&ask.record)) {
            ask.always = None;
        }
        for wait in state.waits.iter_mut().filter(|wait| self.records.contains(&wait.record)) {
            (wait.id, wait.name) = (State::ERASED.into(), None);
        }
        let said = |grant: &Grant| remaining.granted.contains(grant);
        state.granted.retain(|grant| !self.grants.contains(grant) || said(grant));
        let said = |conflict: &Conflict| remaining.conflicts.contains(conflict);
        state.conflicts.retain(|conflict| !self.conflicts.contains(conflict) || said(conflict));
        let erased = |place: &Placement| {
            self.places.iter().any(|placed| placed.origin == place.origin && placed.setup == place.setup)
        };
        let said = |place: &Placement| remaining.placement.as_deref().is_some_and(|said| is_same_place(said, place));
        // An earlier place is not gone back to: its files are others.
        if state.placement.as_deref().is_some_and(|place| erased(place) && !said(place)) {
            state.placement = None;
        }
    }

    /// Whether anything in a state may stand there because of a body, and not of a record.
    fn are_in_states(&self) -> bool {
        !(self.grants.is_empty() && self.places.is_empty() && self.conflicts.is_empty())
    }
}

/// Whether two places are one, whatever is known of the files there.
fn is_same_place(one: &Placement, other: &Placement) -> bool {
    let place = |of: &Placement| Placement { base: None, sandbox: None, ..of.clone() };
    place(one) == place(other)
}

/// What bodies that are left say of permissions, conflicts and the place, at any place. What was folded is kept, so that a
/// line is read once, however many states hang on it.
#[derive(Default)]
struct Remaining(BTreeMap<(SessionId, u64), State>);

impl Remaining {
    /// Where the line cannot be read to its end, nothing: then what is like an erased thing goes.
    fn at(&mut self, db: &Connection, point: Point) -> State {
        self.fold(db, point).unwrap_or_default()
    }

    fn fold(&mut self, db: &Connection, point: Point) -> Result<State> {
        // The kinds that say something of them, and what a fork begins with.
        let says = |kind: &&Kind| matches!(kind, Kind::Forked | Kind::Arrived) || Gone::of(kind) != Gone::ANY;
        let kinds: Vec<Kind> = Kind::KNOWN.iter().filter(says).cloned().collect();
        let (mut to_fold, mut seen, mut at) = (Vec::new(), HashSet::new(), Some(point));
        let mut state = State::default();
        while let Some(here) = at.filter(|here| seen.insert(here.session)) {
            if let Some(((_, seq), known)) = self.0.range((here.session, 0)..=(here.session, here.seq)).next_back() {
                state = known.clone();
                to_fold.push((here, seq + 1));
                break;
            }
            to_fold.push((here, 0));
            at = folded::origin(db, here.session);
        }
        while let Some((Point { session, seq: to }, mut from)) = to_fold.pop() {
            while from <= to {
                let scan = Scan::session(session, from, to).kinds(&kinds);
                let page = read::session_page(db, session, from, to, &scan)?;
                for record in &page.records {
                    state.apply(record).map_err(|why| Error::Tampered { point: record.point(), why })?;
                }
                from = if page.more { page.position } else { to + 1 };
            }
            self.0.insert((session, to), state.clone());
        }
        Ok(state)
    }
}

/// Destroys what is doomed, inside the caller's transaction.
pub(super) fn strip(db: &Connection, doomed: &Doomed, doom: &Doom) -> Result<()> {
    let stripped = || doom.records.iter().filter(|(session, _)| !doom.gone.contains(session));
    // What the records amount to stays known behind each stretch of erased ones, and in it where somebody may ask for the
    // files: there is no other way to tell. All of it is looked at before anything goes, as a fork's state stands on its
    // parent's records.
    let mut folded = Vec::new();
    for (session, seqs) in stripped() {
        let forked = fork_points(db, *session)?;
        for (first, last) in stretches(seqs) {
            // One that cannot be followed has no state to keep.
            let Some(mut state) = folded::state_before(db, *session, first) else { continue };
            let (mut files, mut states) = (state.state().workspace.clone(), Vec::new());
            let followed = folded::follow(db, *session, first, last, &mut state, &mut |seq, state| {
                let changed = files != state.workspace && !doom.whole.contains(session);
                if changed || seq == last || forked.contains(&seq) {
                    files.clone_from(&state.workspace);
                    states.push((Point { session: *session, seq }, state.clone()));
                }
            });
            folded.extend(followed.map(|()| states).unwrap_or_default());
        }
    }
    let mut traces: HashMap<SessionId, Traces> = HashMap::new();
    for (session, seqs) in stripped() {
        strip_bodies(db, *session, seqs, traces.entry(*session).or_default())?;
    }
    for (point, state) in folded {
        let insert = "INSERT OR REPLACE INTO snapshots (session, seq, state)
            SELECT no, ?2, ?3 FROM sessions WHERE id = ?1";
        let values = params![point.session.0.as_bytes(), point.seq as i64, state.to_snapshot()];
        db.execute(insert, values).map_err(sql)?;
    }
    let mut remaining = Remaining::default();
    for (session, seqs) in stripped() {
        let whole = doom.whole.contains(session);
        let first = seqs.first().copied().unwrap_or(0);
        // What one session loses another one may still say.
        let traces = traces.entry(*session).or_default();
        // Those before `first` may know versions that nobody else does: they go with the last body.
        clean_snapshots(db, *session, if whole { 0 } else { first }, whole, traces, &mut remaining)?;
        clean_descendants(db, *session, first, traces, &mut remaining)?;
        rename(db, *session)?;
        if seqs.contains(&0) {
            db.execute("DELETE FROM runs WHERE session = ?1", [session.0.as_bytes()]).map_err(sql)?;
        }
        if whole || leaves_nothing(db, *session, seqs)? {
            let empty = "UPDATE posts SET taken = 1, body = x'' WHERE session = ?1 AND taken = 0";
            db.execute(empty, [session.0.as_bytes()]).map_err(sql)?;
        }
    }
    for post in &doomed.posts {
        db.execute("UPDATE posts SET taken = 1, body = x'' WHERE id = ?1", [post]).map_err(sql)?;
    }
    doomed.sessions.iter().try_for_each(|head| remove(db, head.session))
}

/// Places that follow each other, as the first and the last of each stretch.
fn stretches(seqs: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for seq in seqs {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == *seq => *last = *seq,
            _ => stretches.push((*seq, *seq)),
        }
    }
    stretches
}

/// The places of a session from which others were forked.
fn fork_points(db: &Connection, session: SessionId) -> Result<HashSet<u64>> {
    let mut query = db.prepare_cached("SELECT origin_seq FROM sessions WHERE origin_session = ?1").map_err(sql)?;
    let rows = query.query_map([session.0.as_bytes()], |row| row.get::<_, i64>(0)).map_err(sql)?;
    rows.map(|seq| Ok(seq.map_err(sql)? as u64)).collect()
}

/// Writes segments anew, without these salts and bodies.
fn strip_bodies(db: &Connection, session: SessionId, seqs: &BTreeSet<u64>, traces: &mut Traces) -> Result<()> {
    each_segment(db, session, seqs, &mut |row| {
        let mut stripped = false;
        let mut all = Vec::new();
        for record in row.records()? {
            let doomed = seqs.contains(&record.seq());
            if doomed {
                traces.note(&record);
                stripped |= record.body_bytes().is_some();
            }
            all.push(if doomed { record.erased() } else { record });
        }
        if !stripped {
            return Ok(());
        }
        let [segment] = &segment::pack(&all)[..] else {
            return Err(Error::machine("erasing", "a segment does not fit into one any more"));
        };
        let update = "UPDATE segments SET data = ?2 WHERE cursor = ?1";
        db.execute(update, params![row.cursor, segment.data]).map_err(sql)?;
        Ok(())
    })
}

/// Takes traces out of a session's snapshots from `first` on.
fn clean_snapshots(
    db: &Connection,
    session: SessionId,
    first: u64,
    whole: bool,
    traces: &Traces,
    remaining: &mut Remaining,
) -> Result<()> {
    let query = "SELECT n.session, n.seq, n.state FROM snapshots n JOIN sessions s ON s.no = n.session
        WHERE s.id = ?1 AND n.seq >= ?2 ORDER BY n.seq";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let values = params![session.0.as_bytes(), first as i64];
    let snapshots: Vec<(i64, i64, Vec<u8>)> =
        query.query_map(values, row).map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)?;
    for (no, seq, bytes) in snapshots {
        let Some(mut state) = State::from_snapshot(&bytes) else {
            db.execute("DELETE FROM snapshots WHERE session = ?1 AND seq = ?2", [no, seq]).map_err(sql)?;
            continue;
        };
        let point = Point { session, seq: seq as u64 };
        let remaining = if traces.are_in_states() { remaining.at(db, point) } else { State::default() };
        traces.leave(&mut state, &remaining);
        let names = names(db, session, seq as u64)?;
        (state.title, state.labels) = (names.title, names.labels);
        if whole {
            (state.workspace, state.placement) = (None, None);
            state.conflicts.clear();
            state.granted.clear();
        }
        let update = "UPDATE snapshots SET state = ?3 WHERE session = ?1 AND seq = ?2";
        db.execute(update, params![no, seq, state.to_snapshot()]).map_err(sql)?;
    }
    Ok(())
}

/// Forks behind `first` began with a state that may have traces.
fn clean_descendants(
    db: &Connection,
    session: SessionId,
    first: u64,
    traces: &Traces,
    remaining: &mut Remaining,
) -> Result<()> {
    let (mut open, mut cleaned) = (vec![(session, first)], HashSet::new());
    while let Some((parent, first)) = open.pop() {
        let query = "SELECT id FROM sessions WHERE origin_session = ?1 AND origin_seq >= ?2";
        let mut query = db.prepare_cached(query).map_err(sql)?;
        let values = params![parent.0.as_bytes(), first as i64];
        let forks: Vec<[u8; 16]> =
            query.query_map(values, |row| row.get(0)).map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)?;
        for fork in forks.into_iter().map(|id| SessionId(uuid::Uuid::from_bytes(id))) {
            if cleaned.insert(fork) {
                clean_snapshots(db, fork, 0, false, traces, remaining)?;
                open.push((fork, 0));
            }
        }
    }
    Ok(())
}

/// Title and labels as the records say that have not been erased, up to `to`.
fn names(db: &Connection, session: SessionId, to: u64) -> Result<State> {
    let mut names = State::default();
    let scan = Scan::session(session, 0, to).kinds(&[Kind::Created, Kind::Labelled]);
    let mut from = 0;
    loop {
        let page = read::session_page(db, session, from, to, &scan)?;
        for record in &page.records {
            names.apply(record).map_err(|why| Error::Tampered { point: record.point(), why })?;
        }
        if !page.more {
            return Ok(names);
        }
        from = page.position;
    }
}

fn rename(db: &Connection, session: SessionId) -> Result<()> {
    let State { title, labels, .. } = names(db, session, u64::MAX >> 1)?;
    let labels = (!labels.is_empty()).then(|| serde_json::to_string(&labels).unwrap_or_default());
    let update = "UPDATE sessions SET title = ?2, labels = ?3 WHERE id = ?1";
    db.execute(update, params![session.0.as_bytes(), title, labels]).map_err(sql)?;
    Ok(())
}

/// Takes a session out of every table.
fn remove(db: &Connection, session: SessionId) -> Result<()> {
    let id = session.0.as_bytes();
    let no = "SELECT no FROM sessions WHERE id = ?1";
    let no: Option<i64> = db.query_row(no, [id], |row| row.get(0)).optional().map_err(sql)?;
    // Gone already: an interrupted removal is finished.
    let Some(no) = no else { return Ok(()) };
    let mut entries: HashMap<i64, Vec<i64>> = HashMap::new();
    each_segment(db, session, &BTreeSet::from([0, u64::MAX >> 1]), &mut |segment| {
        let slots = Slots::of(&segment.data).flatten();
        let prefixes = slots
            .map(|slot| ids::front(&Digest::of(&segment.data[slot.header.start as usize..slot.header.end as usize])));
        entries.insert(segment.cursor, prefixes.collect());
        Ok(())
    })?;
    let mut forget = db.prepare_cached("DELETE FROM ids WHERE prefix = ?1 AND segment = ?2").map_err(sql)?;
    for (cursor, prefixes) in entries {
        for prefix in prefixes {
            forget.execute([prefix, cursor]).map_err(sql)?;
        }
    }
    for statement in [
        "DELETE FROM segments WHERE session = ?1",
        "DELETE FROM snapshots WHERE session = ?1",
        "DELETE FROM sessions WHERE no = ?1",
    ] {
        db.execute(statement, [no]).map_err(sql)?;
    }
    for statement in ["DELETE FROM runs WHERE session = ?1", "DELETE FROM posts WHERE session = ?1"] {
        if let Some(mut statement) = schema::prepare_added(db, statement, schema::RUNS_AND_POSTS)? {
            statement.execute([id]).map_err(sql)?;
        }
    }
    Ok(())
}
