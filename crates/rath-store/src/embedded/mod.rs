//! One directory: `rath.db` (SQLite), `packs/` (blobs), `holders/` (who writes).

mod commit;
mod health;
mod holder;
mod ids;
mod read;
mod rows;
mod schema;
mod verify;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rath_core::store::{Batch, BoxFuture, Error, Fence, Lookup, Of, Page, Query, Result, Row, Scan, Store};
use rath_core::{Blob, Digest, Record, Reference, SessionId};
use rusqlite::Connection;

pub use health::{Health, PackHealth};
pub use schema::FORMAT;

use schema::Access;
use writer::{Job, Writer};

/// The embedded store.
pub struct Embedded {
    paths: Paths,
    program: String,
    readers: Mutex<Vec<Connection>>,
    writer: OnceLock<Writer>,
    /// Taken while the writer is started.
    starting: Mutex<()>,
}

/// Where the parts of a store are.
#[derive(Clone, Debug)]
struct Paths {
    root: PathBuf,
    database: PathBuf,
    packs: PathBuf,
    holders: PathBuf,
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
        fs::create_dir_all(&paths.root).map_err(at)?;
        // The database gets its name when it is whole, and only if nobody was faster: a crash leaves no half store,
        // and of two that begin at once one succeeds.
        let unfinished = paths.root.join(format!("rath.db.{}.new", rath_core::fresh_name()));
        let made = schema::create(&unfinished).and_then(|()| fs::hard_link(&unfinished, &paths.database).map_err(at));
        let _ = fs::remove_file(&unfinished);
        made?;
        crate::packs::sync_dir(&paths.root).map_err(at)?;
        if let Some(parent) = paths.root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            crate::packs::sync_dir(parent).map_err(at)?;
        }
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
        if !paths.database.is_file() {
            return Err(Error::NotAStore(paths.root.display().to_string()));
        }
        let first = schema::connect(&paths.database, Access::Read)?;
        Ok(Self {
            paths,
            program: program.into(),
            readers: Mutex::new(vec![first]),
            writer: OnceLock::new(),
            starting: Mutex::new(()),
        })
    }

    /// Whether there is a store at `root`.
    pub fn exists(root: impl AsRef<Path>) -> bool {
        Paths::of(root.as_ref()).database.is_file()
    }

    /// Runs `work` on a connection that only reads. A page of records is the most that is read at once.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        let db = match pooled {
            Some(db) => db,
            None => schema::connect(&self.paths.database, Access::Read)?,
        };
        let answer = work(&db);
        idle().push(db);
        answer
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
        let writer = Writer::start(self.paths.clone(), &self.program)?;
        Ok(self.writer.get_or_init(|| writer))
    }

    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(futures_channel::oneshot::Sender<Result<T>>) -> Job,
    ) -> Result<T> {
        let (reply, answer) = futures_channel::oneshot::channel();
        self.writer()?.send(job(reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(Error::machine("writing", "the writer stopped; open the store again")),
        }
    }
}

impl Store for Embedded {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(|reply| Job::Commit { batch, reply }))
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
        Box::pin(async move {
            self.read(|db| match scan.of {
                Of::Store { after } => read::store_page(db, after, &scan),
                Of::Session { session, from, to } => read::session_page(db, session, from, to, &scan),
            })
        })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>> {
        Box::pin(async move { self.read(|db| rows::select(db, &self.paths.holders, &query)) })
    }

    fn blob_put(&self, blob: Blob) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(|reply| Job::Blob { blob, reply }))
    }

    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        Box::pin(async move { self.read(|db| read::blob(db, &self.paths.packs, &digest)) })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>> {
        Box::pin(self.write(move |reply| Job::Lease { session, reply }))
    }

    fn release(&self, session: SessionId, fence: Fence) {
        if let Some(writer) = self.writer.get() {
            writer.send(Job::Release { session, fence });
        }
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(|reply| Job::Erase { records, reply }))
    }
}
