//! [`InMemory`]: a store in memory, for tests and for work that need not be durable. It follows the same rules as
//! stores on disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::blob::{self, Blob, BlobRef};
use crate::body::Created;
use crate::clock::Time;
use crate::files::TREE;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::protocol::{self, CommitBackend, PostStatus, Protocol, Rules as _};
use crate::record::Record;
use crate::session::OPERATOR;
use crate::state::State;
use crate::store::{
    Batch, BatchPart, Blobs, BoxFuture, Chunk, Cursor, ErasedSet, Error, FIRST_FENCING_TOKEN, FencingToken, GcGuard,
    Holder, Lookup, Notifier, Page, Post, Projection, Query, ReadFn, Result, Scan, ScanRange, SessionFilter,
    SessionInfo, Store, WatchTopic, Watcher, check_projection_name,
};

/// A store in memory. It is dropped with the last session that uses it.
#[derive(Default)]
pub struct InMemory {
    inner: Mutex<Inner>,
    notifier: Arc<Notifier>,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<SessionId, StoredSession>,
    /// Every record in commit order.
    order: Vec<Point>,
    /// Points by record id. Updated lazily, when a record is looked up by id.
    ids: BTreeMap<RecordId, Point>,
    ids_known: usize,
    blobs: HashMap<Digest, Arc<[u8]>>,
    joined: HashMap<Digest, Vec<Chunk>>,
    runs: HashMap<String, SessionId>,
    /// Posts by session, in the order they were sent.
    posts: HashMap<SessionId, Vec<Post>>,
    /// Ids of consumed posts, which are not accepted again.
    consumed: HashSet<String>,
    projections: BTreeMap<String, Projected>,
}

/// A projection that was read, with its storage.
struct Projected {
    projection: Arc<dyn Projection>,
    storage: BTreeMap<Vec<u8>, Vec<u8>>,
    cursor: Cursor,
}

struct StoredSession {
    records: Vec<Record>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    times: (Time, Time),
    origin: Option<Reference>,
    fence: FencingToken,
    leased: bool,
    state: State,
}

impl InMemory {
    /// An empty store.
    #[allow(clippy::new_ret_no_self, reason = "a store is always used behind its trait")]
    pub fn new() -> Arc<dyn Store> {
        Arc::new(Self::default())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(session: SessionId) -> Error {
    Error::NotFound(format!("session {session}"))
}

impl CommitBackend for Inner {
    type Part = BatchPart;
    type Location = ();
    type Post = String;

    fn session_head(&self, session: SessionId) -> Result<Option<(protocol::StoredHead, ())>> {
        let seen = self.sessions.get(&session).and_then(|stored| {
            let last = stored.records.last()?;
            // The operator session accepts records even if it was closed.
            let closed = stored.state.closed && self.runs.get(OPERATOR) != Some(&session);
            Some(protocol::StoredHead { id: last.id(), seq: last.seq(), closed, fence: stored.fence })
        });
        Ok(seen.map(|stored| (stored, ())))
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        Ok(self.at(point).map(|record| record.id()))
    }

    fn check_start(&self, part: &BatchPart) -> Result<()> {
        let created = part.records.first().filter(|first| *first.kind() == Kind::Created);
        match created.and_then(|first| first.body::<Created>().ok()?.run) {
            Some(key) => match self.runs.get(&key) {
                Some(&session) => Err(Error::RunTaken { key, session }),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn append(&mut self, part: BatchPart, _place: Option<()>, known: usize) -> Result<()> {
        self.write(part, known)
    }

    fn post_status(&self, post: &String) -> Result<PostStatus> {
        let waits = || self.posts.values().flatten().any(|have| have.id == *post);
        Ok(match self.consumed.contains(post) {
            true => PostStatus::Consumed,
            false if waits() => PostStatus::Waiting,
            false => PostStatus::Unknown,
        })
    }

    fn set_post_status(&mut self, post: &String, status: PostStatus) -> Result<()> {
        if status == PostStatus::Consumed {
            self.posts.values_mut().for_each(|posts| posts.retain(|have| have.id != *post));
            self.consumed.insert(post.clone());
        }
        Ok(())
    }
}

impl Inner {
    fn write(&mut self, part: BatchPart, known: usize) -> Result<()> {
        let stored = self.sessions.entry(part.session).or_insert_with(|| StoredSession {
            records: Vec::new(),
            snapshots: BTreeMap::new(),
            times: (Time(0), Time(0)),
            origin: None,
            fence: FIRST_FENCING_TOKEN,
            leased: part.keep_lease,
            state: State::default(),
        });
        for record in part.records.into_iter().skip(known) {
            let tampered = |why| Error::Tampered { point: record.point(), why };
            if record.seq() == 0 {
                stored.times.0 = record.header().map_err(|why| tampered(why.into()))?.time;
                stored.origin = record.origin().map_err(tampered)?;
                if *record.kind() == Kind::Created
                    && record.body_bytes().is_some()
                    && let Some(key) = record.body::<Created>().map_err(tampered)?.run
                {
                    self.runs.insert(key, record.session());
                }
            }
            stored.state.apply(&record).map_err(tampered)?;
            if let Some(snapshot) = record.snapshot() {
                stored.snapshots.insert(record.seq(), snapshot.to_vec());
            }
            for Blob { reference, bytes } in record.blobs() {
                self.blobs.insert(reference.digest, bytes.clone());
            }
            self.order.push(record.point());
            stored.records.push(record);
        }
        if let (Some(snapshot), Some(last)) = (part.snapshot, stored.records.last()) {
            stored.snapshots.insert(last.seq(), snapshot);
        }
        if let Some(last) = stored.records.last() {
            stored.times.1 =
                last.header().map_err(|why| Error::Tampered { point: last.point(), why: why.into() })?.time;
        }
        Ok(())
    }

    fn catch_up_ids(&mut self) {
        for point in &self.order[self.ids_known..] {
            if let Some(record) = self.sessions.get(&point.session).and_then(|l| l.records.get(point.seq as usize)) {
                self.ids.insert(record.id(), *point);
            }
        }
        self.ids_known = self.order.len();
    }

    fn at(&self, point: Point) -> Option<Record> {
        self.sessions.get(&point.session)?.records.get(usize::try_from(point.seq).ok()?).cloned()
    }

    fn row(&self, id: SessionId, stored: &StoredSession) -> Option<SessionInfo> {
        let (first, last) = (stored.records.first()?, stored.records.last()?);
        let me = Holder { id: "memory".into(), process: 0, program: "this process".into(), since: stored.times.0 };
        Some(SessionInfo {
            id,
            head: last.id(),
            seq: last.seq(),
            time: stored.times.1,
            generation: last.generation(),
            first_kind: first.kind().clone(),
            created_at: stored.times.0,
            first_generation: first.generation(),
            origin: stored.origin,
            closed: stored.state.closed,
            fence: stored.fence,
            holder: stored.leased.then_some(me),
            title: stored.state.title.clone().or_else(|| first.body::<Created>().ok()?.title),
            labels: stored.state.labels.clone(),
        })
    }

    /// Recomputes title and labels from the records that are not erased.
    fn fold_names(&mut self, session: SessionId) -> Result<()> {
        let Some(stored) = self.sessions.get_mut(&session) else { return Ok(()) };
        let mut names = State::default();
        for record in stored.records.iter().filter(|record| record.kind().changes_names()) {
            names.apply(record).map_err(|why| Error::Tampered { point: record.point(), why })?;
        }
        (stored.state.title, stored.state.labels) = (names.title, names.labels);
        Ok(())
    }

    /// Drops those of `blobs` that no body names. If there are file trees, which may refer to them, all are kept.
    fn drop_unnamed(&mut self, blobs: Vec<BlobRef>) {
        let all = self.sessions.values().flat_map(|stored| &stored.records);
        let named = all.flat_map(|record| record.body_bytes().map(blob::references).unwrap_or_default());
        let named: HashMap<Digest, String> = named.map(|blob| (blob.digest, blob.media_type)).collect();
        if named.values().any(|media_type| media_type == TREE) {
            return;
        }
        for blob in blobs.iter().filter(|blob| !named.contains_key(&blob.digest)) {
            self.blobs.remove(&blob.digest);
        }
    }

    /// Applies new records to a projection.
    fn project(&mut self, projection: &Arc<dyn Projection>) -> Result<&Projected> {
        let fresh = || Projected { projection: projection.clone(), storage: BTreeMap::new(), cursor: Cursor::start() };
        let known = self.projections.remove(projection.name());
        let known = known.filter(|known| known.projection.version() == projection.version());
        let mut known = known.unwrap_or_else(fresh);
        known.projection = projection.clone();
        loop {
            let page = self.scan_store(&known.cursor, &Scan::all().kinds(projection.kinds()));
            projection.apply(&page.records, &mut known.storage)?;
            known.cursor = page.cursor;
            if !page.more {
                break;
            }
        }
        Ok(self.projections.entry(projection.name().to_owned()).insert_entry(known).into_mut())
    }

    /// Whether a session waits for an answer or has posts.
    fn waits(&self, id: SessionId, stored: &StoredSession) -> bool {
        let has_posts = self.posts.get(&id).is_some_and(|posts| !posts.is_empty());
        has_posts || stored.state.asks.iter().any(|ask| !ask.inherited)
    }

    /// A page reads at most `limit` records, whether they match or not. The cursor is the number of records read.
    fn scan_store(&self, after: &Cursor, scan: &Scan) -> Page {
        let from = after.numbers().first().copied().unwrap_or(0);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.order.len());
        let to = from.saturating_add(scan.limit.max(1)).min(self.order.len());
        let position = |count: usize| Cursor::from_numbers(&[count as u64]);
        let mut page = Page { cursor: position(to), more: to < self.order.len(), ..Page::default() };
        for (at, point) in self.order[from..to].iter().enumerate() {
            if let Some(record) = self.at(*point)
                && (scan.kinds.is_empty() || scan.kinds.contains(record.kind()))
            {
                page.records.push(record);
                page.cursors.push(position(from + at + 1));
            }
        }
        page
    }

    fn scan_session(&self, session: SessionId, from: u64, to: u64, scan: &Scan) -> Result<Page> {
        let stored = self.sessions.get(&session).ok_or_else(|| unknown(session))?;
        let mut page = Page::default();
        let mut from = from;
        if scan.from_snapshot {
            let snapshot = stored.snapshots.range(..=to).next_back();
            page.snapshot = snapshot.map(|(seq, bytes)| (*seq, bytes.clone()));
            from = page.snapshot.as_ref().map_or(from, |(seq, _)| seq + 1);
        }
        let end = stored.records.len().min(usize::try_from(to).map_or(usize::MAX, |to| to.saturating_add(1)));
        let own = stored.records.get(from as usize..end).unwrap_or_default();
        let wanted = |record: &&Record| scan.kinds.is_empty() || scan.kinds.contains(record.kind());
        page.records = match scan.backwards {
            true => own.iter().rev().filter(wanted).take(scan.limit + 1).cloned().collect(),
            false => own.iter().filter(wanted).take(scan.limit + 1).cloned().collect(),
        };
        page.more = page.records.len() > scan.limit;
        page.records.truncate(scan.limit);
        page.position = match (page.records.last(), scan.backwards) {
            (Some(last), false) if page.more => last.seq() + 1,
            (Some(last), true) if page.more => last.seq().saturating_sub(1),
            _ => to.saturating_add(1),
        };
        Ok(page)
    }
}

impl Store for InMemory {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            protocol::commit(&Protocol, &mut *self.lock(), batch.parts, &batch.consumed_posts)?;
            self.notifier.notify(WatchTopic::Commits);
            Ok(())
        })
    }

    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>> {
        Box::pin(async move {
            let mut inner = self.lock();
            Ok(match lookup {
                Lookup::At(point) => inner.at(point).into_iter().collect(),
                Lookup::Id(id) => {
                    inner.catch_up_ids();
                    inner.ids.get(&id).and_then(|point| inner.at(*point)).into_iter().collect()
                }
                Lookup::Prefix(prefix) => {
                    inner.catch_up_ids();
                    let hits = inner.ids.iter().filter(|(id, _)| id.to_string().starts_with(&prefix));
                    hits.take(10).filter_map(|(_, point)| inner.at(*point)).collect()
                }
            })
        })
    }

    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            let inner = self.lock();
            match &scan.range {
                ScanRange::Store { after } => Ok(inner.scan_store(after, &scan)),
                ScanRange::Session { session, from, to } => inner.scan_session(*session, *from, *to, &scan),
            }
        })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<SessionInfo>>> {
        Box::pin(async move {
            let inner = self.lock();
            let wanted = |id: &SessionId, stored: &StoredSession| match &query.filter {
                SessionFilter::All => true,
                SessionFilter::Id(wanted) => wanted == id,
                SessionFilter::Prefix(prefix) => id.matches(prefix),
                SessionFilter::ChildrenOf(parent) => stored.origin.is_some_and(|origin| origin.session == *parent),
                SessionFilter::Run(key) => inner.runs.get(key) == Some(id),
            };
            let rows: Vec<SessionInfo> = match &query.filter {
                SessionFilter::Id(id) => {
                    inner.sessions.get(id).and_then(|stored| inner.row(*id, stored)).into_iter().collect()
                }
                _ => inner
                    .sessions
                    .iter()
                    .filter(|(id, stored)| wanted(id, stored))
                    .filter_map(|(id, stored)| inner.row(*id, stored))
                    .collect(),
            };
            let waits =
                |row: &SessionInfo| inner.sessions.get(&row.id).is_some_and(|stored| inner.waits(row.id, stored));
            let wanted = |row: &SessionInfo| query.admits(row) && (!query.waiting || waits(row));
            let mut rows: Vec<SessionInfo> = rows.into_iter().filter(wanted).collect();
            rows.sort_by_key(|row| std::cmp::Reverse((row.time, row.id)));
            rows.truncate(query.limit.unwrap_or(usize::MAX));
            Ok(rows)
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<FencingToken>> {
        Box::pin(async move {
            let mut inner = self.lock();
            let stored = inner.sessions.get(&session).ok_or_else(|| unknown(session))?;
            let holder = inner.row(session, stored).and_then(|row| row.holder);
            let fence = Protocol.grant(stored.fence, holder).map_err(|holder| Error::Locked { session, holder })?;
            let stored = inner.sessions.get_mut(&session).ok_or_else(|| unknown(session))?;
            (stored.leased, stored.fence) = (true, fence);
            Ok(fence)
        })
    }

    fn release(&self, session: SessionId, fence: FencingToken) {
        if let Some(stored) = self.lock().sessions.get_mut(&session)
            && Protocol.may_release(stored.fence, fence, stored.leased)
        {
            stored.leased = false;
        }
    }

    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut inner = self.lock();
            if !inner.sessions.contains_key(&post.session) {
                return Err(unknown(post.session));
            }
            let before = inner.post_status(&post.id)?;
            if Protocol.posted(before) != before {
                inner.posts.entry(post.session).or_default().push(post);
            }
            drop(inner);
            self.notifier.notify(WatchTopic::Posts);
            Ok(())
        })
    }

    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        Box::pin(async move { Ok(self.lock().posts.get(&session).cloned().unwrap_or_default()) })
    }

    fn project(&self, projection: Arc<dyn Projection>, read: ReadFn) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_projection_name(&*projection)?;
            read(&self.lock().project(&projection)?.storage)
        })
    }

    fn watch(&self, change: WatchTopic) -> Watcher {
        self.notifier.watch(change)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut inner = self.lock();
            for reference in &records {
                match inner.at(reference.point()) {
                    Some(record) if record.id() == reference.id => {}
                    _ => return Err(Error::NotFound(format!("record {}", reference.id))),
                }
            }
            let mut blobs = Vec::new();
            for reference in &records {
                if let Some(stored) = inner.sessions.get_mut(&reference.session) {
                    let record = &mut stored.records[reference.seq as usize];
                    blobs.extend(record.body_bytes().map(blob::references).unwrap_or_default());
                    *record = record.erased();
                    stored.snapshots.retain(|seq, _| *seq < reference.seq);
                }
            }
            for session in records.iter().map(|reference| reference.session) {
                inner.fold_names(session)?;
            }
            for reference in records.iter().filter(|reference| reference.seq == 0) {
                inner.runs.retain(|_, session| *session != reference.session);
            }
            inner.drop_unnamed(blobs);
            let erased = ErasedSet { records, ..ErasedSet::default() };
            for known in inner.projections.values_mut() {
                known.projection.forget(&erased, &mut known.storage)?;
            }
            Ok(())
        })
    }
}

impl Blobs for InMemory {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.lock().blobs.extend(blobs.into_iter().map(|blob| (blob.reference.digest, blob.bytes)));
            Ok(())
        })
    }

    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        self.blob_put(blobs)
    }

    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let inner = self.lock();
            Ok(inner.blobs.contains_key(&digest) || inner.joined.contains_key(&digest))
        })
    }

    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        Box::pin(async move {
            let inner = self.lock();
            let Some(pieces) = inner.joined.get(&digest) else { return Ok(inner.blobs.get(&digest).cloned()) };
            let mut whole = Vec::new();
            for piece in pieces {
                match inner.blobs.get(&piece.digest) {
                    Some(bytes) => whole.extend_from_slice(bytes),
                    None => return Ok(None),
                }
            }
            Ok(Some(whole.into()))
        })
    }

    fn blob_join(&self, whole: BlobRef, pieces: Vec<Chunk>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut inner = self.lock();
            if let Some(piece) = pieces.iter().find(|piece| !inner.blobs.contains_key(&piece.digest)) {
                return Err(Error::NotFound(format!("blob {}", piece.digest)));
            }
            inner.joined.insert(whole.digest, pieces);
            Ok(())
        })
    }

    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>> {
        Box::pin(async move { Ok(self.lock().joined.get(&digest).cloned()) })
    }

    fn gc_guard(&self) -> Result<GcGuard> {
        Ok(GcGuard::noop())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }
}
