//! Removes bodies from the database, and what was derived from them: parts of snapshots, titles, labels, runs, posts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rath_core::body::Grant;
use rath_core::files::Conflict;
use rath_core::store::{Error, Result, Scan};
use rath_core::{
    BlobRef, Digest, ErasedParts, Kind, Placement, Point, Record, RecordId, SessionId, State, blob_references,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{ErasePlan, EraseSet};
use crate::embedded::read::{self, SegmentRow};
use crate::embedded::schema::sql;
use crate::embedded::state_fold;
use crate::embedded::{ids, schema};
use crate::segment::{self, SegmentEntries};

/// Returns an error if a record of the plan is missing or has another id.
pub(super) fn check(db: &Connection, plan: &ErasePlan) -> Result<()> {
    let mut sessions: BTreeMap<SessionId, BTreeMap<u64, RecordId>> = BTreeMap::new();
    for reference in &plan.records {
        sessions.entry(reference.session).or_default().insert(reference.seq, reference.id);
    }
    for (session, mut ids) in sessions {
        each_segment(db, session, &ids.keys().copied().collect(), &mut |segment| {
            for (i, entry) in SegmentEntries::of(&segment.data).flatten().enumerate() {
                let seq = segment.first_seq + i as u64;
                let header = &segment.data[entry.header.start as usize..entry.header.end as usize];
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

/// Returns an error if an affected session, or one of its descendants, has a snapshot of a later fold version. This
/// version does not know which parts of such a snapshot come from the erased records.
pub(super) fn check_folds(db: &Connection, plan: &ErasePlan) -> Result<()> {
    let sessions: BTreeSet<SessionId> = plan.records.iter().map(|reference| reference.session).collect();
    let query = "SELECT n.state FROM snapshots n JOIN sessions s ON s.no = n.session WHERE s.id = ?1";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    for session in sessions {
        for session in with_descendants(db, session)? {
            let mut states = query.query([session.0.as_bytes()]).map_err(sql)?;
            while let Some(state) = states.next().map_err(sql)? {
                let bytes = state.get_ref(0).map_err(sql)?.as_blob().unwrap_or_default();
                if State::is_of_newer_fold(bytes) {
                    return Err(Error::LaterState { session });
                }
            }
        }
    }
    Ok(())
}

/// Calls `each` with every body that will be erased.
pub(super) fn for_each_body(
    db: &Connection,
    plan: &ErasePlan,
    set: &EraseSet,
    each: &mut dyn FnMut(SessionId, &[u8]),
) -> Result<()> {
    let removed = plan.sessions.iter().map(|head| (head.session, None));
    for (session, seqs) in set.records.iter().map(|(session, seqs)| (*session, Some(seqs))).chain(removed) {
        let range = seqs.cloned().unwrap_or_else(|| BTreeSet::from([0, u64::MAX >> 1]));
        each_segment(db, session, &range, &mut |segment| {
            for (i, entry) in SegmentEntries::of(&segment.data).flatten().enumerate() {
                let seq = segment.first_seq + i as u64;
                if let Some((_, body)) = entry.body.filter(|_| seqs.is_none_or(|seqs| seqs.contains(&seq))) {
                    each(session, &segment.data[body.start as usize..body.end as usize]);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The number of records to be erased that still have a body.
pub(super) fn count_bodies(db: &Connection, set: &EraseSet) -> Result<u64> {
    let mut count = 0;
    for (session, seqs) in &set.records {
        each_segment(db, *session, seqs, &mut |segment| {
            let entries = SegmentEntries::of(&segment.data).flatten().enumerate();
            let erased =
                entries.filter(|(i, entry)| entry.body.is_some() && seqs.contains(&(segment.first_seq + *i as u64)));
            count += erased.count() as u64;
            Ok(())
        })?;
    }
    Ok(count)
}

/// Whether no record of a session has a body after the bodies of `seqs` are erased.
pub(super) fn leaves_no_body(db: &Connection, session: SessionId, seqs: &BTreeSet<u64>) -> Result<bool> {
    let mut nothing = true;
    each_segment(db, session, &BTreeSet::from([0, u64::MAX >> 1]), &mut |segment| {
        let mut entries = SegmentEntries::of(&segment.data).flatten().enumerate();
        nothing &= entries.all(|(i, entry)| entry.body.is_none() || seqs.contains(&(segment.first_seq + i as u64)));
        Ok(())
    })?;
    Ok(nothing)
}

/// The blobs that the snapshots of a session refer to.
pub(super) fn snapshot_blobs(db: &Connection, session: SessionId) -> Result<Vec<BlobRef>> {
    let query = "SELECT n.state FROM snapshots n JOIN sessions s ON s.no = n.session WHERE s.id = ?1";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let states = query.query_map([session.0.as_bytes()], |row| row.get::<_, Vec<u8>>(0)).map_err(sql)?;
    let mut blobs = Vec::new();
    for state in states {
        blobs.extend(blob_references(&state.map_err(sql)?));
    }
    Ok(blobs)
}

/// Calls `each` with the segments of a session from the first to the last of `seqs`.
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
        // Segments are passed on in groups of 64, to bound the memory.
        if segments.len() >= 64 {
            segments.drain(..).try_for_each(&mut *each)?;
        }
    }
    drop(rows);
    segments.into_iter().try_for_each(each)
}

/// What the erased records contributed to snapshots.
#[derive(Default)]
struct Contributions {
    records: HashSet<RecordId>,
    grants: Vec<Grant>,
    placements: Vec<Placement>,
    conflicts: Vec<Conflict>,
}

impl Contributions {
    fn note(&mut self, record: &Record) {
        self.records.insert(record.id());
        // The contribution of the record alone: folded onto the empty state.
        let mut own = State::default();
        if own.apply(record).is_ok() {
            self.grants.extend(own.granted);
            self.placements.extend(own.placement.map(|placement| *placement));
            self.conflicts.extend(own.conflicts);
        }
    }

    /// Removes the contributions from a state, except those that `remaining` bodies make too.
    fn remove_from(&self, state: &mut State, remaining: &State) {
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
        let remains = |grant: &Grant| remaining.granted.contains(grant);
        state.granted.retain(|grant| !self.grants.contains(grant) || remains(grant));
        let remains = |conflict: &Conflict| remaining.conflicts.contains(conflict);
        state.conflicts.retain(|conflict| !self.conflicts.contains(conflict) || remains(conflict));
        let erased = |place: &Placement| {
            self.placements.iter().any(|placed| placed.origin == place.origin && placed.setup == place.setup)
        };
        let remains =
            |place: &Placement| remaining.placement.as_deref().is_some_and(|other| is_same_placement(other, place));
        // An earlier placement is not restored, because its files are different ones.
        if state.placement.as_deref().is_some_and(|place| erased(place) && !remains(place)) {
            state.placement = None;
        }
    }

    /// Whether there are contributions without a record id, which must be compared with the remaining bodies.
    fn needs_remaining(&self) -> bool {
        !(self.grants.is_empty() && self.placements.is_empty() && self.conflicts.is_empty())
    }
}

/// Whether two placements are equal except for their files.
fn is_same_placement(one: &Placement, other: &Placement) -> bool {
    let place = |of: &Placement| Placement { base: None, sandbox: None, ..of.clone() };
    place(one) == place(other)
}

/// The permissions, conflicts and placements that the remaining bodies contribute up to any record. Folded states are
/// cached, so a session is read once for all its snapshots.
#[derive(Default)]
struct Remaining(BTreeMap<(SessionId, u64), State>);

impl Remaining {
    /// The state up to `point`. If a record cannot be read, the empty state, so that everything equal to an erased
    /// contribution is removed.
    fn at(&mut self, db: &Connection, point: Point) -> State {
        self.fold(db, point).unwrap_or_default()
    }

    fn fold(&mut self, db: &Connection, point: Point) -> Result<State> {
        // The kinds that contribute to these parts, and those that start from another state.
        let says =
            |kind: &&Kind| matches!(kind, Kind::Forked | Kind::Arrived) || ErasedParts::of(kind) != ErasedParts::ANY;
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
            at = state_fold::origin(db, here.session);
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

/// Carries out the plan inside the caller's transaction.
pub(super) fn strip(db: &Connection, plan: &ErasePlan, set: &EraseSet) -> Result<()> {
    let stripped = || set.records.iter().filter(|(session, _)| !set.removed.contains(session));
    for (session, _) in stripped() {
        for session in with_descendants(db, *session)? {
            upgrade_snapshots(db, session)?;
        }
    }
    // After each range of erased records there must be a snapshot, because the state can no longer be folded from them.
    // Snapshots are also needed inside the range, at fork points and where the files change. All states are folded
    // before anything is erased, because the state of a fork depends on the records of its parent.
    let mut folded = Vec::new();
    for (session, seqs) in stripped() {
        let forked = fork_points(db, *session)?;
        for (first, last) in ranges(seqs) {
            // A session that cannot be folded has no state to keep.
            let Some(mut state) = state_fold::state_before(db, *session, first) else { continue };
            let (mut files, mut states) = (state.state().workspace.clone(), Vec::new());
            let followed = state_fold::fold_records(db, *session, first, last, &mut state, &mut |seq, state| {
                let changed = files != state.workspace && !set.emptied.contains(session);
                if changed || seq == last || forked.contains(&seq) {
                    files.clone_from(&state.workspace);
                    states.push((Point { session: *session, seq }, state.clone()));
                }
            });
            folded.extend(followed.map(|()| states).unwrap_or_default());
        }
    }
    let mut contributions: HashMap<SessionId, Contributions> = HashMap::new();
    for (session, seqs) in stripped() {
        strip_bodies(db, *session, seqs, contributions.entry(*session).or_default())?;
    }
    for (point, state) in folded {
        let insert = "INSERT OR REPLACE INTO snapshots (session, seq, state)
            SELECT no, ?2, ?3 FROM sessions WHERE id = ?1";
        let values = params![point.session.0.as_bytes(), point.seq as i64, state.to_snapshot()];
        db.execute(insert, values).map_err(sql)?;
    }
    let mut remaining = Remaining::default();
    for (session, seqs) in stripped() {
        let emptied = set.emptied.contains(session);
        let first = seqs.first().copied().unwrap_or(0);
        // Only the contributions of this session; another session may still have the same ones.
        let contributions = contributions.entry(*session).or_default();
        // Snapshots before `first` may have the only reference to a version. It is removed if the session loses its
        // last body.
        clean_snapshots(db, *session, if emptied { 0 } else { first }, emptied, contributions, &mut remaining)?;
        clean_descendants(db, *session, first, contributions, &mut remaining)?;
        rename(db, *session)?;
        if seqs.contains(&0) {
            db.execute("DELETE FROM runs WHERE session = ?1", [session.0.as_bytes()]).map_err(sql)?;
        }
        if emptied || leaves_no_body(db, *session, seqs)? {
            let empty = "UPDATE posts SET taken = 1, body = x'' WHERE session = ?1 AND taken = 0";
            db.execute(empty, [session.0.as_bytes()]).map_err(sql)?;
        }
    }
    for post in &plan.posts {
        db.execute("UPDATE posts SET taken = 1, body = x'' WHERE id = ?1", [post]).map_err(sql)?;
    }
    plan.sessions.iter().try_for_each(|head| remove(db, head.session))
}

/// A session and all its descendants.
fn with_descendants(db: &Connection, session: SessionId) -> Result<Vec<SessionId>> {
    let (mut all, mut next) = (vec![session], 0);
    let mut query = db.prepare_cached("SELECT id FROM sessions WHERE origin_session = ?1").map_err(sql)?;
    while let Some(parent) = all.get(next).copied() {
        let forks = query.query_map([parent.0.as_bytes()], |row| row.get::<_, [u8; 16]>(0)).map_err(sql)?;
        for fork in forks {
            let fork = SessionId(uuid::Uuid::from_bytes(fork.map_err(sql)?));
            if !all.contains(&fork) {
                all.push(fork);
            }
        }
        next += 1;
    }
    Ok(all)
}

/// Converts the snapshots of older fold versions to the current one, while all bodies are still there.
fn upgrade_snapshots(db: &Connection, session: SessionId) -> Result<()> {
    let query = "SELECT n.session, n.seq, n.state FROM snapshots n JOIN sessions s ON s.no = n.session WHERE s.id = ?1";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let all: Vec<(i64, i64, Vec<u8>)> =
        query.query_map([session.0.as_bytes()], row).map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)?;
    let older = all.iter().filter(|(_, _, bytes)| State::from_snapshot(bytes).is_none());
    let older: BTreeMap<u64, i64> = older.map(|(no, seq, _)| (*seq as u64, *no)).collect();
    let Some((&last, _)) = older.last_key_value() else { return Ok(()) };
    // A session that cannot be folded has no state to keep.
    let Some(mut state) = state_fold::state_before(db, session, 0) else { return Ok(()) };
    let mut upgraded = Vec::new();
    let followed = state_fold::fold_records(db, session, 0, last, &mut state, &mut |seq, state| {
        upgraded.extend(older.get(&seq).map(|no| (*no, seq, state.to_snapshot())));
    });
    if followed.is_none() {
        return Ok(());
    }
    let mut update =
        db.prepare_cached("UPDATE snapshots SET state = ?3 WHERE session = ?1 AND seq = ?2").map_err(sql)?;
    for (no, seq, bytes) in upgraded {
        update.execute(params![no, seq as i64, bytes]).map_err(sql)?;
    }
    Ok(())
}

/// Groups seqs into ranges of consecutive ones: the first and the last of each.
fn ranges(seqs: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for seq in seqs {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *seq => *last = *seq,
            _ => ranges.push((*seq, *seq)),
        }
    }
    ranges
}

/// The seqs of a session at which others were forked.
fn fork_points(db: &Connection, session: SessionId) -> Result<HashSet<u64>> {
    let mut query = db.prepare_cached("SELECT origin_seq FROM sessions WHERE origin_session = ?1").map_err(sql)?;
    let rows = query.query_map([session.0.as_bytes()], |row| row.get::<_, i64>(0)).map_err(sql)?;
    rows.map(|seq| Ok(seq.map_err(sql)? as u64)).collect()
}

/// Rewrites the segments without the salts and bodies of these records.
fn strip_bodies(
    db: &Connection,
    session: SessionId,
    seqs: &BTreeSet<u64>,
    contributions: &mut Contributions,
) -> Result<()> {
    each_segment(db, session, seqs, &mut |row| {
        let mut stripped = false;
        let mut all = Vec::new();
        for record in row.records()? {
            let is_erased = seqs.contains(&record.seq());
            if is_erased {
                contributions.note(&record);
                stripped |= record.body_bytes().is_some();
            }
            all.push(if is_erased { record.erased() } else { record });
        }
        if !stripped {
            return Ok(());
        }
        let [segment] = &segment::pack(&all)[..] else {
            return Err(Error::machine("erasing", "the rewritten records do not fit into one segment"));
        };
        let update = "UPDATE segments SET data = ?2 WHERE cursor = ?1";
        db.execute(update, params![row.cursor, segment.data]).map_err(sql)?;
        Ok(())
    })
}

/// Removes the contributions of erased records from the snapshots of a session, from seq `first` on. `emptied` is set
/// if the session loses its versions of files too.
fn clean_snapshots(
    db: &Connection,
    session: SessionId,
    first: u64,
    emptied: bool,
    contributions: &Contributions,
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
        // Snapshots of older fold versions were converted before. Bytes that are not a snapshot may contain anything,
        // so they are deleted.
        let Some(mut state) = State::from_snapshot(&bytes) else {
            db.execute("DELETE FROM snapshots WHERE session = ?1 AND seq = ?2", [no, seq]).map_err(sql)?;
            continue;
        };
        let point = Point { session, seq: seq as u64 };
        let remaining = if contributions.needs_remaining() { remaining.at(db, point) } else { State::default() };
        contributions.remove_from(&mut state, &remaining);
        let names = names(db, session, seq as u64)?;
        (state.title, state.labels) = (names.title, names.labels);
        if emptied {
            (state.workspace, state.placement) = (None, None);
            state.conflicts.clear();
            state.granted.clear();
        }
        let update = "UPDATE snapshots SET state = ?3 WHERE session = ?1 AND seq = ?2";
        db.execute(update, params![no, seq, state.to_snapshot()]).map_err(sql)?;
    }
    Ok(())
}

/// Removes the contributions from the snapshots of all descendants that were forked at or after seq `first`.
fn clean_descendants(
    db: &Connection,
    session: SessionId,
    first: u64,
    contributions: &Contributions,
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
                clean_snapshots(db, fork, 0, false, contributions, remaining)?;
                open.push((fork, 0));
            }
        }
    }
    Ok(())
}

/// The title and the labels according to the remaining bodies up to seq `to`.
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

/// Deletes a session from every table.
fn remove(db: &Connection, session: SessionId) -> Result<()> {
    let id = session.0.as_bytes();
    let no = "SELECT no FROM sessions WHERE id = ?1";
    let no: Option<i64> = db.query_row(no, [id], |row| row.get(0)).optional().map_err(sql)?;
    // Already deleted, before an interruption.
    let Some(no) = no else { return Ok(()) };
    let mut ids_of_segments: HashMap<i64, Vec<i64>> = HashMap::new();
    each_segment(db, session, &BTreeSet::from([0, u64::MAX >> 1]), &mut |segment| {
        let entries = SegmentEntries::of(&segment.data).flatten();
        let prefixes = entries.map(|entry| {
            ids::front(&Digest::of(&segment.data[entry.header.start as usize..entry.header.end as usize]))
        });
        ids_of_segments.insert(segment.cursor, prefixes.collect());
        Ok(())
    })?;
    let mut forget = db.prepare_cached("DELETE FROM ids WHERE prefix = ?1 AND segment = ?2").map_err(sql)?;
    for (cursor, prefixes) in ids_of_segments {
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
