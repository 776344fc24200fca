//! The lease on a session, shared between the session and forks that may publish its records together with their own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::id::SessionId;
use crate::store::{FIRST_FENCING_TOKEN, FencingToken, Store};

/// The state of a lease, shared by a session and its forks.
pub(super) struct LeaseState {
    pub(super) id: SessionId,
    pub(super) fence: FencingToken,
    /// The number of published records of the session.
    pub(super) published: AtomicU64,
    /// Whether a commit with records of this session was ever sent. It may succeed even if the caller stopped waiting.
    pub(super) sent: AtomicBool,
    /// Whether the `Session` value still exists.
    pub(super) alive: AtomicBool,
    store: Arc<dyn Store>,
}

/// The session's own handle. Dropping it releases the lease.
pub(super) struct Lease(Arc<LeaseState>);

impl Lease {
    /// The lease of a session that the store does not have yet.
    pub(super) fn fresh(store: Arc<dyn Store>, id: SessionId) -> Self {
        Self::granted(store, id, FIRST_FENCING_TOKEN)
    }

    /// A lease that the store granted.
    pub(super) fn granted(store: Arc<dyn Store>, id: SessionId, fence: FencingToken) -> Self {
        let (published, sent, alive) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(true));
        Self(Arc::new(LeaseState { id, fence, published, sent, alive, store }))
    }

    /// A handle for forks of the session.
    pub(super) fn share(&self) -> Arc<LeaseState> {
        self.0.clone()
    }
}

impl LeaseState {
    /// Releases the lease if the `Session` value was dropped.
    pub(super) fn release_if_dropped(&self) {
        if !self.alive.load(Ordering::Acquire) {
            self.store.release(self.id, self.fence);
        }
    }
}

impl Deref for Lease {
    type Target = LeaseState;
    fn deref(&self) -> &LeaseState {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.alive.store(false, Ordering::Release);
        // The store knows the session only if it was opened from there or a commit was sent.
        if self.0.fence > FIRST_FENCING_TOKEN || self.0.sent.load(Ordering::Acquire) {
            self.0.release_if_dropped();
        }
    }
}
