//! Re-derives everything the database says from the bytes that are hashed.

use std::collections::{HashMap, HashSet, VecDeque};

use rath_core::body::{Created, Forked, Stripped};
use rath_core::files::{Name, TREE, Tree};
use rath_core::store::Result;
use rath_core::verify::{Chain, Finding, Link, Report, What};
use rath_core::{BlobRef, Digest, Fault, Gone, Kind, Point, Record, SessionId, State, blob_references};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow, params};
use sha2::{Digest as _, Sha256};

use super::schema::sql;
use super::{Embedded, blobs, folded, ids, inbox, read, runs, shape};
use crate::packs::{Damage, Held};
use crate::segment::Slots;

/// After so many findings the rest is not worth reading.
const ENOUGH: usize = 100;

/// What is shown while a long verification runs: records done, records in all.
type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Embedded {
    /// Checks every record, blob and index column of the store, or of one session and all it stands on.
    pub fn verify(&self, session: Option<SessionId>, progress: Progress<'_>) -> Result<Report> {
        self.read(|db| {
            // Everything is read as of one moment: somebody may be writing.
            let moment = db.unchecked_transaction().map_err(sql)?;
            let mut audit = Audit::new(self, db, progress);
            let done = match session {
                None => audit.whole_store(),
                Some(session) => audit.with_ancestors(session),
            };
            drop(moment);
            // What SQLite itself cannot read is a finding, not a failure of the verification.
            if let Err(error) = done {
                audit.report.findings.push(Finding {
                    what: What::Unreadable,
                    session: None,
                    seq: None,
                    why: format!("the database cannot be read further: {error}"),
                });
            }
            Ok(audit.report)
        })
    }
}

/// The columns of a session's row, as they are.
struct Claim {
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
struct Line {
    claim: Claim,
    chain: Chain,
    /// Title and labels, folded from the records that give them.
    names: State,
    names_known: bool,
    /// Stored snapshots still ahead.
    snapshots: VecDeque<(i64, Option<Vec<u8>>)>,
}

/// From which place of a line on a body is gone behind, for [each](Gone::EACH) kind of loss.
#[derive(Clone, Copy, Default)]
struct Holes([Option<u64>; Gone::EACH.len()]);

impl Holes {
    fn note(&mut self, gone: Gone, seq: u64) {
        for (first, _) in self.0.iter_mut().zip(Gone::EACH).filter(|(_, one)| gone.has(*one)) {
            *first = Some(first.map_or(seq, |first| first.min(seq)));
        }
    }

    /// What is gone at a place or behind it.
    fn at(&self, seq: u64) -> Gone {
        let behind = self.0.iter().zip(Gone::EACH).filter(|(first, _)| first.is_some_and(|first| first <= seq));
        behind.fold(Gone::default(), |gone, (_, one)| gone | one)
    }
}

struct Audit<'a> {
    store: &'a Embedded,
    db: &'a Connection,
    report: Report,
    progress: Progress<'a>,
    total: u64,
    links: Vec<Link>,
    /// Blobs seen, with the length they turned out to have.
    /// How long each blob is that was read, and whether it was walked as a tree.
    blobs: HashMap<Digest, (Option<u64>, bool)>,
    /// Sum over what the index of ids must hold, up to its cursor.
    ids_sum: u64,
    ids_to: i64,
    /// By session, where bodies are gone, on it and on the lines behind its fork point.
    holes: HashMap<SessionId, Holes>,
    /// Whether records come in the order they were written, those that others stand on first.
    in_order: bool,
    /// The keys of runs that the table gives to each session, while its first record is still ahead.
    runs: HashMap<SessionId, Vec<String>>,
}

impl<'a> Audit<'a> {
    fn new(store: &'a Embedded, db: &'a Connection, progress: Progress<'a>) -> Self {
        Self {
            store,
            db,
            report: Report::default(),
            progress,
            total: 0,
            links: Vec::new(),
            blobs: HashMap::new(),
            ids_sum: 0,
            ids_to: 0,
            holes: HashMap::new(),
            in_order: false,
            runs: HashMap::new(),
        }
    }

    fn find(&mut self, what: What, session: Option<SessionId>, seq: Option<u64>, why: String) {
        self.report.findings.push(Finding { what, session, seq, why });
    }

    /// The table in the order it was written, so that nothing hides from an index.
    fn whole_store(&mut self) -> Result<()> {
        let store = self.store;
        std::thread::scope(|scope| {
            let structure = scope.spawn(move || structure(store));
            let audited = self.records_and_columns();
            for why in structure.join().unwrap_or_default() {
                self.find(What::Unreadable, None, None, format!("SQLite finds its file damaged: {why}"));
            }
            audited
        })
    }

    fn records_and_columns(&mut self) -> Result<()> {
        self.in_order = true;
        let mut lines = self.claims("", params![])?;
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
            self.segment(row, &mut lines)?;
            if self.report.findings.len() >= ENOUGH {
                break;
            }
        }
        drop(rows);
        let mut lines: Vec<_> = lines.into_values().collect();
        lines.sort_by_key(|line| line.claim.id);
        for line in &mut lines {
            self.finish(line);
        }
        self.runs_of_nobody();
        self.inboxes(None)?;
        self.resolve_links()?;
        self.index_of_places()?;
        self.index_of_ids()?;
        self.lengths_of_packs()?;
        for why in shape::differences(self.db)? {
            self.find(What::Index, None, None, why);
        }
        Ok(())
    }

    /// One session and every line behind it.
    fn with_ancestors(&mut self, session: SessionId) -> Result<()> {
        self.read_runs()?;
        let mut open = vec![session];
        let mut done = HashSet::new();
        while let Some(session) = open.pop() {
            if !done.insert(session) {
                continue;
            }
            let mut lines = self.claims("WHERE id = ?1", params![session.0.as_bytes()])?;
            let Some(no) = lines.keys().next().copied() else {
                self.find(What::BrokenParent, Some(session), None, "the session is not in the store".into());
                continue;
            };
            let from = self.links.len();
            let mut query = self
                .db
                .prepare("SELECT cursor, first_seq, generation, data, session, count, kinds FROM segments WHERE session = ?1 ORDER BY first_seq")
                .map_err(sql)?;
            let mut rows = query.query([no]).map_err(sql)?;
            while let Some(row) = rows.next().map_err(sql)? {
                self.segment(row, &mut lines)?;
            }
            let Some(mut line) = lines.remove(&no) else { continue };
            self.finish(&mut line);
            for link in &self.links[from..] {
                open.extend(self.parent(link)?.map(|parent| parent.session()));
            }
        }
        self.inboxes(Some(&done))?;
        self.resolve_links()
    }

    fn claims(&self, filter: &str, values: &[&dyn rusqlite::ToSql]) -> Result<HashMap<i64, Line>> {
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
            let claim = Claim {
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
            let chain = Chain::new(claim.id);
            let (names, snapshots) = (State::default(), VecDeque::new());
            Ok((row.get(0)?, Line { claim, chain, names, names_known: true, snapshots }))
        };
        let rows = query.query_map(values, read).map_err(sql)?;
        let mut lines: HashMap<i64, Line> = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        let mut query =
            self.db.prepare_cached("SELECT seq, state FROM snapshots WHERE session = ?1 ORDER BY seq").map_err(sql)?;
        for (no, line) in &mut lines {
            let bytes = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get_ref(1)?.as_blob().ok().map(<[u8]>::to_vec)));
            let rows = query.query_map([no], bytes).map_err(sql)?;
            line.snapshots = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        }
        Ok(lines)
    }

    fn segment(&mut self, row: &SqlRow<'_>, lines: &mut HashMap<i64, Line>) -> Result<()> {
        let (no, count, kinds): (i64, i64, i64) =
            (row.get(4).map_err(sql)?, row.get(5).map_err(sql)?, row.get(6).map_err(sql)?);
        let Some(line) = lines.get_mut(&no) else {
            let cursor: i64 = row.get(0).map_err(sql)?;
            self.find(What::Index, None, None, format!("segment {cursor} belongs to a session that is not listed"));
            return Ok(());
        };
        let session = line.claim.id;
        let segment = read::SegmentRow::read(row, session).map_err(sql)?;
        let (mut seen_kinds, mut seen) = (0, 0);
        for slot in Slots::of(&segment.data) {
            let seq = segment.first_seq + seen;
            let (code, parts) = match slot {
                Ok(slot) => (slot.code, slot.parts(session, seq, segment.generation.wrapping_add(seen), &segment.data)),
                Err(torn) => {
                    self.find(What::Unreadable, Some(session), Some(seq), torn.to_string());
                    break;
                }
            };
            seen += 1;
            self.report.records += 1;
            let record = match Record::unchecked(parts) {
                Ok(record) => record,
                Err(fault) => {
                    self.find(What::Malformed, Some(session), Some(seq), fault.to_string());
                    continue;
                }
            };
            seen_kinds |= 1u64.checked_shl(code.into()).unwrap_or_default();
            if !record.kind().may_have_code(code) {
                let fault = Fault::Code { code, kind: record.kind().clone() };
                self.find(What::Index, Some(session), Some(seq), fault.to_string());
            }
            self.record(line, &record);
            if segment.cursor <= self.ids_to {
                self.ids_sum = self.ids_sum.wrapping_add(mixed(ids::front(&record.id().0), segment.cursor));
            }
            if self.report.records.is_multiple_of(8192) {
                (self.progress)(self.report.records, self.total);
            }
        }
        if seen != count as u64 || seen_kinds != kinds as u64 {
            let why = format!("the index of segment {} says something else than its records", segment.cursor);
            self.find(What::Index, Some(session), Some(segment.first_seq), why);
        }
        Ok(())
    }

    fn record(&mut self, line: &mut Line, record: &Record) {
        self.report.bytes += record.size() as u64;
        if record.seq() == 0 {
            self.begin(line, record);
        }
        line.chain.check(record, &mut self.report.findings, &mut self.links);
        self.check_snapshot(line, record.seq());
        match record.body_bytes() {
            None => {
                self.report.erased += 1;
                Stripped::extend(&mut self.report.without_body, record.point());
                self.holes.entry(record.session()).or_default().note(Gone::of(record.kind()), record.seq());
            }
            Some(body) => {
                if record.kind().changes_names() {
                    line.names_known &= line.names.apply(record).is_ok();
                }
                for blob in blob_references(body) {
                    self.blob(&blob, record.point());
                }
            }
        }
    }

    /// What the row says about the first record.
    fn begin(&mut self, line: &mut Line, record: &Record) {
        let claim = &line.claim;
        let mut wrong = Vec::new();
        if record.kind().code() != claim.birth {
            wrong.push("birth");
        }
        if record.generation() != claim.born_generation {
            wrong.push("born_generation");
        }
        if record.header().is_ok_and(|header| header.time.0 != claim.born) {
            wrong.push("born");
        }
        let said = match *record.kind() == Kind::Forked && record.body_bytes().is_none() {
            // The body named the place; the header still names the record that stands there.
            true => claim.origin.filter(|(session, seq, id)| self.is_parent(record, *session, *seq, id)),
            false => record.origin().ok().flatten().map(|from| (from.session, from.seq, from.id.0)),
        };
        if said != claim.origin || said.is_none() && *record.kind() == Kind::Forked {
            wrong.push("origin");
        }
        let (session, origin) = (claim.id, claim.origin);
        self.check_run(session, record);
        for column in wrong {
            let why = format!("column {column:?} of the session contradicts its first record");
            self.find(What::Index, Some(session), Some(0), why);
        }
        // A fork goes on from its parent's state.
        if let Some((parent, seq, _)) = origin {
            let point = Point { session: parent, seq };
            line.chain.state = folded::state_at(self.db, point);
            let gone = self.gone_behind(point);
            self.holes.entry(session).or_default().note(gone, 0);
            line.chain.state.iter_mut().for_each(|state| state.stand_on(gone));
        }
    }

    /// Whether the record at a place is the one that `child`, whose body is gone, was forked from.
    fn is_parent(&self, child: &Record, session: SessionId, seq: u64, id: &Digest) -> bool {
        let parents = child.header().map(|header| header.parents).unwrap_or_default();
        let there = read::at(self.db, Point { session, seq }).ok().flatten();
        parents.first().is_some_and(|parent| parent.0 == *id) && there.is_none_or(|there| there.id().0 == *id)
    }

    /// Of what bodies are gone at a place or behind it. Each line is looked at once, however many stand on it.
    fn gone_behind(&mut self, point: Point) -> Gone {
        let (mut at, mut unknown, mut seen) = (Some(point.session), Vec::new(), HashSet::new());
        while let Some(here) = at.filter(|here| !self.in_order && !self.holes.contains_key(here) && seen.insert(*here))
        {
            let origin = folded::origin(self.db, here);
            unknown.push((here, origin));
            at = origin.map(|origin| origin.session);
        }
        while let Some((session, origin)) = unknown.pop() {
            let mut holes = holes_of(self.db, session).unwrap_or_default();
            let behind = origin.and_then(|origin| Some(self.holes.get(&origin.session)?.at(origin.seq)));
            holes.note(behind.unwrap_or_default(), 0);
            self.holes.insert(session, holes);
        }
        self.holes.get(&point.session).map(|holes| holes.at(point.seq)).unwrap_or_default()
    }

    fn read_runs(&mut self) -> Result<()> {
        for (key, session) in runs::all(self.db)? {
            self.runs.entry(session).or_default().push(key);
        }
        Ok(())
    }

    /// The index of runs must name a session by exactly the key that its first record has.
    fn check_run(&mut self, session: SessionId, first: &Record) {
        let indexed = self.runs.remove(&session).unwrap_or_default();
        let said = match *first.kind() {
            Kind::Created => match first.body::<Created>() {
                Ok(created) => created.run,
                // The key goes with the body.
                Err(Fault::Erased) => None,
                // Altered, which is named on its own line.
                Err(_) => return,
            },
            _ => None,
        };
        if let Some(key) = said.as_ref().filter(|key| !indexed.contains(key)) {
            let why = format!("the index of runs does not list run {key:?} of the session");
            self.find(What::Index, Some(session), Some(0), why);
        }
        for key in indexed.into_iter().filter(|key| said.as_ref() != Some(key)) {
            let why = format!("the index of runs lists run {key:?}, which the session was not created for");
            self.find(What::Index, Some(session), Some(0), why);
        }
    }

    /// Runs whose session has no first record.
    fn runs_of_nobody(&mut self) {
        if self.report.findings.len() >= ENOUGH {
            return;
        }
        let mut left: Vec<_> = self.runs.drain().collect();
        left.sort_unstable();
        for (session, keys) in left {
            let why = format!("the index of runs lists {keys:?} for a session that is not in the store");
            self.find(What::Index, Some(session), None, why);
        }
    }

    /// What waits must be there to be taken.
    fn inboxes(&mut self, only: Option<&HashSet<SessionId>>) -> Result<()> {
        for (session, what, why) in inbox::wrong(self.db, only)? {
            self.find(what, session, None, why);
        }
        Ok(())
    }

    /// What the row says about the last record.
    fn finish(&mut self, line: &mut Line) {
        self.report.sessions += 1;
        let claim = &line.claim;
        let session = claim.id;
        line.chain.finish(rath_core::RecordId(claim.head), claim.seq, &mut self.report.findings);
        if let Some((at, _)) = line.snapshots.front() {
            let why = format!("there is a snapshot at {at}, where no record is");
            self.find(What::Index, Some(session), None, why);
        }
        let claim = &line.claim;
        let Some(last) = line.chain.last().cloned() else { return };
        let labels =
            (!line.names.labels.is_empty()).then(|| serde_json::to_string(&line.names.labels).unwrap_or_default());
        let columns = [
            ("time", last.time.0 == claim.time),
            ("generation", last.generation == claim.generation),
            ("closed", (last.kind == Kind::Closed) == claim.closed),
            ("title", !line.names_known || line.names.title == claim.title),
            ("labels", !line.names_known || labels == claim.labels),
        ];
        for (column, right) in columns {
            if !right && last.seq == claim.seq {
                let why = format!("column {column:?} of the session contradicts its records");
                self.find(What::Index, Some(session), Some(last.seq), why);
            }
        }
    }

    /// A snapshot must be what the records fold into, and stand at one of them.
    fn check_snapshot(&mut self, line: &mut Line, seq: u64) {
        while let Some((at, stored)) = line.snapshots.pop_front_if(|(at, _)| *at <= seq as i64) {
            let stored = stored.as_deref();
            let wrong = match (stored.and_then(State::from_snapshot), &mut line.chain.state) {
                _ if at != seq as i64 => true,
                // A chain that could not be followed has no state to compare with.
                (Some(stored), Some(state)) => !state.accepts(&stored),
                (Some(_), None) => false,
                (None, _) => !stored.is_some_and(State::is_of_another_fold),
            };
            if wrong {
                let why = format!("the stored snapshot at {at} is not what the records fold into");
                self.find(What::Index, Some(line.claim.id), Some(seq), why);
            }
        }
    }

    /// Every parent on another line must be in the store, earlier and of a lesser generation.
    fn resolve_links(&mut self) -> Result<()> {
        for link in std::mem::take(&mut self.links) {
            let parent = self.parent(&link)?;
            let (session, seq) = (link.child.session, link.child.seq);
            match parent {
                None => {
                    let why = format!("its parent {} is not in the store", link.parent.short());
                    self.find(What::BrokenParent, Some(session), Some(seq), why);
                }
                Some(parent) => {
                    let time = parent.header().map(|header| header.time).unwrap_or_default();
                    if time > link.child_time {
                        let why = "its time is before its parent's".to_owned();
                        self.find(What::Malformed, Some(session), Some(seq), why);
                    }
                    if parent.generation() >= link.child_generation {
                        let why = "the index says a generation that is not above its parents'".to_owned();
                        self.find(What::Index, Some(session), Some(seq), why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds a parent by what its child's body says, or by the index of ids; either way its bytes must hash to it.
    fn parent(&self, link: &Link) -> Result<Option<Record>> {
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
            // An altered parent is named on its own line; here only its presence counts.
            if let Some(segment) = read::segment_at(self.db, place)? {
                let slot = Slots::of(&segment.data).flatten().nth((place.seq - segment.first_seq) as usize);
                let generation = segment.generation + (place.seq - segment.first_seq);
                let parts = slot.map(|slot| slot.parts(place.session, place.seq, generation, &segment.data));
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
        // The body that named the place was erased, and the index may not have come so far.
        let unseen = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
            JOIN sessions s ON s.no = g.session WHERE g.cursor > ?1";
        self.search(unseen, ids::cursor(self.db)?, link)
    }

    /// Looks for a parent in the segments that `query` selects.
    fn search(&self, query: &str, value: i64, link: &Link) -> Result<Option<Record>> {
        let mut query = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = query.query([value]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let session = SessionId(uuid::Uuid::from_bytes(row.get(4).map_err(sql)?));
            let segment = read::SegmentRow::read(row, session).map_err(sql)?;
            for (i, slot) in Slots::of(&segment.data).flatten().enumerate() {
                let (seq, generation) = (segment.first_seq + i as u64, segment.generation.wrapping_add(i as u64));
                let header = &segment.data[slot.header.start as usize..slot.header.end as usize];
                if Digest::of(header) == link.parent.0
                    && let Ok(record) = Record::unchecked(slot.parts(session, seq, generation, &segment.data))
                {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// The index by place must list every segment, or reads would miss some.
    fn index_of_places(&mut self) -> Result<()> {
        let count = |text: &str| self.db.query_row(text, [], |row| row.get::<_, i64>(0)).map_err(sql);
        let all = count("SELECT count(*) FROM segments NOT INDEXED WHERE +session IS NOT NULL")?;
        let indexed = count("SELECT count(*) FROM segments INDEXED BY segments_place WHERE session >= 0")?;
        let lineage = count("SELECT count(*) FROM segments NOT INDEXED WHERE +kinds & 511 != 0")?;
        let in_lineage =
            count("SELECT count(*) FROM segments INDEXED BY segments_lineage WHERE kinds & 511 != 0 AND session >= 0")?;
        if all != indexed || lineage != in_lineage {
            let why = format!(
                "the index of places lists {indexed} of {all} segments, that of lineage {in_lineage} of {lineage}"
            );
            self.find(What::Index, None, None, why);
        }
        Ok(())
    }

    /// The index of ids must hold exactly what the headers hash to, as far as it has come.
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
            self.find(What::Index, None, None, "the index of record ids contradicts the headers".into());
        }
        Ok(())
    }

    /// A pack is as long as the index says, or longer by what a crash left; and its blobs end before that.
    fn lengths_of_packs(&mut self) -> Result<()> {
        let query = "SELECT p.name, p.length, coalesce(b.ends, 0) FROM packs p
            LEFT JOIN (SELECT pack, max(offset + stored) AS ends FROM blobs GROUP BY pack) b ON b.pack = p.no";
        let mut query = self.db.prepare(query).map_err(sql)?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(sql)?;
        let packs: Vec<(String, i64, i64)> = rows.collect::<rusqlite::Result<_>>().map_err(sql)?;
        for (name, length, end) in packs {
            // What is missed in a pack that is gone is named by who names it.
            let there =
                std::fs::metadata(self.store.paths.packs.join(&name)).map_or(i64::MAX, |file| file.len() as i64);
            if !(end..=there).contains(&length) {
                let why = format!("the index says that pack {name} has {length} bytes, which cannot be");
                self.find(What::Index, None, None, why);
            }
        }
        Ok(())
    }

    /// Checks a blob; of a tree, everything below it. What was seen once is not read again.
    fn blob(&mut self, blob: &BlobRef, named_by: Point) {
        let is_tree = |blob: &BlobRef| blob.media_type == TREE;
        let mut open = vec![(blob.digest, blob.bytes, is_tree(blob), Name::root())];
        let (session, seq) = (Some(named_by.session), Some(named_by.seq));
        while let Some((digest, bytes, tree, path)) = open.pop() {
            let at = if path.as_bytes().is_empty() { String::new() } else { format!(" ({path})") };
            let length = match self.blobs.get(&digest) {
                // A tree that a file happens to equal has not been walked.
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
                let why = format!("blob {digest} has {length} bytes, what names it says {bytes}{at}");
                self.find(What::BlobAltered, session, seq, why);
            }
        }
    }

    /// Reads a blob and says how long it is, or what is wrong with it; as a tree, what is in it.
    fn read_blob(&mut self, digest: &Digest, tree: bool) -> Result<(u64, Option<Tree>), (What, String)> {
        let altered = |why: String| (What::BlobAltered, format!("blob {digest}: {why}"));
        match self.held(digest)? {
            Held::Bytes(content) => {
                self.report.bytes += content.len() as u64;
                let tree = match tree {
                    true => Some(Tree::decode(&content).map_err(|why| altered(why.to_string()))?),
                    false => None,
                };
                Ok((content.len() as u64, tree))
            }
            Held::Pieces(pieces) => {
                let (mut hash, mut length) = (Sha256::new(), 0);
                for piece in pieces {
                    let Held::Bytes(content) = self.held(&piece.digest)? else {
                        return Err(altered("one of its pieces has pieces itself".into()));
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

    fn held(&self, digest: &Digest) -> Result<Held, (What, String)> {
        let place = blobs::place(self.db, digest).map_err(|error| (What::Unreadable, error.to_string()))?;
        let place = place.ok_or((What::BlobMissing, format!("blob {digest} is not in the store")))?;
        let held = place.open(&self.store.paths.packs, digest).map_err(|damage| match damage {
            Damage::Pack(..) => (What::BlobMissing, format!("blob {digest}: {damage}")),
            _ => (What::BlobAltered, format!("blob {digest}: {damage}")),
        })?;
        let length = match &held {
            Held::Bytes(bytes) => bytes.len() as u64,
            Held::Pieces(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
        };
        let indexed = blobs::length(self.db, digest).map_err(|error| (What::Unreadable, error.to_string()))?;
        match indexed == Some(length) {
            true => Ok(held),
            false => {
                Err((What::Index, format!("the index says another length of blob {digest}, which has {length} bytes")))
            }
        }
    }
}

/// Where bodies of a session's own records are gone.
fn holes_of(db: &Connection, session: SessionId) -> Result<Holes> {
    let mut holes = Holes::default();
    // Mostly there are none.
    let Some(first) = read::first_hole(db, session)? else { return Ok(holes) };
    let query = format!(
        "SELECT {} FROM segments WHERE session = (SELECT no FROM sessions WHERE id = ?1) AND first_seq + count > ?2",
        read::COLUMNS
    );
    let mut query = db.prepare_cached(&query).map_err(sql)?;
    let mut rows = query.query(params![session.0.as_bytes(), first as i64]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let segment = read::SegmentRow::read(row, session).map_err(sql)?;
        for (i, slot) in Slots::of(&segment.data).flatten().enumerate().filter(|(_, slot)| slot.body.is_none()) {
            let kind = Kind::from_code(slot.code);
            holes.note(kind.as_ref().map(Gone::of).unwrap_or(Gone::EACH[0]), segment.first_seq + i as u64);
        }
    }
    Ok(holes)
}

/// What SQLite says about tables and indexes: reads go through them, so they must agree. Looked at beside the rest.
fn structure(store: &Embedded) -> Vec<String> {
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
