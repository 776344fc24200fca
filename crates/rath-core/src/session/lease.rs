//! Who may publish a line: shared between a session and the forks that may publish it on the way.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::id::SessionId;
use crate::store::{FIRST_FENCE, Fence, Store};

/// What a session and its forks know together about the line.
pub(super) struct LineHold {
    pub(super) id: SessionId,
    pub(super) fence: Fence,
    /// How many of its records are published.
    pub(super) published: AtomicU64,
    /// Whether a commit of it was ever sent: it may arrive even if nobody waits for it.
    pub(super) offered: AtomicBool,
    /// Whether the session value still exists.
    pub(super) alive: AtomicBool,
    store: Arc<dyn Store>,
}

/// The session's own handle: dropping it gives the line back.
pub(super) struct Lease(Arc<LineHold>);

impl Lease {
    /// The lease of a line that the store has not seen.
    pub(super) fn fresh(store: Arc<dyn Store>, id: SessionId) -> Self {
        Self::taken(store, id, FIRST_FENCE)
    }

    /// A lease that the store granted.
    pub(super) fn taken(store: Arc<dyn Store>, id: SessionId, fence: Fence) -> Self {
        let (published, offered, alive) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(true));
        Self(Arc::new(LineHold { id, fence, published, offered, alive, store }))
    }

    /// What forks of the line share.
    pub(super) fn share(&self) -> Arc<LineHold> {
        self.0.clone()
    }
}

impl LineHold {
    /// Gives the line back if its session is gone.
    pub(super) fn release_if_dropped(&self) {
        if !self.alive.load(Ordering::Acquire) {
            self.store.release(self.id, self.fence);
        }
    }
}

impl Deref for Lease {
    type Target = LineHold;
    fn deref(&self) -> &LineHold {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.alive.store(false, Ordering::Release);
        // A line that was never sent is unknown to the store, unless it was opened from there.
        if self.0.fence > FIRST_FENCE || self.0.offered.load(Ordering::Acquire) {
            self.0.release_if_dropped();
        }
    }
}
