//! A store that fails from its n-th commit on, as if the process had been killed there. It can also kill the process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::store::{
    Batch, Blobs, BoxFuture, Chunk, Error, FencingToken, GcGuard, Lookup, Page, Post, Projection, Query, ReadFn,
    Result, Scan, SessionInfo, WatchTopic, Watcher,
};
use rath_core::{Blob, BlobRef, Digest, Record, Reference, SessionId, Store};

/// When the store crashes, relative to its last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Before the commit: nothing of it is stored.
    Before,
    /// After the commit: all of it is stored, but the caller gets an error.
    After,
}

/// A wrapper around a store that crashes at a commit.
pub struct CrashingStore {
    inner: Arc<dyn Store>,
    left: AtomicU64,
    moment: CrashPoint,
    dead: AtomicBool,
    kills_process: bool,
    commits: AtomicU64,
    reads: AtomicU64,
    /// Blobs that are queued for the next commit. They are lost when the store crashes.
    queued: Mutex<Vec<Blob>>,
}

impl CrashingStore {
    /// Crashes at the commit after the first `commits` ones.
    pub fn new(inner: Arc<dyn Store>, commits: u64, moment: CrashPoint) -> Arc<Self> {
        Arc::new(Self::of(inner, commits, moment, false))
    }

    /// Sends SIGKILL to this process at the commit after the first `commits` ones.
    pub fn killing_the_process(inner: Arc<dyn Store>, commits: u64, moment: CrashPoint) -> Arc<Self> {
        Arc::new(Self::of(inner, commits, moment, true))
    }

    fn of(inner: Arc<dyn Store>, commits: u64, moment: CrashPoint, kills_process: bool) -> Self {
        let (left, dead) = (AtomicU64::new(commits), AtomicBool::new(false));
        let (commits, reads, queued) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        Self { inner, left, moment, dead, kills_process, commits, reads, queued }
    }

    /// Whether the store has crashed.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// The number of successful commits.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// The number of reads of records, sessions and blobs.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    fn count_read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        self.alive()
    }

    /// Crashes now.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Passes the queued blobs to the inner store.
    async fn flush_queue(&self) -> Result<()> {
        let waiting = self.queued.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = waiting.len();
        self.inner.blob_put_soon(waiting).await?;
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).drain(..count);
        Ok(())
    }

    fn waiting(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        let waiting = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().find(|blob| blob.reference.digest == *digest).map(|blob| blob.bytes.clone())
    }

    fn alive(&self) -> Result<()> {
        match self.is_dead() {
            true => Err(Error::machine("using the store", "the process is dead")),
            false => Ok(()),
        }
    }
}

impl Store for CrashingStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            let left = self.left.load(Ordering::Acquire);
            if left > 0 {
                self.left.store(left - 1, Ordering::Release);
                self.commits.fetch_add(1, Ordering::AcqRel);
                self.flush_queue().await?;
                return self.inner.commit(batch).await;
            }
            if !self.kills_process {
                self.kill();
            }
            if self.moment == CrashPoint::After {
                self.flush_queue().await?;
                self.inner.commit(batch).await?;
            }
            if self.kills_process {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
                // The signal is delivered at the latest when the call returns.
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

    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<SessionInfo>>> {
        Box::pin(async move {
            self.count_read()?;
            self.inner.sessions(query).await
        })
    }

    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<FencingToken>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.lease(session).await
        })
    }

    fn release(&self, session: SessionId, fence: FencingToken) {
        // Also after a crash: a process that ended has no leases.
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

    fn project(&self, projection: Arc<dyn Projection>, read: ReadFn) -> BoxFuture<'_, Result<()>> {
        self.inner.project(projection, read)
    }

    fn watch(&self, topic: WatchTopic) -> Watcher {
        self.inner.watch(topic)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.erase(records).await
        })
    }
}

impl Blobs for CrashingStore {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.flush_queue().await?;
            self.inner.blob_put(blobs).await
        })
    }

    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.queued.lock().unwrap_or_else(PoisonError::into_inner).extend(blobs);
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

    fn blob_join(&self, whole: BlobRef, chunks: Vec<Chunk>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.alive()?;
            self.flush_queue().await?;
            self.inner.blob_join(whole, chunks).await
        })
    }

    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>> {
        Box::pin(async move {
            self.alive()?;
            self.inner.blob_chunks(digest).await
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
