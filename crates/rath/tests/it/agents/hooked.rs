//! A store wrapper with a hook for commits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rath::record::BlobRef;
use rath::store::{
    Batch, Blobs, BoxFuture, Chunk, FencingToken, GcGuard, Lookup, Page, Post, Projection, Query, ReadFn, Result, Scan,
    SessionInfo, WatchTopic, Watcher,
};
use rath::{Blob, Digest, Record, Reference, SessionId, Store};

type Hook = dyn Fn(&Batch) -> Option<Post> + Send + Sync;

/// A store that calls a hook with each commit. Posts of the hook are delivered after the commit.
pub(crate) struct Hooked {
    inner: Arc<dyn Store>,
    hook: Box<Hook>,
    /// The number of times that an inbox was read.
    inbox_reads: Arc<AtomicU64>,
}

impl Hooked {
    /// Calls `hook` with the commits of `inner`.
    #[allow(clippy::new_ret_no_self, reason = "a store is always used behind its trait")]
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        hook: impl Fn(&Batch) -> Option<Post> + Send + Sync + 'static,
    ) -> Arc<dyn Store> {
        Arc::new(Self { inner, hook: Box::new(hook), inbox_reads: Arc::default() })
    }

    /// Counts how often an inbox is read.
    pub(crate) fn counting(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<AtomicU64>) {
        let inbox_reads = Arc::<AtomicU64>::default();
        (Arc::new(Self { inner, hook: Box::new(|_| None), inbox_reads: inbox_reads.clone() }), inbox_reads)
    }
}

impl Store for Hooked {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let post = (self.hook)(&batch);
            self.inner.commit(batch).await?;
            match post {
                Some(post) => self.inner.post(post).await,
                None => Ok(()),
            }
        })
    }
    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>> {
        self.inner.get(lookup)
    }
    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>> {
        self.inner.scan(scan)
    }
    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<SessionInfo>>> {
        self.inner.sessions(query)
    }
    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<FencingToken>> {
        self.inner.lease(session)
    }
    fn release(&self, session: SessionId, fence: FencingToken) {
        self.inner.release(session, fence);
    }
    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        self.inner.post(post)
    }
    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        self.inbox_reads.fetch_add(1, Ordering::AcqRel);
        self.inner.posts(session)
    }
    fn project(&self, projection: Arc<dyn Projection>, read: ReadFn) -> BoxFuture<'_, Result<()>> {
        self.inner.project(projection, read)
    }

    fn watch(&self, change: WatchTopic) -> Watcher {
        self.inner.watch(change)
    }

    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>> {
        self.inner.erase(records)
    }
}

impl Blobs for Hooked {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        self.inner.blob_put(blobs)
    }
    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        self.inner.blob_put_soon(blobs)
    }
    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        self.inner.blob_has(digest)
    }
    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        self.inner.blob_get(digest)
    }
    fn blob_join(&self, whole: BlobRef, pieces: Vec<Chunk>) -> BoxFuture<'_, Result<()>> {
        self.inner.blob_join(whole, pieces)
    }
    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>> {
        self.inner.blob_chunks(digest)
    }
    fn gc_guard(&self) -> Result<GcGuard> {
        self.inner.gc_guard()
    }
    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }
}
