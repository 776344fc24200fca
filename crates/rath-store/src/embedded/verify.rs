//! Verification: recomputes every column, index and snapshot of the database from the hashed bytes of the records.

use std::collections::{HashMap, HashSet, VecDeque};

use rath_core::body::{Created, ErasedRange, Forked};
use rath_core::files::{FilePath, TREE, Tree};
use rath_core::store::Result;
use rath_core::verify::{ChainVerifier, Finding, FindingKind, ParentLink, VerifyReport};
use rath_core::{
    BlobRef, Digest, ErasedParts, Kind, Point, Record, RecordError, SessionId, State, StoredState, blob_references,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow, params};
use sha2::{Digest as _, Sha256};

use super::schema::sql;
use super::{Embedded, blobs, ids, inbox, read, runs, schema_check, state_fold};
use crate::packs::{BlobContent, Damage};
use crate::segment::SegmentEntries;

/// The number of findings after which the verification stops.
const MAX_FINDINGS: usize = 100;

/// Receives the number of verified records and the number of all records.
type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Embedded {
    /// Verifies every record, blob and index column of the store, or of one session and its ancestors.
    pub fn verify(&self, session: Option<SessionId>, progress: Progress<'_>) -> Result<VerifyReport> {
        self.read(|db| {
            // One read transaction, so that concurrent commits do not show up as contradictions.
            let snapshot = db.unchecked_transaction().map_err(sql)?;
            let mut audit = Verifier::new(self, db, progress);
            let done = match session {
                None => audit.whole_store(),
                Some(session) => audit.with_ancestors(session),
            };
            drop(snapshot);
            // An error of SQLite is a finding, not a failure of the verification.
            if let Err(error) = done {
                audit.report.findings.push(Finding {
                    what: FindingKind::Unreadable,
                    session: None,
                    seq: None,
                    why: format!("the database cannot be read further: {error}"),
                });
            }
            Ok(audit.report)
        })
    }
}

/// The columns of a session, to be verified.
struct SessionRow {
    id: SessionId,
    head: Digest,
    seq: u64,
    time: u64,
    generation: u64,
    birth: u8,
    born: u64,
    born_generation: u64,
    origin: Option<(SessionId, u64, Digest)>,
    closed: bool,
    title: Option<String>,
    labels: Option<String>,
}

/// A session under verification.
struct SessionCheck {
    columns: SessionRow,
    chain: ChainVerifier,
    /// The title and the labels, folded from the records.
    names: State,
    names_known: bool,
    /// The stored snapshots that have not been checked yet, by seq.
    snapshots: VecDeque<(i64, Option<Vec<u8>>)>,
}

/// For [each](ErasedParts::EACH) part of the state, the first seq of a session from which on that part is lost, because
/// the body of a record was erased in the session or in an ancestor before the fork point.
#[derive(Clone, Copy, Default)]
struct LostParts([Option<u64>; ErasedParts::EACH.len()]);

impl LostParts {
    fn note(&mut self, erased: ErasedParts, seq: u64) {
        for (first, _) in self.0.iter_mut().zip(ErasedParts::EACH).filter(|(_, one)| erased.has(*one)) {
            *first = Some(first.map_or(seq, |first| first.min(seq)));
        }
    }

    /// The parts of the state at `seq` that are lost.
    fn at(&self, seq: u64) -> ErasedParts {
        let behind = self.0.iter().zip(ErasedParts::EACH).filter(|(first, _)| first.is_some_and(|first| first <= seq));
        behind.fold(ErasedParts::default(), |erased, (_, one)| erased | one)
    }
}

struct Verifier<'a> {
    store: &'a Embedded,
    db: &'a Connection,
    report: VerifyReport,
    progress: Progress<'a>,
    total: u64,
    links: Vec<ParentLink>,
    /// Each blob that was read: its actual length (`None` if it is damaged or missing), and whether it was walked as a
    /// tree.
    blobs: HashMap<Digest, (Option<u64>, bool)>,
    /// A checksum of the entries that the index of ids must have, up to its cursor.
    ids_sum: u64,
    ids_to: i64,
    /// By session, the erased records of the session and of its ancestors.
    lost: HashMap<SessionId, LostParts>,
    /// Whether records are read in commit order, so that those of ancestors come first.
    in_order: bool,
    /// The run keys of each session according to the index of runs, until the first record of the session is checked.
    runs: HashMap<SessionId, Vec<String>>,
}

impl<'a> Verifier<'a> {
    fn new(store: &'a Embedded, db: &'a Connection, progress: Progress<'a>) -> Self {
        Self {
            store,
            db,
            report: VerifyReport::default(),
            progress,
            total: 0,
            links: Vec::new(),
            blobs: HashMap::new(),
            ids_sum: 0,
            ids_to: 0,
            lost: HashMap::new(),
            in_order: false,
            runs: HashMap::new(),
        }
    }

    fn find(&mut self, what: FindingKind, session: Option<SessionId>, seq: Option<u64>, why: String) {
        self.report.findings.push(Finding { what, session, seq, why });
    }

    /// Verifies the whole store. It reads the table of segments in row order, so that no segment is missed because of a
    /// damaged index.
    fn whole_store(&mut self) -> Result<()> {
        let store = self.store;
        std::thread::scope(|scope| {
            let integrity = scope.spawn(move || integrity_check(store));
            let audited = self.records_and_columns();
            for why in integrity.join().unwrap_or_default() {
                self.find(FindingKind::Unreadable, None, None, format!("the integrity check of SQLite failed: {why}"));
            }
            audited
        })
    }

    fn records_and_columns(&mut self) -> Result<()> {
        self.in_order = true;
        let mut checks = self.session_checks("", params![])?;
        self.total = self
            .db
            .query_row("SELECT coalesce(sum(count), 0) FROM segments", [], |row| row.get::<_, i64>(0))
            .map_err(sql)? as u64;
        self.ids_to = ids::cursor(self.db)?;
        self.read_runs()?;
        let mut query = self
            .db
            .prepare("SELECT cursor, first_seq, generation, data, session, count, kinds FROM segments NOT INDEXED ORDER BY cursor")
            .map_err(sql)?;
        let mut rows = query.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            self.segment(row, &mut checks)?;
            if self.report.findings.len() >= MAX_FINDINGS {
                break;
            }
        }
        drop(rows);
        let mut checks: Vec<_> = checks.into_values().collect();
        checks.sort_by_key(|check| check.columns.id);
        for check in &mut checks {
            self.finish(check);
        }
        self.unmatched_runs();
        self.inboxes(None)?;
        self.resolve_links()?;
        self.index_of_segments()?;
        self.index_of_ids()?;
        self.lengths_of_packs()?;
        for why in schema_check::differences(self.db)? {
            self.find(FindingKind::Index, None, None, why);
        }
        Ok(())
    }

    /// Verifies one session and its ancestors.
    fn with_ancestors(&mut self, session: SessionId) -> Result<()> {
        self.read_runs()?;
        let mut open = vec![session];
        let mut done = HashSet::new();
        while let Some(session) = open.pop() {
            if !done.insert(session) {
                continue;
            }
            let mut checks = self.session_checks("WHERE id = ?1", params![session.0.as_bytes()])?;
            let Some(no) = checks.keys().next().copied() else {
                self.find(FindingKind::BrokenParent, Some(session), None, "the session is not in the store".into());
                continue;
            };
            let from = self.links.len();
            let mut query = self
                .db
                .prepare("SELECT cursor, first_seq, generation, data, session, count, kinds FROM segments WHERE session = ?1 ORDER BY first_seq")
                .map_err(sql)?;
            let mut rows = query.query([no]).map_err(sql)?;
            while let Some(row) = rows.next().map_err(sql)? {
                self.segment(row, &mut checks)?;
            }
            let Some(mut check) = checks.remove(&no) else { continue };
            self.finish(&mut check);
            for link in &self.links[from..] {
                open.extend(self.parent(link)?.map(|parent| parent.session()));
            }
        }
        self.inboxes(Some(&done))?;
        self.resolve_links()
    }

    fn session_checks(&self, filter: &str, values: &[&dyn rusqlite::ToSql]) -> Result<HashMap<i64, SessionCheck>> {
        let text = format!(
            "SELECT no, id, head, seq, time, generation, birth, born, born_generation, origin_session, origin_seq,
                origin_id, closed, title, labels FROM sessions {filter}"
        );
        let mut query = self.db.prepare(&text).map_err(sql)?;
        let read = |row: &SqlRow<'_>| {
            let id = |at: usize| row.get::<_, [u8; 16]>(at).map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes)));
            let number = |at: usize| row.get::<_, i64>(at).map(|n| n as u64);
            let origin = match row.get_ref(9)? {
                ValueRef::Null => None,
                _ => Some((id(9)?, number(10)?, Digest(row.get(11)?))),
            };
            let columns = SessionRow {
                id: id(1)?,
                head: Digest(row.get(2)?),
                seq: number(3)?,
                time: number(4)?,
                generation: number(5)?,
                birth: row.get(6)?,
                born: number(7)?,
                born_generation: number(8)?,
                origin,
                closed: row.get(12)?,
                title: row.get(13)?,
                labels: row.get(14)?,
            };
            let chain = ChainVerifier::new(columns.id);
            let (names, snapshots) = (State::default(), VecDeque::new());
            Ok((row.get(0)?, SessionCheck { columns, chain, names, names_known: true, snapshots }))
        };
        let rows = query.query_map(values, read).map_err(sql)?;
        let mut checks: HashMap<i64, SessionCheck> = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        let mut query =
            self.db.prepare_cached("SELECT seq, state FROM snapshots WHERE session = ?1 ORDER BY seq").map_err(sql)?;
        for (no, check) in &mut checks {
            let bytes = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get_ref(1)?.as_blob().ok().map(<[u8]>::to_vec)));
            let rows = query.query_map([no], bytes).map_err(sql)?;
            check.snapshots = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        }
        Ok(checks)
    }

    fn segment(&mut self, row: &SqlRow<'_>, checks: &mut HashMap<i64, SessionCheck>) -> Result<()> {
        let (no, count, kinds): (i64, i64, i64) =
            (row.get(4).map_err(sql)?, row.get(5).map_err(sql)?, row.get(6).map_err(sql)?);
        let Some(check) = checks.get_mut(&no) else {
            let cursor: i64 = row.get(0).map_err(sql)?;
            self.find(
                FindingKind::Index,
                None,
                None,
                format!("segment {cursor} belongs to a session that is not listed"),
            );
            return Ok(());
        };
        let session = check.columns.id;
        let segment = read::SegmentRow::read(row, session).map_err(sql)?;
        let (mut seen_kinds, mut seen) = (0, 0);
        for entry in SegmentEntries::of(&segment.data) {
            let seq = segment.first_seq + seen;
            let (code, parts) = match entry {
                Ok(entry) => {
                    (entry.code, entry.parts(session, seq, segment.generation.wrapping_add(seen), &segment.data))
                }
                Err(torn) => {
                    self.find(FindingKind::Unreadable, Some(session), Some(seq), torn.to_string());
                    break;
                }
            };
            seen += 1;
            self.report.records += 1;
            let record = match Record::unchecked(parts) {
                Ok(record) => record,
                Err(fault) => {
                    self.find(FindingKind::Malformed, Some(session), Some(seq), fault.to_string());
                    continue;
                }
            };
            seen_kinds |= 1u64.checked_shl(code.into()).unwrap_or_default();
            if !record.kind().may_have_code(code) {
                let fault = RecordError::Code { code, kind: record.kind().clone() };
                self.find(FindingKind::Index, Some(session), Some(seq), fault.to_string());
            }
            self.record(check, &record);
            if segment.cursor <= self.ids_to {
                self.ids_sum = self.ids_sum.wrapping_add(mixed(ids::front(&record.id().0), segment.cursor));
            }
            if self.report.records.is_multiple_of(8192) {
                (self.progress)(self.report.records, self.total);
            }
        }
        if seen != count as u64 || seen_kinds != kinds as u64 {
            let why = format!("the columns of segment {} contradict its records", segment.cursor);
            self.find(FindingKind::Index, Some(session), Some(segment.first_seq), why);
        }
        Ok(())
    }

    fn record(&mut self, check: &mut SessionCheck, record: &Record) {
        self.report.bytes += record.size() as u64;
        if record.seq() == 0 {
            self.check_first(check, record);
        }
        check.chain.check(record, &mut self.report.findings, &mut self.links);
        self.check_snapshot(check, record.seq());
        match record.body_bytes() {
            None => {
                self.report.erased += 1;
                ErasedRange::extend(&mut self.report.without_body, record.point());
                self.lost.entry(record.session()).or_default().note(ErasedParts::of(record.kind()), record.seq());
            }
            Some(body) => {
                if record.kind().changes_names() {
                    check.names_known &= check.names.apply(record).is_ok();
                }
                for blob in blob_references(body) {
                    self.blob(&blob, record.point());
                }
            }
        }
    }

    /// Checks the columns that describe the first record.
    fn check_first(&mut self, check: &mut SessionCheck, record: &Record) {
        let columns = &check.columns;
        let mut wrong = Vec::new();
        if record.kind().code() != columns.birth {
            wrong.push("birth");
        }
        if record.generation() != columns.born_generation {
            wrong.push("born_generation");
        }
        if record.header().is_ok_and(|header| header.time.0 != columns.born) {
            wrong.push("born");
        }
        let recorded = match *record.kind() == Kind::Forked && record.body_bytes().is_none() {
            // The fork point was in the erased body. The header still has the id of the record at the fork point.
            true => columns.origin.filter(|(session, seq, id)| self.is_parent(record, *session, *seq, id)),
            false => record.origin().ok().flatten().map(|from| (from.session, from.seq, from.id.0)),
        };
        if recorded != columns.origin || recorded.is_none() && *record.kind() == Kind::Forked {
            wrong.push("origin");
        }
        let (session, origin) = (columns.id, columns.origin);
        self.check_run(session, record);
        for column in wrong {
            let why = format!("column {column:?} of the session contradicts its first record");
            self.find(FindingKind::Index, Some(session), Some(0), why);
        }
        // A fork starts with the state of its parent at the fork point.
        if let Some((parent, seq, _)) = origin {
            let point = Point { session: parent, seq };
            check.chain.state = state_fold::state_at(self.db, point);
            let erased = self.lost_at(point);
            self.lost.entry(session).or_default().note(erased, 0);
            check.chain.state.iter_mut().for_each(|state| state.add_erased(erased));
        }
    }

    /// Whether `child`, whose body was erased, was forked from this record.
    fn is_parent(&self, child: &Record, session: SessionId, seq: u64, id: &Digest) -> bool {
        let parents = child.header().map(|header| header.parents).unwrap_or_default();
        let there = read::at(self.db, Point { session, seq }).ok().flatten();
        parents.first().is_some_and(|parent| parent.0 == *id) && there.is_none_or(|there| there.id().0 == *id)
    }

    /// The parts of the state at `point` that are lost. Each session is read once, however many descendants it has.
    fn lost_at(&mut self, point: Point) -> ErasedParts {
        let (mut at, mut unknown, mut seen) = (Some(point.session), Vec::new(), HashSet::new());
        while let Some(here) = at.filter(|here| !self.in_order && !self.lost.contains_key(here) && seen.insert(*here)) {
            let origin = state_fold::origin(self.db, here);
            unknown.push((here, origin));
            at = origin.map(|origin| origin.session);
        }
        while let Some((session, origin)) = unknown.pop() {
            let mut lost = erased_in(self.db, session).unwrap_or_default();
            let behind = origin.and_then(|origin| Some(self.lost.get(&origin.session)?.at(origin.seq)));
            lost.note(behind.unwrap_or_default(), 0);
            self.lost.insert(session, lost);
        }
        self.lost.get(&point.session).map(|lost| lost.at(point.seq)).unwrap_or_default()
    }

    fn read_runs(&mut self) -> Result<()> {
        for (key, session) in runs::all(self.db)? {
            self.runs.entry(session).or_default().push(key);
        }
        Ok(())
    }

    /// Checks that the index of runs has exactly the run key of the session's first record.
    fn check_run(&mut self, session: SessionId, first: &Record) {
        let indexed = self.runs.remove(&session).unwrap_or_default();
        let recorded = match *first.kind() {
            Kind::Created => match first.body::<Created>() {
                Ok(created) => created.run,
                // The key was erased with the body.
                Err(RecordError::Erased) => None,
                // An altered body is a finding of its own.
                Err(_) => return,
            },
            _ => None,
        };
        if let Some(key) = recorded.as_ref().filter(|key| !indexed.contains(key)) {
            let why = format!("the index of runs does not list run {key:?} of the session");
            self.find(FindingKind::Index, Some(session), Some(0), why);
        }
        for key in indexed.into_iter().filter(|key| recorded.as_ref() != Some(key)) {
            let why = format!("the index of runs lists run {key:?}, which the session was not created for");
            self.find(FindingKind::Index, Some(session), Some(0), why);
        }
    }

    /// Reports runs whose session is not in the store.
    fn unmatched_runs(&mut self) {
        if self.report.findings.len() >= MAX_FINDINGS {
            return;
        }
        let mut left: Vec<_> = self.runs.drain().collect();
        left.sort_unstable();
        for (session, keys) in left {
            let why = format!("the index of runs lists {keys:?} for a session that is not in the store");
            self.find(FindingKind::Index, Some(session), None, why);
        }
    }

    /// Checks the inboxes.
    fn inboxes(&mut self, only: Option<&HashSet<SessionId>>) -> Result<()> {
        for (session, what, why) in inbox::faults(self.db, only)? {
            self.find(what, session, None, why);
        }
        Ok(())
    }

    /// Checks the columns that describe the last record.
    fn finish(&mut self, check: &mut SessionCheck) {
        self.report.sessions += 1;
        let columns = &check.columns;
        let session = columns.id;
        check.chain.finish(rath_core::RecordId(columns.head), columns.seq, &mut self.report.findings);
        if let Some((at, _)) = check.snapshots.front() {
            let why = format!("there is a snapshot at seq {at}, but no record");
            self.find(FindingKind::Index, Some(session), None, why);
        }
        let columns = &check.columns;
        let Some(last) = check.chain.last().cloned() else { return };
        let labels =
            (!check.names.labels.is_empty()).then(|| serde_json::to_string(&check.names.labels).unwrap_or_default());
        let comparisons = [
            ("time", last.time.0 == columns.time),
            ("generation", last.generation == columns.generation),
            ("closed", (last.kind == Kind::Closed) == columns.closed),
            ("title", !check.names_known || check.names.title == columns.title),
            ("labels", !check.names_known || labels == columns.labels),
        ];
        for (column, right) in comparisons {
            if !right && last.seq == columns.seq {
                let why = format!("column {column:?} of the session contradicts its records");
                self.find(FindingKind::Index, Some(session), Some(last.seq), why);
            }
        }
    }

    /// Checks that each snapshot is at a record and equals the state that the records fold into.
    fn check_snapshot(&mut self, check: &mut SessionCheck, seq: u64) {
        while let Some((at, stored)) = check.snapshots.pop_front_if(|(at, _)| *at <= seq as i64) {
            let stored = stored.as_deref();
            let wrong = match (stored.and_then(State::read_snapshot), &mut check.chain.state) {
                _ if at != seq as i64 => true,
                // There is no state to compare with if an earlier record cannot be folded.
                (Some(_), None) => false,
                (Some(StoredState::Current(stored)), Some(state)) => !state.accepts(&stored),
                (Some(StoredState::Other(other)), Some(state)) => !state.accepts_other(&other),
                (None, _) => !stored.is_some_and(State::is_of_newer_fold),
            };
            if wrong {
                let why = format!("the stored snapshot at seq {at} differs from the state that the records fold into");
                self.find(FindingKind::Index, Some(check.columns.id), Some(seq), why);
            }
        }
    }

    /// Checks the parents in other sessions: each must be in the store, with an earlier time and a lower generation.
    fn resolve_links(&mut self) -> Result<()> {
        for link in std::mem::take(&mut self.links) {
            let parent = self.parent(&link)?;
            let (session, seq) = (link.child.session, link.child.seq);
            match parent {
                None => {
                    let why = format!("its parent {} is not in the store", link.parent.short());
                    self.find(FindingKind::BrokenParent, Some(session), Some(seq), why);
                }
                Some(parent) => {
                    let time = parent.header().map(|header| header.time).unwrap_or_default();
                    if time > link.child_time {
                        let why = "its time is before that of its parent".to_owned();
                        self.find(FindingKind::Malformed, Some(session), Some(seq), why);
                    }
                    if parent.generation() >= link.child_generation {
                        let why = "the indexed generation is not above the generation of its parent".to_owned();
                        self.find(FindingKind::Index, Some(session), Some(seq), why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds a parent by the position in its child's body, or by the index of ids. Its header must hash to the id in
    /// either case.
    fn parent(&self, link: &ParentLink) -> Result<Option<Record>> {
        let Ok(Some(child)) = read::at(self.db, link.child) else { return Ok(None) };
        let places: Vec<Point> = match child.kind() {
            Kind::Forked => child.body::<Forked>().map(|body| vec![body.from]).unwrap_or_default(),
            Kind::Merged => child
                .body::<rath_core::body::Merged>()
                .map(|body| body.branches.iter().map(|branch| branch.head()).collect())
                .unwrap_or_default(),
            _ => vec![],
        };
        for place in places {
            // Only the presence of the parent matters here; if it was altered, that is a finding of its own.
            if let Some(segment) = read::segment_at(self.db, place)? {
                let entry = SegmentEntries::of(&segment.data).flatten().nth((place.seq - segment.first_seq) as usize);
                let generation = segment.generation + (place.seq - segment.first_seq);
                let parts = entry.map(|entry| entry.parts(place.session, place.seq, generation, &segment.data));
                if let Some(Ok(record)) = parts.map(Record::unchecked)
                    && record.id() == link.parent
                {
                    return Ok(Some(record));
                }
            }
        }
        let indexed = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM ids i
            JOIN segments g ON g.cursor = i.segment JOIN sessions s ON s.no = g.session WHERE i.prefix = ?1";
        if let Some(parent) = self.search(indexed, ids::front(&link.parent.0), link)? {
            return Ok(Some(parent));
        }
        if child.body_bytes().is_some() {
            return Ok(None);
        }
        // The body with the position was erased, and the parent may not be indexed yet.
        let unseen = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
            JOIN sessions s ON s.no = g.session WHERE g.cursor > ?1";
        self.search(unseen, ids::cursor(self.db)?, link)
    }

    /// Searches the segments that `query` selects for a parent.
    fn search(&self, query: &str, value: i64, link: &ParentLink) -> Result<Option<Record>> {
        let mut query = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = query.query([value]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let session = SessionId(uuid::Uuid::from_bytes(row.get(4).map_err(sql)?));
            let segment = read::SegmentRow::read(row, session).map_err(sql)?;
            for (i, entry) in SegmentEntries::of(&segment.data).flatten().enumerate() {
                let (seq, generation) = (segment.first_seq + i as u64, segment.generation.wrapping_add(i as u64));
                let header = &segment.data[entry.header.start as usize..entry.header.end as usize];
                if Digest::of(header) == link.parent.0
                    && let Ok(record) = Record::unchecked(entry.parts(session, seq, generation, &segment.data))
                {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// Checks that the indexes of segments list every segment; otherwise reads would miss records.
    fn index_of_segments(&mut self) -> Result<()> {
        let count = |text: &str| self.db.query_row(text, [], |row| row.get::<_, i64>(0)).map_err(sql);
        let all = count("SELECT count(*) FROM segments NOT INDEXED WHERE +session IS NOT NULL")?;
        let indexed = count("SELECT count(*) FROM segments INDEXED BY segments_place WHERE session >= 0")?;
        let lineage = count("SELECT count(*) FROM segments NOT INDEXED WHERE +kinds & 511 != 0")?;
        let in_lineage =
            count("SELECT count(*) FROM segments INDEXED BY segments_lineage WHERE kinds & 511 != 0 AND session >= 0")?;
        if all != indexed || lineage != in_lineage {
            let why = format!(
                "the index of segments lists {indexed} of {all}, the index of lineage {in_lineage} of {lineage}"
            );
            self.find(FindingKind::Index, None, None, why);
        }
        Ok(())
    }

    /// Checks that the index of ids has exactly the ids of the records up to its cursor.
    fn index_of_ids(&mut self) -> Result<()> {
        if !self.report.findings.is_empty() {
            return Ok(());
        }
        let mut query = self.db.prepare("SELECT prefix, segment FROM ids").map_err(sql)?;
        let mut rows = query.query([]).map_err(sql)?;
        let mut sum = 0u64;
        while let Some(row) = rows.next().map_err(sql)? {
            sum = sum.wrapping_add(mixed(row.get(0).map_err(sql)?, row.get(1).map_err(sql)?));
        }
        drop(rows);
        if sum != self.ids_sum {
            self.find(FindingKind::Index, None, None, "the index of record ids contradicts the headers".into());
        }
        Ok(())
    }

    /// Checks that each pack file has at least the length in the table of packs, and that its blobs end before that. A
    /// crash can leave a longer file.
    fn lengths_of_packs(&mut self) -> Result<()> {
        let query = "SELECT p.name, p.length, coalesce(b.ends, 0) FROM packs p
            LEFT JOIN (SELECT pack, max(offset + stored) AS ends FROM blobs GROUP BY pack) b ON b.pack = p.no";
        let mut query = self.db.prepare(query).map_err(sql)?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(sql)?;
        let packs: Vec<(String, i64, i64)> = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        for (name, length, end) in packs {
            // If the file is missing, each reference to one of its blobs is a finding of its own.
            let there =
                std::fs::metadata(self.store.paths.packs.join(&name)).map_or(i64::MAX, |file| file.len() as i64);
            if !(end..=there).contains(&length) {
                let why = format!(
                    "pack {name} has {length} bytes according to the index, which contradicts its file or its blobs"
                );
                self.find(FindingKind::Index, None, None, why);
            }
        }
        Ok(())
    }

    /// Checks a blob and, if it is a tree, everything below it. Each blob is read once.
    fn blob(&mut self, blob: &BlobRef, referrer: Point) {
        let is_tree = |blob: &BlobRef| blob.media_type == TREE;
        let mut open = vec![(blob.digest, blob.bytes, is_tree(blob), FilePath::root())];
        let (session, seq) = (Some(referrer.session), Some(referrer.seq));
        while let Some((digest, bytes, tree, path)) = open.pop() {
            let at = if path.as_bytes().is_empty() { String::new() } else { format!(" ({path})") };
            let length = match self.blobs.get(&digest) {
                // A blob that was read as a file is read again as a tree.
                Some((length, walked)) if *walked || !tree => *length,
                seen => {
                    self.report.blobs += u64::from(seen.is_none());
                    let read = self.read_blob(&digest, tree);
                    let read = read.map_err(|(what, why)| self.find(what, session, seq, format!("{why}{at}"))).ok();
                    let length = read.as_ref().map(|(length, _)| *length);
                    self.blobs.insert(digest, (length, tree));
                    for entry in read.and_then(|(_, tree)| tree).into_iter().flat_map(|tree| tree.entries) {
                        let node = entry.node;
                        open.push((node.sha256, node.size, node.is_directory(), path.join(&entry.name)));
                    }
                    length
                }
            };
            if let Some(length) = length.filter(|length| *length != bytes) {
                let why = format!("blob {digest} has {length} bytes, but the reference to it has length {bytes}{at}");
                self.find(FindingKind::BlobAltered, session, seq, why);
            }
        }
    }

    /// Reads a blob. Returns its length and, if `tree` is set, the decoded tree, or the finding.
    fn read_blob(&mut self, digest: &Digest, tree: bool) -> Result<(u64, Option<Tree>), (FindingKind, String)> {
        let altered = |why: String| (FindingKind::BlobAltered, format!("blob {digest}: {why}"));
        match self.content(digest)? {
            BlobContent::Bytes(content) => {
                self.report.bytes += content.len() as u64;
                let tree = match tree {
                    true => Some(Tree::decode(&content).map_err(|why| altered(why.to_string()))?),
                    false => None,
                };
                Ok((content.len() as u64, tree))
            }
            BlobContent::Pieces(pieces) => {
                let (mut hash, mut length) = (Sha256::new(), 0);
                for piece in pieces {
                    let BlobContent::Bytes(content) = self.content(&piece.digest)? else {
                        return Err(altered("one of its pieces is a joined blob itself".into()));
                    };
                    hash.update(&content);
                    length += content.len() as u64;
                }
                self.report.bytes += length;
                match Digest(hash.finalize().into()) == *digest {
                    true => Ok((length, None)),
                    false => Err(altered("its pieces do not hash to its digest".into())),
                }
            }
        }
    }

    fn content(&self, digest: &Digest) -> Result<BlobContent, (FindingKind, String)> {
        let place = blobs::place(self.db, digest).map_err(|error| (FindingKind::Unreadable, error.to_string()))?;
        let place = place.ok_or((FindingKind::BlobMissing, format!("blob {digest} is not in the store")))?;
        let held = place.open(&self.store.paths.packs, digest).map_err(|damage| match damage {
            Damage::Pack(..) => (FindingKind::BlobMissing, format!("blob {digest}: {damage}")),
            _ => (FindingKind::BlobAltered, format!("blob {digest}: {damage}")),
        })?;
        let length = match &held {
            BlobContent::Bytes(bytes) => bytes.len() as u64,
            BlobContent::Pieces(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
        };
        let indexed = blobs::length(self.db, digest).map_err(|error| (FindingKind::Unreadable, error.to_string()))?;
        match indexed == Some(length) {
            true => Ok(held),
            false => {
                Err((FindingKind::Index, format!("blob {digest} has {length} bytes, but the index has another length")))
            }
        }
    }
}

/// The erased records of a session, without its ancestors.
fn erased_in(db: &Connection, session: SessionId) -> Result<LostParts> {
    let mut lost = LostParts::default();
    // Usually there are none.
    let Some(first) = read::first_erased(db, session)? else { return Ok(lost) };
    let query = format!(
        "SELECT {} FROM segments WHERE session = (SELECT no FROM sessions WHERE id = ?1) AND first_seq + count > ?2",
        read::COLUMNS
    );
    let mut query = db.prepare_cached(&query).map_err(sql)?;
    let mut rows = query.query(params![session.0.as_bytes(), first as i64]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let segment = read::SegmentRow::read(row, session).map_err(sql)?;
        for (i, entry) in
            SegmentEntries::of(&segment.data).flatten().enumerate().filter(|(_, entry)| entry.body.is_none())
        {
            let kind = Kind::from_code(entry.code);
            lost.note(kind.as_ref().map(ErasedParts::of).unwrap_or(ErasedParts::EACH[0]), segment.first_seq + i as u64);
        }
    }
    Ok(lost)
}

/// Runs SQLite's integrity check, which compares tables and indexes. It runs on another thread, in parallel with the
/// verification.
fn integrity_check(store: &Embedded) -> Vec<String> {
    let check = |db: &Connection| {
        let mut check = db.prepare("PRAGMA integrity_check(10)").map_err(sql)?;
        let lines = check.query_map([], |row| row.get::<_, String>(0)).map_err(sql)?;
        Ok(lines.map(|line| line.unwrap_or_else(|error| error.to_string())).filter(|line| line != "ok").collect())
    };
    store.read(check).unwrap_or_else(|error| vec![error.to_string()])
}

/// Mixes an index entry into a sum that does not depend on order (SplitMix64's finaliser).
fn mixed(prefix: i64, segment: i64) -> u64 {
    let mut x = (prefix as u64) ^ (segment as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
