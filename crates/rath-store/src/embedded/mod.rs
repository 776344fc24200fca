//! One directory: `rath.db` (SQLite; little blobs too), `packs/` (blobs), `holders/` (who writes), `projections/` (what is folded
//! from records; the search index is `search.db`), `watch/` (what tells other processes of commits and posts).

mod ahead;
mod anew;
pub(crate) mod blobs;
mod commit;
mod doubt;
mod erase;
mod folded;
mod garbage;
mod health;
mod holder;
mod ids;
mod inbox;
mod job;
pub(crate) mod lines;
mod log;
mod pace;
mod provenance;
mod raise;
pub(crate) mod read;
mod readers;
mod riders;
pub(crate) mod rows;
mod runs;
pub(crate) mod schema;
mod seat;
mod shape;
mod signal;
mod soon;
mod take;
mod verify;
mod writer;

use std::collections::HashSet;
use std::fs;
use std::future::poll_fn;
use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;

use futures_channel::oneshot;
use rath_core::store::{
    Batch, Blobs, BoxFuture, Change, Error, Fence, GcGuard, Lookup, OpenQuestions, Page, Piece, Post, Projection,
    Provenance, Query, Reading, Result, Row, Scan, Store, Watcher,
};
use rath_core::{Blob, BlobRef, Digest, Record, Reference, SessionId};
use rusqlite::Connection;

pub use erase::{Destroyed, Doomed, Kept, Quiet};
pub use garbage::Garbage;
pub use health::{Health, PackHealth};
pub use raise::{Backup, Raised};
pub use schema::FORMAT;

use crate::packing::Prepared;
use crate::packs::Squeezed;
use crate::projection::Known;
use ahead::Ahead;
use doubt::Doubt;
use job::Job;
use readers::Readers;
use schema::Access;
use signal::Signals;
use soon::Soon;
use writer::{Shared, Writer};

/// The embedded store.
pub struct Embedded {
    pub(crate) paths: Paths,
    program: String,
    readers: Arc<Readers>,
    ahead: Ahead,
    soon: Arc<Soon>,
    doubt: Doubt,
    signals: Arc<Signals>,
    pub(crate) known: Known,
    writer: OnceLock<Writer>,
    /// Set once the store is known to be written by this user of this machine.
    is_ours: OnceLock<()>,
    /// Taken while the writer is started.
    starting: Mutex<()>,
    /// Told when the store was brought to the current format.
    tell: Option<Tell>,
}

type Tell = Box<dyn Fn(&Raised) + Send + Sync>;

/// Where the parts of a store are.
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
    /// Makes a new store at `root`. Fails if there is one.
    pub fn create(root: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
        let paths = Paths::of(root.as_ref());
        let at = |error| Error::machine(format!("creating {}", paths.root.display()), error);
        if paths.database.exists() {
            return Err(at(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        // The way to the database lasts before there is one: who finds it may promise something at once.
        crate::packs::make_dirs(&paths.root).map_err(at)?;
        // The database gets its name when it is whole, and only if nobody was faster: a crash leaves no half store,
        // and of two that begin at once one succeeds.
        let unfinished = paths.root.join(format!("rath.db.{}.new", rath_core::fresh_name()));
        let made = schema::create(&unfinished).and_then(|()| fs::hard_link(&unfinished, &paths.database).map_err(at));
        for leftover in ["new", "new-wal", "new-shm"] {
            let _ = fs::remove_file(unfinished.with_extension(leftover));
        }
        made?;
        // Nothing depends on it yet: a store without it is of nobody else.
        let _ = provenance::claim(&paths.root);
        rath_workspace::durable::sync_dir(&paths.root).map_err(at)?;
        Self::open(&paths.root)
    }

    /// Opens the store at `root`.
    pub fn open(root: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::open_here(root, "a program")?))
    }

    /// Opens the store at `root` for a program whose name others are told while it holds a session. The value also
    /// offers what the trait does not: [`verify`](Self::verify) and [`health`](Self::health).
    pub fn open_here(root: impl AsRef<Path>, program: &str) -> Result<Self> {
        let paths = Paths::of(root.as_ref());
        match fs::metadata(&paths.database) {
            Ok(meta) if meta.is_file() => {}
            // Who may not look cannot say what it is.
            Err(error) if error.kind() == PermissionDenied => {
                return Err(Error::machine(format!("opening {}", paths.root.display()), error));
            }
            _ => return Err(Error::NotAStore(paths.root.display().to_string())),
        }
        let readers = Arc::new(Readers::new(paths.database.clone())?);
        let signals = Arc::new(Signals::new(&paths.root, &paths.database));
        Ok(Self {
            paths,
            program: program.into(),
            readers,
            ahead: Ahead::default(),
            soon: Arc::default(),
            doubt: Doubt::default(),
            signals,
            known: Known::default(),
            writer: OnceLock::new(),
            is_ours: OnceLock::new(),
            starting: Mutex::new(()),
            tell: None,
        })
    }

    /// Tells somebody when a store of an older format is brought to the current one: at the first write.
    #[must_use]
    pub fn telling(mut self, tell: impl Fn(&Raised) + Send + Sync + 'static) -> Self {
        self.tell = Some(Box::new(tell));
        self
    }

    /// Whether there is a store at `root`.
    pub fn exists(root: impl AsRef<Path>) -> bool {
        Paths::of(root.as_ref()).database.is_file()
    }

    /// Runs `work` on a connection that only reads.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.with(work)
    }

    /// A connection that writes. A store of an older format becomes one of the current format first.
    fn connect_to_write(&self) -> Result<Connection> {
        let db = schema::connect(&self.paths.database, Access::Write)?;
        if let (Some(raised), Some(tell)) = (raise::raise(&db, &self.paths.database)?, &self.tell) {
            tell(&raised);
        }
        // Whoever made the store may not have come to say that its name lasts. Some file systems do not take it.
        match rath_workspace::durable::sync_dir(&self.paths.root) {
            Err(error) if !matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported) => {
                return Err(Error::machine(format!("syncing {}", self.paths.root.display()), error));
            }
            _ => {}
        }
        if schema::has_log(&self.paths.database) {
            // Whoever wrote it may have died after a sync that failed.
            self.doubt.of_log(schema::write_log_again(&db))?;
        }
        self.doubt.settle(&db)?;
        Ok(db)
    }

    /// The writer, started when it is first needed: who only reads takes no lock.
    fn writer(&self) -> Result<&Writer> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let shared = Shared { soon: self.soon.clone(), doubt: self.doubt.clone(), signals: self.signals.clone() };
        let writer = Writer::start(self.connect_to_write()?, self.paths.clone(), shared, &self.program)?;
        Ok(self.writer.get_or_init(|| writer))
    }

    /// Reads something small that is asked between any two writes: see [`Writer::read`].
    fn read_near<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Result<T> {
        let near = self.writer.get().and_then(|writer| writer.read(&work));
        near.unwrap_or_else(|| self.read(work))
    }

    /// Whether a blob is there, or soon will be. A pack that was cut or lost does not hold it, whatever the index says.
    fn holds(&self, digest: &Digest) -> Result<bool> {
        if self.soon.has(digest) {
            return Ok(true);
        }
        let is_there = |place: &blobs::Place| place.is_there(&self.paths.packs);
        match self.read_near(|db| blobs::place(db, digest))? {
            None => Ok(false),
            Some(place) if is_there(&place) => Ok(true),
            // Its pack may have been written anew meanwhile.
            Some(_) => Ok(self.read(|db| blobs::place(db, digest))?.as_ref().is_some_and(is_there)),
        }
    }

    async fn write<T: Send + 'static>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        if self.writer()?.send(job(reply)) {
            // Whoever shares the thread is to have a turn all the same.
            give_way().await;
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(stopped()),
        }
    }
}

impl Store for Embedded {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        // What is long is laid out from now on, while the writer may have other things to do.
        let parts = batch.parts.into_iter().map(Prepared::new).collect();
        Box::pin(self.write(|reply| Job::Commit { parts, taken: batch.taken, reply }))
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
        Box::pin(async move { self.ahead.page(&self.readers, scan) })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>> {
        Box::pin(async move {
            let waiting = if query.waiting { Some(self.waiting_sessions()?) } else { None };
            self.read(|db| rows::select(db, &self.paths.holders, &query, waiting.as_ref()))
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>> {
        Box::pin(self.write(move |reply| Job::Lease { session, reply }))
    }

    fn release(&self, session: SessionId, fence: Fence) {
        if let Some(writer) = self.writer.get() {
            writer.send(Job::Release { session, fence });
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
        Box::pin(self.write(|reply| Job::Post { post: Box::new(post), reply }))
    }

    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        let waiting = self.read_near(|db| inbox::waiting(db, session));
        Box::pin(async move { waiting })
    }

    fn project(&self, projection: Arc<dyn Projection>, read: Reading) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.project_here(&projection, read) })
    }

    fn watch(&self, change: Change) -> Watcher {
        self.signals.watch(change)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let doomed = Doomed { records, ..Doomed::new() };
            self.destroy(&self.quiet()?, &doomed, &mut |_| {}).map(drop)
        })
    }
}

impl Embedded {
    /// The sessions in which a question is open or a post waits.
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
                if !waiting.contains(&session) && folded::asks(db, session)? {
                    waiting.insert(session);
                }
            }
            Ok(waiting)
        })
    }

    /// Squeezes what the store does not hold, here and now, and sends it to the writer, who brings what waits too: who
    /// puts from several threads squeezes on all of them.
    fn send_blobs(&self, blobs: &[Blob]) -> Result<Option<oneshot::Receiver<Result<()>>>> {
        let mut squeezed = Vec::with_capacity(blobs.len());
        for blob in blobs {
            if !self.holds(&blob.reference.digest)? {
                squeezed.push(Squeezed::new(blob).map_err(|error| Error::machine("squeezing a blob", error))?);
            }
        }
        if squeezed.is_empty() && self.soon.is_empty() {
            return Ok(None);
        }
        let (reply, answer) = oneshot::channel();
        self.writer()?.send(Job::Blobs { blobs: squeezed, reply });
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
            // Where nothing can be written, that is said now. What the store has is found out by the commit.
            self.writer()?;
            match self.soon.wait(blobs) {
                Ok(()) => Ok(()),
                Err(too_many) => self.blob_put(too_many).await,
            }
        })
    }

    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        let holds = self.holds(&digest);
        Box::pin(async move { holds })
    }

    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        Box::pin(async move {
            match self.soon.get(&digest) {
                Some(bytes) => Ok(Some(bytes)),
                None => self.read(|db| blobs::get(db, &self.paths.packs, &digest)),
            }
        })
    }

    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for piece in &pieces {
                if !self.holds(&piece.digest)? {
                    return Err(Error::NotFound(format!("blob {}", piece.digest)));
                }
            }
            let blobs = vec![Squeezed::joined(&whole, &pieces)];
            self.write(|reply| Job::Blobs { blobs, reply }).await
        })
    }

    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>> {
        Box::pin(async move { self.read(|db| blobs::pieces(db, &self.paths.packs, &digest)) })
    }

    fn gc_guard(&self) -> Result<GcGuard> {
        garbage::keep_away(&self.paths.root).map(GcGuard::holding)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.paths.root)
    }
}

/// Lets others have the thread once.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| match std::mem::replace(&mut gave_way, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn stopped() -> Error {
    Error::machine("writing", "the writer stopped; open the store again")
}
