//! The embedded store. Its directory has `rath.db` (SQLite: records and small blobs), `packs/` (blobs), `holders/`
//! (lock files of the processes that write), `projections/` (databases that are derived from the records), `search.db`
//! (the search index) and `watch/` (files that notify other processes of commits and posts).

pub(crate) mod blobs;
mod change_signal;
mod commit;
mod deferred_blobs;
mod erase;
mod garbage;
mod health;
mod holder;
mod ids;
mod inbox;
mod inline_blobs;
pub(crate) mod integrity;
mod prefetch;
mod provenance;
pub(crate) mod read;
mod readers;
mod revoke;
pub(crate) mod rows;
mod runs;
pub(crate) mod schema;
mod schema_check;
mod state_fold;
mod suspect_wal;
mod upgrade;
mod vacuum;
mod verify;
mod wal;
mod write_request;
mod write_slot;
mod writer;
mod writer_pacing;

use std::collections::HashSet;
use std::fs;
use std::future::poll_fn;
use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;

use futures_channel::oneshot;
use rath_core::store::{
    Batch, Blobs, BoxFuture, Chunk, Error, FencingToken, GcGuard, Lookup, OpenQuestions, Page, Post, Projection,
    Provenance, Query, ReadFn, Result, Scan, SessionInfo, Store, WatchTopic, Watcher,
};
use rath_core::{Blob, BlobRef, Digest, Record, Reference, SessionId};
use rusqlite::Connection;

pub use erase::{EraseLock, ErasePlan, EraseReport, KeptBlob};
pub use garbage::GcReport;
pub use health::{PackHealth, StoreHealth};
pub use schema::FORMAT;
pub use upgrade::{FormatBackup, FormatUpgrade};

use crate::packing::Prepared;
use crate::packs::CompressedBlob;
use crate::projection::Known;
use change_signal::ChangeSignals;
use deferred_blobs::DeferredBlobs;
use prefetch::Prefetcher;
use readers::Readers;
use schema::Access;
use suspect_wal::SuspectWal;
use write_request::WriteRequest;
use writer::{Shared, Writer};

/// A store in one directory of this machine.
pub struct Embedded {
    pub(crate) paths: Paths,
    program: String,
    readers: Arc<Readers>,
    prefetcher: Prefetcher,
    deferred: Arc<DeferredBlobs>,
    suspect_wal: SuspectWal,
    signals: Arc<ChangeSignals>,
    pub(crate) known: Known,
    writer: OnceLock<Writer>,
    /// Set once it is known that this user of this machine wrote the store.
    is_ours: OnceLock<()>,
    /// Locked while the writer starts.
    starting: Mutex<()>,
    /// Called when the store was upgraded to the current format.
    on_upgrade: Option<OnUpgrade>,
}

type OnUpgrade = Box<dyn Fn(&FormatUpgrade) + Send + Sync>;

/// The paths of the parts of a store.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    database: PathBuf,
    pub(crate) packs: PathBuf,
    pub(crate) holders: PathBuf,
}

impl Paths {
    fn of(root: &Path) -> Self {
        let at = |name: &str| root.join(name);
        Self { root: root.into(), database: at("rath.db"), packs: at("packs"), holders: at("holders") }
    }
}

impl Embedded {
    /// Creates a store at `root`. Fails if `root` already has one.
    pub fn create(root: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
        let paths = Paths::of(root.as_ref());
        let at = |error| Error::machine(format!("creating {}", paths.root.display()), error);
        if paths.database.exists() {
            return Err(at(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        // The directory is durable before the database exists: another process may open it and acknowledge a commit at
        // once.
        crate::packs::make_dirs(&paths.root).map_err(at)?;
        // The database gets its name when it is complete, by a hard link, which fails if the name exists. So a crash
        // leaves no partial store, and of two processes that create a store at the same time one succeeds.
        let unfinished = paths.root.join(format!("rath.db.{}.new", rath_core::fresh_name()));
        let made = schema::create(&unfinished).and_then(|()| fs::hard_link(&unfinished, &paths.database).map_err(at));
        for leftover in ["new", "new-wal", "new-shm"] {
            let _ = fs::remove_file(unfinished.with_extension(leftover));
        }
        made?;
        // A failure is ignored: a store without this file counts as one of unknown origin, not as a foreign one.
        let _ = provenance::claim(&paths.root);
        rath_workspace::durable::sync_dir(&paths.root).map_err(at)?;
        Self::open(&paths.root)
    }

    /// Opens the store at `root`.
    pub fn open(root: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::open_as(root, "a program")?))
    }

    /// Opens the store at `root`. Errors in other processes name `program` as the holder of the sessions that it has
    /// leased. Unlike [`open`](Self::open), returns the type itself, which has more than the trait:
    /// [`verify`](Self::verify), [`health`](Self::health), [`search`](Self::search), [`collect`](Self::collect) and
    /// [`destroy`](Self::destroy).
    pub fn open_as(root: impl AsRef<Path>, program: &str) -> Result<Self> {
        let paths = Paths::of(root.as_ref());
        match fs::metadata(&paths.database) {
            Ok(meta) if meta.is_file() => {}
            // Without permission it is unknown whether this is a store.
            Err(error) if error.kind() == PermissionDenied => {
                return Err(Error::machine(format!("opening {}", paths.root.display()), error));
            }
            _ => return Err(Error::NotAStore(paths.root.display().to_string())),
        }
        let readers = Arc::new(Readers::new(paths.database.clone())?);
        let signals = Arc::new(ChangeSignals::new(&paths.root, &paths.database));
        Ok(Self {
            paths,
            program: program.into(),
            readers,
            prefetcher: Prefetcher::default(),
            deferred: Arc::default(),
            suspect_wal: SuspectWal::default(),
            signals,
            known: Known::default(),
            writer: OnceLock::new(),
            is_ours: OnceLock::new(),
            starting: Mutex::new(()),
            on_upgrade: None,
        })
    }

    /// Calls `notify` when the first write upgrades a store of an older format to the current one.
    #[must_use]
    pub fn on_upgrade(mut self, notify: impl Fn(&FormatUpgrade) + Send + Sync + 'static) -> Self {
        self.on_upgrade = Some(Box::new(notify));
        self
    }

    /// Whether `root` has a store.
    pub fn exists(root: impl AsRef<Path>) -> bool {
        Paths::of(root.as_ref()).database.is_file()
    }

    /// Runs `work` on a read connection.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.with(work)
    }

    /// Opens a write connection. Upgrades a store of an older format first.
    fn connect_to_write(&self) -> Result<Connection> {
        let db = schema::connect(&self.paths.database, Access::Write)?;
        if let (Some(upgraded), Some(notify)) = (upgrade::upgrade(&db, &self.paths.database)?, &self.on_upgrade) {
            notify(&upgraded);
        }
        // The process that created the store may not have synced its directory. Some file systems do not support that
        // sync.
        match rath_workspace::durable::sync_dir(&self.paths.root) {
            Err(error) if !matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported) => {
                return Err(Error::machine(format!("syncing {}", self.paths.root.display()), error));
            }
            _ => {}
        }
        if schema::has_wal(&self.paths.database) {
            // The process that wrote the WAL may have died after a failed sync.
            self.suspect_wal.check_wal(schema::rewrite_wal(&db))?;
        }
        self.suspect_wal.repair(&db)?;
        Ok(db)
    }

    /// The writer. It starts when it is first needed, so a process that only reads takes no lock.
    fn writer(&self) -> Result<&Writer> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let shared = Shared {
            deferred: self.deferred.clone(),
            suspect_wal: self.suspect_wal.clone(),
            signals: self.signals.clone(),
        };
        let writer = Writer::start(self.connect_to_write()?, self.paths.clone(), shared, &self.program)?;
        Ok(self.writer.get_or_init(|| writer))
    }

    /// Reads something small that is read between any two writes, if possible on the write connection: see
    /// [`Writer::read`].
    fn read_small<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Result<T> {
        let read = self.writer.get().and_then(|writer| writer.read(&work));
        read.unwrap_or_else(|| self.read(work))
    }

    /// Whether a blob is stored or queued. A blob whose pack is missing or too short is not stored, although the index
    /// lists it.
    fn has_blob(&self, digest: &Digest) -> Result<bool> {
        if self.deferred.contains(digest) {
            return Ok(true);
        }
        let is_there = |place: &blobs::BlobPlace| place.is_there(&self.paths.packs);
        match self.read_small(|db| blobs::place(db, digest))? {
            None => Ok(false),
            Some(place) if is_there(&place) => Ok(true),
            // The pack may have been rewritten since the index was read.
            Some(_) => Ok(self.read(|db| blobs::place(db, digest))?.as_ref().is_some_and(is_there)),
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T>>) -> WriteRequest,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        if self.writer()?.send(job(reply)) {
            // The request was executed without a wait, so let other tasks of this thread run.
            yield_once().await;
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(stopped()),
        }
    }
}

impl Store for Embedded {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        // Long batches are encoded on other threads from now on, while the writer executes earlier requests.
        let parts = batch.parts.into_iter().map(Prepared::new).collect();
        Box::pin(self.write(|reply| WriteRequest::Commit { parts, consumed: batch.consumed_posts, reply }))
    }

    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>> {
        Box::pin(async move {
            match lookup {
                Lookup::At(point) => self.read(|db| Ok(read::at(db, point)?.into_iter().collect())),
                Lookup::Id(id) => self.by_prefix(&id.to_string()).await,
                Lookup::Prefix(prefix) => self.by_prefix(&prefix).await,
            }
        })
    }

    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.prefetcher.page(&self.readers, scan) })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<SessionInfo>>> {
        Box::pin(async move {
            let waiting = if query.waiting { Some(self.waiting_sessions()?) } else { None };
            self.read(|db| rows::select(db, &self.paths.holders, &query, waiting.as_ref()))
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<FencingToken>> {
        Box::pin(self.write(move |reply| WriteRequest::Lease { session, reply }))
    }

    fn release(&self, session: SessionId, fence: FencingToken) {
        if let Some(writer) = self.writer.get() {
            writer.send(WriteRequest::Release { session, fence });
        }
    }

    fn provenance(&self) -> Result<Provenance> {
        if self.is_ours.get().is_some() {
            return Ok(Provenance::Here);
        }
        let found = provenance::of(&self.paths.root, &self.paths.database)?;
        if found == Provenance::Here {
            let _ = self.is_ours.set(());
        }
        Ok(found)
    }

    fn claim(&self) -> Result<()> {
        provenance::claim(&self.paths.root)
    }

    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(|reply| WriteRequest::Post { post: Box::new(post), reply }))
    }

    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        let waiting = self.read_small(|db| inbox::waiting(db, session));
        Box::pin(async move { waiting })
    }

    fn project(&self, projection: Arc<dyn Projection>, read: ReadFn) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.project_here(&projection, read) })
    }

    fn watch(&self, change: WatchTopic) -> Watcher {
        self.signals.watch(change)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let plan = ErasePlan { records, ..ErasePlan::new() };
            self.destroy(&self.lock_for_erase()?, &plan, &mut |_| {}).map(drop)
        })
    }
}

impl Embedded {
    /// The sessions with an open question or a queued post.
    fn waiting_sessions(&self) -> Result<HashSet<SessionId>> {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let found = asked.clone();
        let questions: Arc<dyn Projection> = Arc::new(OpenQuestions);
        self.project_here(
            &questions,
            Box::new(move |storage| {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = OpenQuestions::sessions(storage)?;
                Ok(())
            }),
        )?;
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        self.read(|db| {
            let mut waiting = inbox::sessions_with_posts(db)?;
            for session in asked {
                if !waiting.contains(&session) && state_fold::has_open_questions(db, session)? {
                    waiting.insert(session);
                }
            }
            Ok(waiting)
        })
    }

    /// Compresses the blobs that are not stored yet, on this thread, and sends them to the writer, which stores the
    /// deferred blobs too. Callers on several threads compress in parallel.
    fn send_blobs(&self, blobs: &[Blob]) -> Result<Option<oneshot::Receiver<Result<()>>>> {
        let mut compressed = Vec::with_capacity(blobs.len());
        for blob in blobs {
            if !self.has_blob(&blob.reference.digest)? {
                compressed
                    .push(CompressedBlob::new(blob).map_err(|error| Error::machine("compressing a blob", error))?);
            }
        }
        if compressed.is_empty() && self.deferred.is_empty() {
            return Ok(None);
        }
        let (reply, answer) = oneshot::channel();
        self.writer()?.send(WriteRequest::Blobs { blobs: compressed, reply });
        Ok(Some(answer))
    }
}

impl Blobs for Embedded {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        let sent = self.send_blobs(&blobs);
        Box::pin(async move {
            match sent? {
                Some(answer) => answer.await.unwrap_or_else(|_| Err(stopped())),
                None => Ok(()),
            }
        })
    }

    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // Starting the writer returns an error now if the store is read-only. The commit skips blobs that are
            // stored already.
            self.writer()?;
            match self.deferred.push(blobs) {
                Ok(()) => Ok(()),
                Err(too_many) => self.blob_put(too_many).await,
            }
        })
    }

    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        let has_blob = self.has_blob(&digest);
        Box::pin(async move { has_blob })
    }

    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        Box::pin(async move {
            match self.deferred.get(&digest) {
                Some(bytes) => Ok(Some(bytes)),
                None => self.read(|db| blobs::get(db, &self.paths.packs, &digest)),
            }
        })
    }

    fn blob_join(&self, whole: BlobRef, pieces: Vec<Chunk>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for piece in &pieces {
                if !self.has_blob(&piece.digest)? {
                    return Err(Error::NotFound(format!("blob {}", piece.digest)));
                }
            }
            let blobs = vec![CompressedBlob::joined(&whole, &pieces)];
            self.write(|reply| WriteRequest::Blobs { blobs, reply }).await
        })
    }

    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>> {
        Box::pin(async move { self.read(|db| blobs::pieces(db, &self.paths.packs, &digest)) })
    }

    fn gc_guard(&self) -> Result<GcGuard> {
        garbage::lock_against_gc(&self.paths.root).map(GcGuard::new)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.paths.root)
    }
}

/// Yields to the executor once.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| match std::mem::replace(&mut yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn stopped() -> Error {
    Error::machine("writing to the store", "the writer thread has stopped; open the store again")
}
