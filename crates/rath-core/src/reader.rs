//! Reads lines of records from a store and from tails that are not published yet, as if they were one.

use std::sync::Arc;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::blob::{BlobRef, Content};
use crate::body::Merged;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::record::{Fault, Record};
use crate::state::{OtherFold, Refold, State, StoredState};
use crate::store::{Error, Lookup, Page, Result, Scan, Store, Which};

/// How far back a record is looked for among those at hand.
const NEAR: usize = 64;

/// A view over a store and over unpublished records, by session.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn Store>,
    /// The unpublished end of a line: contiguous, in order, never empty.
    tails: HashMap<SessionId, Vec<Record>>,
    /// Records of one line that are at hand, published or not: contiguous, youngest first.
    at_hand: List<Record>,
}

/// A line as the walks over lineage see it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) born_generation: u64,
    pub(crate) origin: Option<Reference>,
}

/// What snapshots of a line are good for.
#[derive(Default)]
struct Found {
    /// One of this fold.
    current: Option<(u64, State)>,
    /// One of another fold, between that and the place.
    other: Option<(u64, OtherFold)>,
}

/// The records of a line up to a place, page by page.
struct Pages {
    to: Point,
    from: u64,
}

impl Pages {
    fn new(to: Point, from: u64) -> Self {
        Self { to, from }
    }

    /// The next records of these kinds; a page is never empty.
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

/// A `merged` record and what it took in.
#[derive(Clone, Debug)]
pub(crate) struct Junction {
    pub(crate) seq: u64,
    pub(crate) generation: u64,
    /// Heads taken in, with their generations.
    pub(crate) others: Vec<(Point, u64)>,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, tails: HashMap::default(), at_hand: List::new() }
    }

    /// Adds unpublished records of one line, in order.
    pub(crate) fn add_tail(&mut self, records: Vec<Record>) {
        let Some(first) = records.first() else { return };
        let tail = self.tails.entry(first.session()).or_default();
        // Two branches may bring overlapping parts of the same ancestor; where they do not meet, what lies between was
        // published meanwhile, and so was the earlier part.
        let known_to = tail.last().map_or(0, |last| last.seq() + 1);
        if records[0].seq() > known_to {
            tail.clear();
        }
        tail.extend(records.into_iter().filter(|record| record.seq() >= known_to));
    }

    /// Adds what another reader sees.
    pub(crate) fn join(&mut self, other: &Reader) {
        other.tails.values().for_each(|tail| self.add_tail(tail.clone()));
    }

    /// Keeps records at hand that need not be read for.
    pub(crate) fn keep_at_hand(&mut self, records: &List<Record>) {
        self.at_hand = records.clone();
    }

    fn near(&self, point: Point) -> Option<&Record> {
        let head = self.at_hand.first().filter(|head| head.session() == point.session)?;
        let back = usize::try_from(head.seq().checked_sub(point.seq)?).ok()?;
        self.at_hand.iter().take(NEAR).nth(back).filter(|record| record.point() == point)
    }

    fn tail(&self, session: SessionId) -> &[Record] {
        self.tails.get(&session).map_or(&[], Vec::as_slice)
    }

    pub(crate) async fn line(&self, session: SessionId) -> Result<Line> {
        if let Some(first) = self.tail(session).first().filter(|first| first.seq() == 0) {
            let origin = first.origin().map_err(|why| tampered(first, why))?;
            return Ok(Line { born_generation: first.generation(), origin });
        }
        let rows = self.store.sessions(Which::Id(session).into()).await?;
        let row = rows.into_iter().next().ok_or_else(|| Error::NotFound(format!("session {session}")))?;
        Ok(Line { born_generation: row.born_generation, origin: row.origin })
    }

    pub(crate) async fn record(&self, point: Point) -> Result<Record> {
        if let Some(record) = in_tail(self.tail(point.session), point.seq) {
            return Ok(record.clone());
        }
        if let Some(record) = self.near(point) {
            return Ok(record.clone());
        }
        let found = self.store.get(Lookup::At(point)).await?;
        found.into_iter().next().ok_or_else(|| Error::NotFound(format!("record {}@{}", point.session, point.seq)))
    }

    /// The record of this id.
    pub(crate) async fn record_of(&self, id: RecordId) -> Result<Record> {
        if let Some(record) = self.tails.values().flatten().find(|record| record.id() == id) {
            return Ok(record.clone());
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        found.into_iter().next().ok_or_else(|| Error::NotFound(format!("record {id}")))
    }

    /// Records `from..=to` of `session`, of these kinds, a page of them.
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
                // The tail follows where the store's part is read to its end.
                if !page.more {
                    (page.more, page.position) = (true, first);
                }
                Ok(page)
            }
            _ => self.store.scan(Scan::session(session, from, to).kinds(kinds)).await,
        }
    }

    /// Records `0..=to` of `session`, of these kinds, youngest first, a page of them. The next page goes on from the
    /// returned position downwards.
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

    /// The record with this id, published or not.
    pub(crate) async fn record_by_id(&self, id: RecordId) -> Result<Option<Record>> {
        if let Some(record) = self.tails.values().flatten().find(|record| record.id() == id) {
            return Ok(Some(record.clone()));
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        Ok(found.into_iter().find(|record| record.id() == id))
    }

    /// The youngest merge of `session` at or before `to`.
    pub(crate) async fn junction(&self, session: SessionId, to: u64) -> Result<Option<Junction>> {
        match self.last_of(Point { session, seq: to }, &Kind::Merged).await? {
            Some(merged) => self.read_junction(&merged).await.map(Some),
            None => Ok(None),
        }
    }

    /// The last record of this kind at or before `to`, on its line alone.
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

    async fn read_junction(&self, merged: &Record) -> Result<Junction> {
        let others = match merged.body::<Merged>() {
            Ok(body) => body.branches.iter().map(|branch| (branch.head(), branch.generation)).collect(),
            // The body is gone, the header still names the parents: look them up by id.
            Err(Fault::Erased) => {
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
        Ok(Junction { seq: merged.seq(), generation: merged.generation(), others })
    }

    /// The folded state after `point`: from the nearest snapshot on, through fork points where a line has none.
    pub(crate) async fn state_at(&self, point: Point) -> Result<State> {
        let (mut to_fold, mut seen) = (Vec::new(), HashSet::default());
        let mut at = point;
        let mut state = loop {
            let Found { current, other } = self.snapshot(at).await?;
            if let Some((seq, state)) = current {
                to_fold.push((at, seq + 1, other));
                break Refold::of(state);
            }
            // A forged fork point may lead back here.
            if !seen.insert(at.session) {
                return Err(Error::Tampered { point: at, why: Fault::Chain });
            }
            to_fold.push((at, 0, other));
            match self.line(at.session).await?.origin {
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

    /// The nearest snapshot of this fold at or before a place, and the nearest of another fold after that.
    async fn snapshot(&self, at: Point) -> Result<Found> {
        let tail = self.tail(at.session);
        let brought = tail.iter().rev().filter(|record| record.seq() <= at.seq);
        let mut brought = brought.filter_map(|record| Some((record.seq(), State::from_snapshot(record.snapshot()?)?)));
        if let Some(current) = brought.next() {
            return Ok(Found { current: Some(current), other: None });
        }
        let mut to = match tail.first().map(Record::seq) {
            Some(0) => return Ok(Found::default()),
            Some(first) => at.seq.min(first - 1),
            None => at.seq,
        };
        let mut found = Found::default();
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
                // Before one of an older fold stand older ones.
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

    /// Whether a snapshot of another fold says all that there is to say before a place: no record stands there of a kind
    /// that its fold did not know.
    async fn is_complete(&self, at: Point, other: &OtherFold) -> Result<bool> {
        let Some(kinds) = other.unknown_kinds() else { return Ok(false) };
        let (mut seen, mut here) = (HashSet::default(), Some(at));
        while let Some(point) = here.filter(|point| seen.insert(point.session)) {
            if Pages::new(point, 0).next(self, kinds).await?.is_some() {
                return Ok(false);
            }
            here = self.line(point.session).await?.origin.map(|origin| origin.point());
        }
        Ok(true)
    }

    /// A blob's bytes.
    pub(crate) async fn blob(&self, digest: Digest) -> Result<Arc<[u8]>> {
        let brought = self.tails.values().flatten().flat_map(Record::blobs);
        if let Some(blob) = brought.into_iter().find(|blob| blob.reference.digest == digest) {
            return Ok(blob.bytes.clone());
        }
        self.store.blob_get(digest).await?.ok_or_else(|| Error::NotFound(format!("blob {digest}")))
    }

    /// The text of some content, read from its blob where it has one.
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

/// The error for a record that cannot be read: its body was erased, or its bytes cannot be what was written.
pub(crate) fn tampered(record: &Record, why: Fault) -> Error {
    match why {
        Fault::Erased => Error::Erased { point: record.point() },
        why => Error::Tampered { point: record.point(), why },
    }
}
