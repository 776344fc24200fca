//! A store that dies: from its n-th commit on nothing gets through, as if the process had been killed there. Or it kills
//! the process in fact.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::store::{
    Batch, Blobs, BoxFuture, Change, Error, Fence, GcGuard, Lookup, Page, Piece, Post, Projection, Query, Reading,
    Result, Row, Scan, Watcher,
};
use rath_core::{Blob, BlobRef, Digest, Record, Reference, SessionId, Store};

/// Which side of its last commit the store dies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing of the commit is stored.
    Before,
    /// All of it is stored, and nobody was told.
    After,
}

/// A store in front of another one, that dies at a commit.
pub struct Mortal {
    inner: Arc<dyn Store>,
    left: AtomicU64,
    moment: Moment,
    dead: AtomicBool,
    kills_process: bool,
    commits: AtomicU64,
    reads: AtomicU64,
    /// Blobs that wait for a commit: they die with the process.
    soon: Mutex<Vec<Blob>>,
}

impl Mortal {
    /// Lets `commits` through, then dies at the next one.
    pub fn new(inner: Arc<dyn Store>, commits: u64, moment: Moment) -> Arc<Self> {
        Arc::new(Self::of(inner, commits, moment, false))
    }

    /// The same, but at that commit this process is sent SIGKILL.
    pub fn killing_the_process(inner: Arc<dyn Store>, commits: u64, moment: Moment) -> Arc<Self> {
        Arc::new(Self::of(inner, commits, moment, true))
    }

    fn of(inner: Arc<dyn Store>, commits: u64, moment: Moment, kills_process: bool) -> Self {
        let (left, dead) = (AtomicU64::new(commits), AtomicBool::new(false));
        let (commits, reads, soon) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        Self { inner, left, moment, dead, kills_process, commits, reads, soon }
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// How many commits got through.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// How often records, sessions and blobs were read.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    fn count_read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        self.alive()
    }

    /// Dies now.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Brings what waits along.
    async fn bring(&self) -> Result<()> {
        let waiting = self.soon.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = waiting.len();
        self.inner.blob_put_soon(waiting).await?;
        self.soon.lock().unwrap_or_else(PoisonError::into_inner).drain(..count);
        Ok(())
    }

    fn waiting(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        let waiting = self.soon.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().find(|blob| blob.reference.digest == *digest).map(|blob| blob.bytes.clone())
    }

    fn alive(&self) -> Result<()> {
        match self.is_dead() {
            true => Err(Error::machine("using the store", "the process is dead")),
            false => Ok(()),
        }
    }
}

impl Store for Mortal {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            let left = self.left.load(Ordering::Acquire);
            if left > 0 {
                self.left.store(left - 1, Ordering::Release);
                self.commits.fetch_add(1, Ordering::AcqRel);
                self.bring().await?;
                return self.inner.commit(batch).await;
            }
            if !self.kills_process {
                self.kill();
            }
            if self.moment == Moment::After {
                self.bring().await?;
                self.inner.commit(batch).await?;
            }
            if self.kills_process {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
                // The signal arrives on the way back from the call at the latest.
                std::process::abort();
            }
            self.alive()
        })
    }

    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>> {
        Box::pin(async move {
            self.count_read()?;
            self.inner.get(lookup).await
        })
    }

    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            self.count_read()?;
            self.inner.scan(scan).await
        })
    }

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>> {
        Box::pin(async move {
            self.count_read()?;
            self.inner.sessions(query).await
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.lease(session).await
        })
    }

    fn release(&self, session: SessionId, fence: Fence) {
        // A process that dies holds nothing any more.
        self.inner.release(session, fence);
    }

    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.post(post).await
        })
    }

    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.posts(session).await
        })
    }

    fn project(&self, projection: Arc<dyn Projection>, read: Reading) -> BoxFuture<'_, Result<()>> {
        self.inner.project(projection, read)
    }

    fn watch(&self, change: Change) -> Watcher {
        self.inner.watch(change)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.erase(records).await
        })
    }
}

impl Blobs for Mortal {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.bring().await?;
            self.inner.blob_put(blobs).await
        })
    }

    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.soon.lock().unwrap_or_else(PoisonError::into_inner).extend(blobs);
            Ok(())
        })
    }

    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.alive()?;
            match self.waiting(&digest) {
                Some(_) => Ok(true),
                None => self.inner.blob_has(digest).await,
            }
        })
    }

    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        Box::pin(async move {
            self.count_read()?;
            match self.waiting(&digest) {
                Some(bytes) => Ok(Some(bytes)),
                None => self.inner.blob_get(digest).await,
            }
        })
    }

    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.bring().await?;
            self.inner.blob_join(whole, pieces).await
        })
    }

    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.blob_pieces(digest).await
        })
    }

    fn gc_guard(&self) -> Result<GcGuard> {
        self.alive()?;
        self.inner.gc_guard()
    }

    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }
}
