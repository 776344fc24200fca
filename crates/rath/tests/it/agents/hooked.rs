//! A store in front of another one, with somebody who watches its commits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rath::store::{
    Batch, Blobs, BoxFuture, Change, Fence, GcGuard, Lookup, Page, Piece, Post, Projection, Query, Reading, Result,
    Row, Scan, Watcher,
};
use rath::{Blob, BlobRef, Digest, Record, Reference, SessionId, Store};

type Hook = dyn Fn(&Batch) -> Option<Post> + Send + Sync;

/// A store that shows each commit to somebody. What they post comes when the commit is through.
pub(crate) struct Hooked {
    inner: Arc<dyn Store>,
    hook: Box<Hook>,
    /// How often an inbox was read.
    inbox_reads: Arc<AtomicU64>,
}

impl Hooked {
    /// Shows the commits of `inner` to `hook`.
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
    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>> {
        self.inner.sessions(query)
    }
    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>> {
        self.inner.lease(session)
    }
    fn release(&self, session: SessionId, fence: Fence) {
        self.inner.release(session, fence);
    }
    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>> {
        self.inner.post(post)
    }
    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>> {
        self.inbox_reads.fetch_add(1, Ordering::AcqRel);
        self.inner.posts(session)
    }
    fn project(&self, projection: Arc<dyn Projection>, read: Reading) -> BoxFuture<'_, Result<()>> {
        self.inner.project(projection, read)
    }

    fn watch(&self, change: Change) -> Watcher {
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
    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>> {
        self.inner.blob_join(whole, pieces)
    }
    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>> {
        self.inner.blob_pieces(digest)
    }
    fn gc_guard(&self) -> Result<GcGuard> {
        self.inner.gc_guard()
    }
    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }
}
