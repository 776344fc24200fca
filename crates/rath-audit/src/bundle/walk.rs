//! The order of a bundle's records: parents before children, consecutive records of a session together.
//!
//! Heads are visited sorted by session id. A fork comes after the records that it is based on, a merge after the
//! branches that it merges. So the same records have the same order in every store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rath_core::body::Merged;
use rath_core::store::{self, Lookup, Scan, SessionFilter, SessionInfo, Store};
use rath_core::{Kind, Point, Record, RecordError, RecordId, Reference, SessionId};

/// The maximum number of records read at once: several processors share the work.
const MAX_PAGE: usize = 4096;

/// The number of records kept for a session that waits for another one, and read first: many sessions may wait.
const FIRST_PAGE: usize = 64;

/// Visits everything that some heads depend on.
pub(super) struct Walk {
    store: Arc<dyn Store>,
    /// Heads still to visit, the next one last.
    heads: Vec<Point>,
    /// Sessions being visited: each waits for the one after it.
    open: Vec<Frame>,
    /// The number of records returned so far and the id of the last, by session. Not current for the session being
    /// visited.
    returned: HashMap<SessionId, (u64, RecordId)>,
}

struct Frame {
    session: SessionId,
    to: u64,
    page: VecDeque<Record>,
    /// The size of the next page. It grows with every page, as long as no other session is waited for.
    limit: usize,
    /// The number of records returned so far and the id of the last.
    returned: Option<(u64, RecordId)>,
    /// The next record, while one of its parents is missing.
    next: Option<(Record, Vec<Reference>)>,
}

/// A record, with its parents in other sessions.
pub(super) struct Step {
    pub(super) record: Record,
    pub(super) other_parents: Vec<Reference>,
}

impl Walk {
    pub(super) fn new(store: &Arc<dyn Store>, heads: impl IntoIterator<Item = Point>) -> Self {
        let mut heads: Vec<Point> = heads.into_iter().collect();
        heads.sort_unstable_by(|a, b| b.cmp(a));
        Self { store: store.clone(), heads, open: Vec::new(), returned: HashMap::new() }
    }

    /// The next record; `None` at the end.
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
            let before = frame.returned;
            let next = before.map_or(0, |(next, _)| next);
            let (record, other_parents) = match frame.next.take() {
                Some(next) => next,
                None if next > frame.to => {
                    self.save_progress();
                    self.open.pop();
                    continue;
                }
                None => {
                    let (session, to) = (frame.session, frame.to);
                    if frame.page.is_empty() {
                        let scan = Scan::session(session, next, to).limit(frame.limit);
                        frame.page = self.store.scan(scan).await?.records.into();
                        frame.limit = MAX_PAGE.min(8 * frame.limit);
                    }
                    let missing = || store::Error::NotFound(format!("record {session}@{next}"));
                    let record = frame.page.pop_front().filter(|record| record.seq() == next).ok_or_else(missing)?;
                    // Consecutive records must be linked.
                    if before.is_some_and(|(_, last)| record.first_parent() != Some(last)) {
                        let point = Point { session, seq: next - 1 };
                        return Err(store::Error::Tampered { point, why: RecordError::Chain });
                    }
                    let other_parents = other_parents(&self.store, &record).await?;
                    for parent in &other_parents {
                        self.check(parent).await?;
                    }
                    (record, other_parents)
                }
            };
            if !other_parents.is_empty() {
                self.save_progress();
            }
            match other_parents.iter().find(|parent| !self.is_given(parent.point())).map(Reference::point) {
                None => {
                    if let Some(frame) = self.open.last_mut() {
                        frame.returned = Some((record.seq() + 1, record.id()));
                    }
                    return Ok(Some(Step { record, other_parents }));
                }
                Some(parent) => {
                    let point = record.point();
                    if let Some(frame) = self.open.last_mut() {
                        frame.next = Some((record, other_parents));
                        frame.page.truncate(FIRST_PAGE);
                        frame.limit = FIRST_PAGE;
                    }
                    // A session that waits cannot be waited for. Only a forged store has such a cycle.
                    if self.open.iter().any(|frame| frame.session == parent.session) {
                        return Err(store::Error::Tampered { point, why: RecordError::Chain });
                    }
                    self.push(parent);
                }
            }
        }
    }

    /// Fails unless the store has exactly this record there.
    async fn check(&self, parent: &Reference) -> store::Result<()> {
        let found = self.store.get(Lookup::At(parent.point())).await?;
        match found.first().is_none_or(|found| found.id() == parent.id) {
            true => Ok(()),
            false => Err(store::Error::Tampered { point: parent.point(), why: RecordError::Chain }),
        }
    }

    fn push(&mut self, head: Point) {
        let Point { session, seq: to } = head;
        let returned = self.returned.get(&session).copied();
        self.open.push(Frame { session, to, page: VecDeque::new(), limit: FIRST_PAGE, returned, next: None });
    }

    /// Saves the progress of the session being visited.
    fn save_progress(&mut self) {
        if let Some(Frame { session, returned: Some(returned), .. }) = self.open.last() {
            self.returned.insert(*session, *returned);
        }
    }

    fn is_given(&self, point: Point) -> bool {
        self.returned.get(&point.session).is_some_and(|(returned, _)| *returned > point.seq)
    }
}

/// The parents of a record in other sessions.
async fn other_parents(store: &Arc<dyn Store>, record: &Record) -> store::Result<Vec<Reference>> {
    let tampered = |why| store::Error::Tampered { point: record.point(), why };
    match record.kind() {
        Kind::Forked => {
            let rows = store.sessions(SessionFilter::Id(record.session()).into()).await?;
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

/// The heads of all sessions that are related to these by forks and merges, directly or not.
pub(super) async fn family(store: &Arc<dyn Store>, of: &[SessionId]) -> store::Result<Vec<Reference>> {
    let rows = store.sessions(SessionFilter::All.into()).await?;
    let mut neighbours: HashMap<SessionId, Vec<SessionId>> = HashMap::new();
    let mut join = |a: SessionId, b: SessionId| {
        neighbours.entry(a).or_default().push(b);
        neighbours.entry(b).or_default().push(a);
    };
    for row in &rows {
        if let Some(origin) = row.origin {
            join(row.id, origin.session);
        }
        let mut from = 0;
        while from <= row.seq {
            let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Merged])).await?;
            for merged in &page.records {
                other_parents(store, merged).await?.into_iter().for_each(|head| join(row.id, head.session));
            }
            if !page.more {
                break;
            }
            from = page.position;
        }
    }
    let (mut open, mut seen) = (of.to_vec(), of.iter().copied().collect::<HashSet<_>>());
    while let Some(session) = open.pop() {
        open.extend(neighbours.remove(&session).unwrap_or_default().into_iter().filter(|other| seen.insert(*other)));
    }
    Ok(rows.iter().filter(|row| seen.contains(&row.id)).map(SessionInfo::head_reference).collect())
}
