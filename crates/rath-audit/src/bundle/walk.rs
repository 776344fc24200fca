//! The one order of a bundle's records: parents before children, whole stretches of a line together.
//!
//! Heads are taken in the order of their sessions' ids; before a fork comes what it stands on, before a merge what it
//! takes in. So the same records have the same order in every store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rath_core::body::Merged;
use rath_core::store::{self, Lookup, Row, Scan, Store, Which};
use rath_core::{Fault, Kind, Point, Record, RecordId, Reference, SessionId};

/// How many records of a line are read together: several processors share the work.
const TOGETHER: usize = 4096;

/// How many of a line that waits for another are kept, and read first: many lines may wait.
const KEPT: usize = 64;

/// Walks over everything that some heads stand on.
pub(super) struct Walk {
    store: Arc<dyn Store>,
    /// Heads still to come, the next one last.
    heads: Vec<Point>,
    /// Lines under way: each waits for the one behind it.
    open: Vec<Frame>,
    /// How many records of each line were given, and the id of the last, but for the one under way.
    given: HashMap<SessionId, (u64, RecordId)>,
}

struct Frame {
    session: SessionId,
    to: u64,
    page: VecDeque<Record>,
    /// How many records the next page has: more with every page, as long as nothing is waited for.
    limit: usize,
    /// How many records of the line were given, and the id of the last: noted when another line is looked at.
    given: Option<(u64, RecordId)>,
    /// The next record, while something that it stands on is missing.
    next: Option<(Record, Vec<Reference>)>,
}

/// A record, with the parents that are on other lines.
pub(super) struct Step {
    pub(super) record: Record,
    pub(super) elsewhere: Vec<Reference>,
}

impl Walk {
    pub(super) fn new(store: &Arc<dyn Store>, heads: impl IntoIterator<Item = Point>) -> Self {
        let mut heads: Vec<Point> = heads.into_iter().collect();
        heads.sort_unstable_by(|a, b| b.cmp(a));
        Self { store: store.clone(), heads, open: Vec::new(), given: HashMap::new() }
    }

    /// The next record; `None` after the last.
    pub(super) async fn next(&mut self) -> store::Result<Option<Step>> {
        loop {
            let Some(frame) = self.open.last_mut() else {
                match self.heads.pop() {
                    Some(head) if self.is_given(head) => continue,
                    Some(head) => self.push(head),
                    None => return Ok(None),
                }
                continue;
            };
            let before = frame.given;
            let next = before.map_or(0, |(next, _)| next);
            let (record, elsewhere) = match frame.next.take() {
                Some(next) => next,
                None if next > frame.to => {
                    self.note();
                    self.open.pop();
                    continue;
                }
                None => {
                    let (session, to) = (frame.session, frame.to);
                    if frame.page.is_empty() {
                        let scan = Scan::session(session, next, to).limit(frame.limit);
                        frame.page = self.store.scan(scan).await?.records.into();
                        frame.limit = TOGETHER.min(8 * frame.limit);
                    }
                    let missing = || store::Error::NotFound(format!("record {session}@{next}"));
                    let record = frame.page.pop_front().filter(|record| record.seq() == next).ok_or_else(missing)?;
                    // Neighbours vouch for each other.
                    if before.is_some_and(|(_, last)| record.first_parent() != Some(last)) {
                        let point = Point { session, seq: next - 1 };
                        return Err(store::Error::Tampered { point, why: Fault::Chain });
                    }
                    let elsewhere = elsewhere(&self.store, &record).await?;
                    for parent in &elsewhere {
                        self.check(parent).await?;
                    }
                    (record, elsewhere)
                }
            };
            if !elsewhere.is_empty() {
                self.note();
            }
            match elsewhere.iter().find(|parent| !self.is_given(parent.point())).map(Reference::point) {
                None => {
                    if let Some(frame) = self.open.last_mut() {
                        frame.given = Some((record.seq() + 1, record.id()));
                    }
                    return Ok(Some(Step { record, elsewhere }));
                }
                Some(parent) => {
                    let point = record.point();
                    if let Some(frame) = self.open.last_mut() {
                        frame.next = Some((record, elsewhere));
                        frame.page.truncate(KEPT);
                        frame.limit = KEPT;
                    }
                    // A line that waits cannot be waited for: only a forged store has such a circle.
                    if self.open.iter().any(|frame| frame.session == parent.session) {
                        return Err(store::Error::Tampered { point, why: Fault::Chain });
                    }
                    self.push(parent);
                }
            }
        }
    }

    /// Fails unless this very record stands where a child on another line says.
    async fn check(&self, parent: &Reference) -> store::Result<()> {
        let found = self.store.get(Lookup::At(parent.point())).await?;
        match found.first().is_none_or(|found| found.id() == parent.id) {
            true => Ok(()),
            false => Err(store::Error::Tampered { point: parent.point(), why: Fault::Chain }),
        }
    }

    fn push(&mut self, head: Point) {
        let Point { session, seq: to } = head;
        let given = self.given.get(&session).copied();
        self.open.push(Frame { session, to, page: VecDeque::new(), limit: KEPT, given, next: None });
    }

    /// Notes how far the line under way has come.
    fn note(&mut self) {
        if let Some(Frame { session, given: Some(given), .. }) = self.open.last() {
            self.given.insert(*session, *given);
        }
    }

    fn is_given(&self, point: Point) -> bool {
        self.given.get(&point.session).is_some_and(|(given, _)| *given > point.seq)
    }
}

/// The parents of a record that are on other lines.
async fn elsewhere(store: &Arc<dyn Store>, record: &Record) -> store::Result<Vec<Reference>> {
    let tampered = |why| store::Error::Tampered { point: record.point(), why };
    match record.kind() {
        Kind::Forked => {
            let rows = store.sessions(Which::Id(record.session()).into()).await?;
            Ok(rows.into_iter().filter_map(|row| row.origin).collect())
        }
        Kind::Merged => {
            let header = record.header().map_err(|why| tampered(why.into()))?;
            let parents = header.parents.get(1..).unwrap_or_default();
            if let Ok(body) = record.body::<Merged>()
                && body.branches.len() == parents.len()
            {
                let heads = body.branches.iter().map(|branch| branch.head()).zip(parents);
                return Ok(heads.map(|(at, id)| Reference { session: at.session, seq: at.seq, id: *id }).collect());
            }
            let mut heads = Vec::new();
            for parent in parents {
                let found = store.get(Lookup::Id(*parent)).await?;
                let missing = || store::Error::NotFound(format!("record {parent}"));
                heads.push(found.first().map(Record::reference).ok_or_else(missing)?);
            }
            Ok(heads)
        }
        _ => Ok(Vec::new()),
    }
}

/// The heads of every session in the family of some: what they stand on, and what stands on any of that.
pub(super) async fn family(store: &Arc<dyn Store>, of: &[SessionId]) -> store::Result<Vec<Reference>> {
    let rows = store.sessions(Which::All.into()).await?;
    let mut near: HashMap<SessionId, Vec<SessionId>> = HashMap::new();
    let mut join = |a: SessionId, b: SessionId| {
        near.entry(a).or_default().push(b);
        near.entry(b).or_default().push(a);
    };
    for row in &rows {
        if let Some(origin) = row.origin {
            join(row.id, origin.session);
        }
        let mut from = 0;
        while from <= row.seq {
            let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Merged])).await?;
            for merged in &page.records {
                elsewhere(store, merged).await?.into_iter().for_each(|head| join(row.id, head.session));
            }
            if !page.more {
                break;
            }
            from = page.position;
        }
    }
    let (mut open, mut seen) = (of.to_vec(), of.iter().copied().collect::<HashSet<_>>());
    while let Some(session) = open.pop() {
        open.extend(near.remove(&session).unwrap_or_default().into_iter().filter(|other| seen.insert(*other)));
    }
    Ok(rows.iter().filter(|row| seen.contains(&row.id)).map(Row::head_reference).collect())
}
