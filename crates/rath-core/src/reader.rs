//! [`Reader`]: reads records from a store and from unpublished tails as if all of them were stored.

use std::sync::Arc;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::blob::{BlobRef, Content};
use crate::body::Merged;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::record::{Record, RecordError};
use crate::state::{OtherFold, Refold, State, StoredState};
use crate::store::{Error, Lookup, Page, Result, Scan, SessionFilter, Store};

/// The number of cached records in which a record is searched.
const CACHE_DEPTH: usize = 64;

/// A store and unpublished records, read as one.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn Store>,
    /// The unpublished tail of each session: contiguous, in order, never empty.
    tails: HashMap<SessionId, Vec<Record>>,
    /// Cached records of one session, published or not: contiguous, newest first.
    cached: List<Record>,
}

/// The first record of a session, as walks over the ancestry need it.
#[derive(Clone, Debug)]
pub(crate) struct SessionStart {
    pub(crate) born_generation: u64,
    pub(crate) origin: Option<Reference>,
}

/// The usable snapshots of a session.
#[derive(Default)]
struct Snapshots {
    /// A snapshot of the current fold version.
    current: Option<(u64, State)>,
    /// A snapshot of another fold version, between `current` and the requested point.
    other: Option<(u64, OtherFold)>,
}

/// The records of a session up to a point, page by page.
struct Pages {
    to: Point,
    from: u64,
}

impl Pages {
    fn new(to: Point, from: u64) -> Self {
        Self { to, from }
    }

    /// The next records of these kinds; `None` after the last. A page is never empty.
    async fn next(&mut self, reader: &Reader, kinds: &[Kind]) -> Result<Option<Vec<Record>>> {
        while self.from <= self.to.seq {
            let page = reader.page(self.to.session, self.from, self.to.seq, kinds).await?;
            self.from = if page.more { page.position } else { self.to.seq.saturating_add(1) };
            if !page.records.is_empty() {
                return Ok(Some(page.records));
            }
            if !page.more {
                break;
            }
        }
        Ok(None)
    }
}

/// A `merged` record and the heads that it merged.
#[derive(Clone, Debug)]
pub(crate) struct MergePoint {
    pub(crate) seq: u64,
    pub(crate) generation: u64,
    /// The merged heads with their generations.
    pub(crate) others: Vec<(Point, u64)>,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, tails: HashMap::default(), cached: List::new() }
    }

    /// Adds unpublished records of one session, in order.
    pub(crate) fn add_tail(&mut self, records: Vec<Record>) {
        let Some(first) = records.first() else { return };
        let tail = self.tails.entry(first.session()).or_default();
        // Two branches may have overlapping tails of the same ancestor. If there is a gap between them, the records in
        // it and before it were published after the first branch was forked.
        let known_to = tail.last().map_or(0, |last| last.seq() + 1);
        if records[0].seq() > known_to {
            tail.clear();
        }
        tail.extend(records.into_iter().filter(|record| record.seq() >= known_to));
    }

    /// Adds the tails of another reader.
    pub(crate) fn join(&mut self, other: &Reader) {
        other.tails.values().for_each(|tail| self.add_tail(tail.clone()));
    }

    /// Sets the cached records.
    pub(crate) fn set_cached(&mut self, records: &List<Record>) {
        self.cached = records.clone();
    }

    fn cached_record(&self, point: Point) -> Option<&Record> {
        let head = self.cached.first().filter(|head| head.session() == point.session)?;
        let back = usize::try_from(head.seq().checked_sub(point.seq)?).ok()?;
        self.cached.iter().take(CACHE_DEPTH).nth(back).filter(|record| record.point() == point)
    }

    fn tail(&self, session: SessionId) -> &[Record] {
        self.tails.get(&session).map_or(&[], Vec::as_slice)
    }

    pub(crate) async fn session_start(&self, session: SessionId) -> Result<SessionStart> {
        if let Some(first) = self.tail(session).first().filter(|first| first.seq() == 0) {
            let origin = first.origin().map_err(|why| tampered(first, why))?;
            return Ok(SessionStart { born_generation: first.generation(), origin });
        }
        let rows = self.store.sessions(SessionFilter::Id(session).into()).await?;
        let row = rows.into_iter().next().ok_or_else(|| Error::NotFound(format!("session {session}")))?;
        Ok(SessionStart { born_generation: row.first_generation, origin: row.origin })
    }

    pub(crate) async fn record(&self, point: Point) -> Result<Record> {
        if let Some(record) = in_tail(self.tail(point.session), point.seq) {
            return Ok(record.clone());
        }
        if let Some(record) = self.cached_record(point) {
            return Ok(record.clone());
        }
        let found = self.store.get(Lookup::At(point)).await?;
        found.into_iter().next().ok_or_else(|| Error::NotFound(format!("record {}@{}", point.session, point.seq)))
    }

    /// The record with this id. Fails if there is none.
    pub(crate) async fn record_of(&self, id: RecordId) -> Result<Record> {
        if let Some(record) = self.tails.values().flatten().find(|record| record.id() == id) {
            return Ok(record.clone());
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        found.into_iter().next().ok_or_else(|| Error::NotFound(format!("record {id}")))
    }

    /// A page of the records `from..=to` of `session` of these kinds. An empty `kinds` means all.
    pub(crate) async fn page(&self, session: SessionId, from: u64, to: u64, kinds: &[Kind]) -> Result<Page> {
        let tail = self.tail(session);
        match tail.first().map(Record::seq) {
            Some(first) if from >= first => {
                let inside = |record: &&Record| record.seq() >= from && record.seq() <= to;
                let wanted = |record: &&Record| kinds.is_empty() || kinds.contains(record.kind());
                let records = tail.iter().filter(inside).filter(wanted).cloned().collect();
                Ok(Page { records, position: to + 1, ..Page::default() })
            }
            Some(first) if to >= first => {
                let mut page = self.store.scan(Scan::session(session, from, first - 1).kinds(kinds)).await?;
                // After the store's part comes the tail.
                if !page.more {
                    (page.more, page.position) = (true, first);
                }
                Ok(page)
            }
            _ => self.store.scan(Scan::session(session, from, to).kinds(kinds)).await,
        }
    }

    /// A page of the records `0..=to` of `session` of these kinds, newest first. The next page continues downwards from
    /// the returned position.
    pub(crate) async fn newest_first(&self, session: SessionId, to: u64, kinds: &[Kind]) -> Result<Page> {
        let tail = self.tail(session);
        match tail.first().map(Record::seq) {
            Some(first) if to >= first => {
                let wanted = |record: &&Record| record.seq() <= to && kinds.contains(record.kind());
                let records = tail.iter().rev().filter(wanted).cloned().collect();
                let (more, position) = (first > 0, first.saturating_sub(1));
                Ok(Page { records, more, position, ..Page::default() })
            }
            _ => self.store.scan(Scan::session(session, 0, to).kinds(kinds).backwards()).await,
        }
    }

    /// The record with this id, published or not; `None` if there is none.
    pub(crate) async fn record_by_id(&self, id: RecordId) -> Result<Option<Record>> {
        if let Some(record) = self.tails.values().flatten().find(|record| record.id() == id) {
            return Ok(Some(record.clone()));
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        Ok(found.into_iter().find(|record| record.id() == id))
    }

    /// The last merge of `session` at or before `to`.
    pub(crate) async fn last_merge(&self, session: SessionId, to: u64) -> Result<Option<MergePoint>> {
        match self.last_of(Point { session, seq: to }, &Kind::Merged).await? {
            Some(merged) => self.read_merge(&merged).await.map(Some),
            None => Ok(None),
        }
    }

    /// The last record of this kind at or before `to` in the same session.
    pub(crate) async fn last_of(&self, to: Point, kind: &Kind) -> Result<Option<Record>> {
        let tail = self.tail(to.session);
        if let Some(found) = tail.iter().rev().find(|record| record.seq() <= to.seq && record.kind() == kind) {
            return Ok(Some(found.clone()));
        }
        let last = match tail.first().map(Record::seq) {
            Some(0) => return Ok(None),
            Some(first) => to.seq.min(first - 1),
            None => to.seq,
        };
        let scan = Scan::session(to.session, 0, last).kinds(std::slice::from_ref(kind)).backwards().limit(1);
        Ok(self.store.scan(scan).await?.records.into_iter().next())
    }

    async fn read_merge(&self, merged: &Record) -> Result<MergePoint> {
        let others = match merged.body::<Merged>() {
            Ok(body) => body.branches.iter().map(|branch| (branch.head(), branch.generation)).collect(),
            // The body is erased, but the header still names the parents: look them up by id.
            Err(RecordError::Erased) => {
                let header = merged.header().map_err(|why| tampered(merged, why.into()))?;
                let mut others = Vec::new();
                for parent in &header.parents[1..] {
                    for record in self.store.get(Lookup::Id(*parent)).await? {
                        others.push((record.point(), record.generation()));
                    }
                }
                others
            }
            Err(why) => return Err(tampered(merged, why)),
        };
        Ok(MergePoint { seq: merged.seq(), generation: merged.generation(), others })
    }

    /// The folded state after `point`, starting from the nearest snapshot in this session or its ancestors.
    pub(crate) async fn state_at(&self, point: Point) -> Result<State> {
        let (mut to_fold, mut seen) = (Vec::new(), HashSet::default());
        let mut at = point;
        let mut state = loop {
            let Snapshots { current, other } = self.snapshot(at).await?;
            if let Some((seq, state)) = current {
                to_fold.push((at, seq + 1, other));
                break Refold::of(state);
            }
            // Forged fork points may form a cycle.
            if !seen.insert(at.session) {
                return Err(Error::Tampered { point: at, why: RecordError::Chain });
            }
            to_fold.push((at, 0, other));
            match self.session_start(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => break Refold::default(),
            }
        };
        while let Some((to, from, other)) = to_fold.pop() {
            let mut pages = Pages::new(to, from);
            while let Some(page) = pages.next(self, &[]).await? {
                for record in &page {
                    state.apply(record).map_err(|why| tampered(record, why))?;
                    if let Some((_, other)) = other.as_ref().filter(|(seq, _)| *seq == record.seq()) {
                        state.take_from(other);
                    }
                }
            }
        }
        Ok(state.into_state())
    }

    /// The nearest snapshot of this fold version at or before a point, and the nearest of another version after that
    /// one.
    async fn snapshot(&self, at: Point) -> Result<Snapshots> {
        let tail = self.tail(at.session);
        let tail_snapshots = tail.iter().rev().filter(|record| record.seq() <= at.seq);
        let mut tail_snapshots =
            tail_snapshots.filter_map(|record| Some((record.seq(), State::from_snapshot(record.snapshot()?)?)));
        if let Some(current) = tail_snapshots.next() {
            return Ok(Snapshots { current: Some(current), other: None });
        }
        let mut to = match tail.first().map(Record::seq) {
            Some(0) => return Ok(Snapshots::default()),
            Some(first) => at.seq.min(first - 1),
            None => at.seq,
        };
        let mut found = Snapshots::default();
        loop {
            let page = self.store.scan(Scan::session(at.session, 0, to).from_snapshot().limit(0)).await?;
            let Some((seq, bytes)) = page.snapshot else { return Ok(found) };
            match State::read_snapshot(&bytes) {
                Some(StoredState::Current(state)) => {
                    found.current = Some((seq, state));
                    return Ok(found);
                }
                Some(StoredState::Other(other)) if found.other.is_none() && self.is_complete(at, &other).await? => {
                    found.current = Some((seq, other.into_complete()));
                    return Ok(found);
                }
                // Before a snapshot of an older version there are only older ones.
                Some(StoredState::Other(other)) if !other.is_newer() => {
                    found.other.get_or_insert((seq, other));
                    return Ok(found);
                }
                Some(StoredState::Other(other)) => drop(found.other.get_or_insert((seq, other))),
                None => {}
            }
            match seq.checked_sub(1) {
                Some(before) => to = before,
                None => return Ok(found),
            }
        }
    }

    /// Whether a snapshot of another fold version is complete at a point: no record up to there is of a kind that its
    /// version did not know.
    async fn is_complete(&self, at: Point, other: &OtherFold) -> Result<bool> {
        let Some(kinds) = other.unknown_kinds() else { return Ok(false) };
        let (mut seen, mut here) = (HashSet::default(), Some(at));
        while let Some(point) = here.filter(|point| seen.insert(point.session)) {
            if Pages::new(point, 0).next(self, kinds).await?.is_some() {
                return Ok(false);
            }
            here = self.session_start(point.session).await?.origin.map(|origin| origin.point());
        }
        Ok(true)
    }

    /// A blob's bytes.
    pub(crate) async fn blob(&self, digest: Digest) -> Result<Arc<[u8]>> {
        let unpublished = self.tails.values().flatten().flat_map(Record::blobs);
        if let Some(blob) = unpublished.into_iter().find(|blob| blob.reference.digest == digest) {
            return Ok(blob.bytes.clone());
        }
        self.store.blob_get(digest).await?.ok_or_else(|| Error::NotFound(format!("blob {digest}")))
    }

    /// The text of some content, read from its blob if it is in one.
    pub(crate) async fn text(&self, content: &Content) -> Result<String> {
        match content {
            Content::Text(text) => Ok(text.clone()),
            Content::Blob(BlobRef { digest, .. }) => {
                Ok(String::from_utf8_lossy(&self.blob(*digest).await?).into_owned())
            }
        }
    }
}

fn in_tail(tail: &[Record], seq: u64) -> Option<&Record> {
    let first = tail.first()?.seq();
    tail.get(usize::try_from(seq.checked_sub(first)?).ok()?)
}

/// The error for a record that cannot be read: its body was erased, or its bytes are not what was written.
pub(crate) fn tampered(record: &Record, why: RecordError) -> Error {
    match why {
        RecordError::Erased => Error::Erased { point: record.point() },
        why => Error::Tampered { point: record.point(), why },
    }
}
