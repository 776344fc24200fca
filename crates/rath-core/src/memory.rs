//! The store in memory: the twin of every other one, for tests and for work that need not last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::blob::{self, Blob, BlobRef};
use crate::body::Created;
use crate::clock::Time;
use crate::files::TREE;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::protocol::{self, Protocol, Rules as _, Shelf, Standing};
use crate::record::Record;
use crate::session::OPERATOR;
use crate::state::State;
use crate::store::{
    Batch, Blobs, BoxFuture, Change, Cursor, Erased, Error, FIRST_FENCE, Fence, GcGuard, Holder, Lookup, Notifier, Of,
    Page, Part, Piece, Post, Projection, Query, Reading, Result, Row, Scan, Store, Watcher, Which,
    check_projection_name,
};

/// A store in memory. It is gone with the last session that uses it.
#[derive(Default)]
pub struct Memory {
    inner: Mutex<Inner>,
    notifier: Arc<Notifier>,
}

#[derive(Default)]
struct Inner {
    lines: HashMap<SessionId, Line>,
    /// Every record in commit order.
    order: Vec<Point>,
    /// Places by id, caught up when somebody asks by id.
    ids: BTreeMap<RecordId, Point>,
    ids_known: usize,
    blobs: HashMap<Digest, Arc<[u8]>>,
    joined: HashMap<Digest, Vec<Piece>>,
    runs: HashMap<String, SessionId>,
    /// Posts in the order they came.
    posts: HashMap<SessionId, Vec<Post>>,
    /// Posts that were taken: they are not taken in again.
    taken: HashSet<String>,
    projections: BTreeMap<String, Projected>,
}

/// A projection that was asked, with its storage.
struct Projected {
    projection: Arc<dyn Projection>,
    storage: BTreeMap<Vec<u8>, Vec<u8>>,
    cursor: Cursor,
}

struct Line {
    records: Vec<Record>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    times: (Time, Time),
    origin: Option<Reference>,
    fence: Fence,
    held: bool,
    state: State,
}

impl Memory {
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

impl Shelf for Inner {
    type Part = Part;
    type Place = ();
    type Post = String;

    fn line(&self, session: SessionId) -> Result<Option<(protocol::Line, ())>> {
        let seen = self.lines.get(&session).and_then(|line| {
            let last = line.records.last()?;
            // The store's own account goes on, also where somebody closed it.
            let closed = line.state.closed && self.runs.get(OPERATOR) != Some(&session);
            Some(protocol::Line { head: last.id(), seq: last.seq(), closed, fence: line.fence })
        });
        Ok(seen.map(|line| (line, ())))
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        Ok(self.at(point).map(|record| record.id()))
    }

    fn may_begin(&self, part: &Part) -> Result<()> {
        let created = part.records.first().filter(|first| *first.kind() == Kind::Created);
        match created.and_then(|first| first.body::<Created>().ok()?.run) {
            Some(key) => match self.runs.get(&key) {
                Some(&session) => Err(Error::RunTaken { key, session }),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn append(&mut self, part: Part, _place: Option<()>, known: usize) -> Result<()> {
        self.write(part, known)
    }

    fn standing(&self, post: &String) -> Result<Standing> {
        let waits = || self.posts.values().flatten().any(|have| have.id == *post);
        Ok(match self.taken.contains(post) {
            true => Standing::Taken,
            false if waits() => Standing::Waiting,
            false => Standing::Unknown,
        })
    }

    fn stand(&mut self, post: &String, standing: Standing) -> Result<()> {
        if standing == Standing::Taken {
            self.posts.values_mut().for_each(|posts| posts.retain(|have| have.id != *post));
            self.taken.insert(post.clone());
        }
        Ok(())
    }
}

impl Inner {
    fn write(&mut self, part: Part, known: usize) -> Result<()> {
        let line = self.lines.entry(part.session).or_insert_with(|| Line {
            records: Vec::new(),
            snapshots: BTreeMap::new(),
            times: (Time(0), Time(0)),
            origin: None,
            fence: FIRST_FENCE,
            held: part.hold,
            state: State::default(),
        });
        for record in part.records.into_iter().skip(known) {
            let tampered = |why| Error::Tampered { point: record.point(), why };
            if record.seq() == 0 {
                line.times.0 = record.header().map_err(|why| tampered(why.into()))?.time;
                line.origin = record.origin().map_err(tampered)?;
                if *record.kind() == Kind::Created
                    && record.body_bytes().is_some()
                    && let Some(key) = record.body::<Created>().map_err(tampered)?.run
                {
                    self.runs.insert(key, record.session());
                }
            }
            line.state.apply(&record).map_err(tampered)?;
            if let Some(snapshot) = record.snapshot() {
                line.snapshots.insert(record.seq(), snapshot.to_vec());
            }
            for Blob { reference, bytes } in record.blobs() {
                self.blobs.insert(reference.digest, bytes.clone());
            }
            self.order.push(record.point());
            line.records.push(record);
        }
        if let (Some(snapshot), Some(last)) = (part.snapshot, line.records.last()) {
            line.snapshots.insert(last.seq(), snapshot);
        }
        if let Some(last) = line.records.last() {
            line.times.1 = last.header().map_err(|why| Error::Tampered { point: last.point(), why: why.into() })?.time;
        }
        Ok(())
    }

    fn catch_up_ids(&mut self) {
        for point in &self.order[self.ids_known..] {
            if let Some(record) = self.lines.get(&point.session).and_then(|l| l.records.get(point.seq as usize)) {
                self.ids.insert(record.id(), *point);
            }
        }
        self.ids_known = self.order.len();
    }

    fn at(&self, point: Point) -> Option<Record> {
        self.lines.get(&point.session)?.records.get(usize::try_from(point.seq).ok()?).cloned()
    }

    fn row(&self, id: SessionId, line: &Line) -> Option<Row> {
        let (first, last) = (line.records.first()?, line.records.last()?);
        let me = Holder { id: "memory".into(), process: 0, program: "this process".into(), since: line.times.0 };
        Some(Row {
            id,
            head: last.id(),
            seq: last.seq(),
            time: line.times.1,
            generation: last.generation(),
            birth: first.kind().clone(),
            born: line.times.0,
            born_generation: first.generation(),
            origin: line.origin,
            closed: line.state.closed,
            fence: line.fence,
            holder: line.held.then_some(me),
            title: line.state.title.clone().or_else(|| first.body::<Created>().ok()?.title),
            labels: line.state.labels.clone(),
        })
    }

    /// Title and labels as the records say that have not been erased.
    fn fold_names(&mut self, session: SessionId) -> Result<()> {
        let Some(line) = self.lines.get_mut(&session) else { return Ok(()) };
        let mut names = State::default();
        for record in line.records.iter().filter(|record| record.kind().changes_names()) {
            names.apply(record).map_err(|why| Error::Tampered { point: record.point(), why })?;
        }
        (line.state.title, line.state.labels) = (names.title, names.labels);
        Ok(())
    }

    /// Drops those of `blobs` that no body names. Where there are versions of files, which may hold them, all stay.
    fn drop_unnamed(&mut self, blobs: Vec<BlobRef>) {
        let all = self.lines.values().flat_map(|line| &line.records);
        let named = all.flat_map(|record| record.body_bytes().map(blob::references).unwrap_or_default());
        let named: HashMap<Digest, String> = named.map(|blob| (blob.digest, blob.media_type)).collect();
        if named.values().any(|media_type| media_type == TREE) {
            return;
        }
        for blob in blobs.iter().filter(|blob| !named.contains_key(&blob.digest)) {
            self.blobs.remove(&blob.digest);
        }
    }

    /// Brings a projection up to date.
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

    /// Whether an open session waits for an answer, or has posts.
    fn waits(&self, id: SessionId, line: &Line) -> bool {
        let has_posts = self.posts.get(&id).is_some_and(|posts| !posts.is_empty());
        has_posts || line.state.asks.iter().any(|ask| !ask.inherited)
    }

    /// A cursor counts records. So many of them are looked at for a page, wanted or not.
    fn scan_store(&self, after: &Cursor, scan: &Scan) -> Page {
        let from = after.numbers().first().copied().unwrap_or(0);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.order.len());
        let to = from.saturating_add(scan.limit.max(1)).min(self.order.len());
        let position = |count: usize| Cursor::of_store(&[count as u64]);
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
        let line = self.lines.get(&session).ok_or_else(|| unknown(session))?;
        let mut page = Page::default();
        let mut from = from;
        if scan.from_snapshot {
            let snapshot = line.snapshots.range(..=to).next_back();
            page.snapshot = snapshot.map(|(seq, bytes)| (*seq, bytes.clone()));
            from = page.snapshot.as_ref().map_or(from, |(seq, _)| seq + 1);
        }
        let end = line.records.len().min(usize::try_from(to).map_or(usize::MAX, |to| to.saturating_add(1)));
        let own = line.records.get(from as usize..end).unwrap_or_default();
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

impl Store for Memory {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            protocol::commit(&Protocol, &mut *self.lock(), batch.parts, &batch.taken)?;
            self.notifier.notify(Change::Commits);
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
            match &scan.of {
                Of::Store { after } => Ok(inner.scan_store(after, &scan)),
                Of::Session { session, from, to } => inner.scan_session(*session, *from, *to, &scan),
            }
        })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>> {
        Box::pin(async move {
            let inner = self.lock();
            let wanted = |id: &SessionId, line: &Line| match &query.which {
                Which::All => true,
                Which::Id(wanted) => wanted == id,
                Which::Prefix(prefix) => id.matches(prefix),
                Which::ChildrenOf(parent) => line.origin.is_some_and(|origin| origin.session == *parent),
                Which::Run(key) => inner.runs.get(key) == Some(id),
            };
            let rows: Vec<Row> = match &query.which {
                Which::Id(id) => inner.lines.get(id).and_then(|line| inner.row(*id, line)).into_iter().collect(),
                _ => inner
                    .lines
                    .iter()
                    .filter(|(id, line)| wanted(id, line))
                    .filter_map(|(id, line)| inner.row(*id, line))
                    .collect(),
            };
            let waits = |row: &Row| inner.lines.get(&row.id).is_some_and(|line| inner.waits(row.id, line));
            let wanted = |row: &Row| query.admits(row) && (!query.waiting || waits(row));
            let mut rows: Vec<Row> = rows.into_iter().filter(wanted).collect();
            rows.sort_by_key(|row| std::cmp::Reverse((row.time, row.id)));
            rows.truncate(query.limit.unwrap_or(usize::MAX));
            Ok(rows)
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>> {
        Box::pin(async move {
            let mut inner = self.lock();
            let line = inner.lines.get(&session).ok_or_else(|| unknown(session))?;
            let holder = inner.row(session, line).and_then(|row| row.holder);
            let fence = Protocol.grant(line.fence, holder).map_err(|holder| Error::Held { session, holder })?;
            let line = inner.lines.get_mut(&session).ok_or_else(|| unknown(session))?;
            (line.held, line.fence) = (true, fence);
            Ok(fence)
        })
    }

    fn release(&self, session: SessionId, fence: Fence) {
        if let Some(line) = self.lock().lines.get_mut(&session)
            && Protocol.gives_back(line.fence, fence, line.held)
        {
            line.held = false;
        }
    }

    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut inner = self.lock();
            if !inner.lines.contains_key(&post.session) {
                return Err(unknown(post.session));
            }
            let before = inner.standing(&post.id)?;
            if Protocol.posted(before) != before {
                inner.posts.entry(post.session).or_default().push(post);
            }
            drop(inner);
            self.notifier.notify(Change::Posts);
            Ok(())
        })
    }

    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        Box::pin(async move { Ok(self.lock().posts.get(&session).cloned().unwrap_or_default()) })
    }

    fn project(&self, projection: Arc<dyn Projection>, read: Reading) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_projection_name(&*projection)?;
            read(&self.lock().project(&projection)?.storage)
        })
    }

    fn watch(&self, change: Change) -> Watcher {
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
                if let Some(line) = inner.lines.get_mut(&reference.session) {
                    let record = &mut line.records[reference.seq as usize];
                    blobs.extend(record.body_bytes().map(blob::references).unwrap_or_default());
                    *record = record.erased();
                    line.snapshots.retain(|seq, _| *seq < reference.seq);
                }
            }
            for session in records.iter().map(|reference| reference.session) {
                inner.fold_names(session)?;
            }
            for reference in records.iter().filter(|reference| reference.seq == 0) {
                inner.runs.retain(|_, session| *session != reference.session);
            }
            inner.drop_unnamed(blobs);
            let erased = Erased { records, ..Erased::default() };
            for known in inner.projections.values_mut() {
                known.projection.forget(&erased, &mut known.storage)?;
            }
            Ok(())
        })
    }
}

impl Blobs for Memory {
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

    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut inner = self.lock();
            if let Some(piece) = pieces.iter().find(|piece| !inner.blobs.contains_key(&piece.digest)) {
                return Err(Error::NotFound(format!("blob {}", piece.digest)));
            }
            inner.joined.insert(whole.digest, pieces);
            Ok(())
        })
    }

    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>> {
        Box::pin(async move { Ok(self.lock().joined.get(&digest).cloned()) })
    }

    fn gc_guard(&self) -> Result<GcGuard> {
        Ok(GcGuard::of_nothing())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }
}
