//! Forks that may still share the files of the session that they were made from.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Session;
use super::lease::LeaseState;
use crate::files::Version;
use crate::id::SessionId;

/// A fork, and the files that it started with.
#[derive(Clone, Debug)]
pub struct UnsharedFork {
    /// The fork.
    pub id: SessionId,
    /// The files at the fork point.
    pub version: Version,
}

/// The forks of one session since its files were last used. Boxed on first use: most sessions have none.
#[derive(Default)]
pub(super) struct UnsharedForks(OnceLock<Box<Mutex<Vec<Remembered>>>>);

struct Remembered {
    fork: UnsharedFork,
    lease: Arc<LeaseState>,
}

impl Session {
    /// Remembers a fork that starts with this session's files.
    pub(super) fn remember_fork(&self, fork: &Session) {
        if self.0.state.placement.is_none() {
            return;
        }
        let Some(version) = self.0.state.workspace.clone() else { return };
        let remembered = Remembered { fork: UnsharedFork { id: fork.id(), version }, lease: fork.0.lease.share() };
        let forks = self.0.unshared_forks.0.get_or_init(Box::default);
        forks.lock().unwrap_or_else(PoisonError::into_inner).push(remembered);
    }

    /// Whether there are forks for [`take_unshared_forks`](Self::take_unshared_forks).
    pub fn has_unshared_forks(&self) -> bool {
        let forks = self.0.unshared_forks.0.get();
        forks.is_some_and(|forks| !forks.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    /// Takes the forks that were made from this value since the last call. Call it before the session's files change, so
    /// that the forks can keep files that no version contains. Forks that were dropped before they were sent to the
    /// store are left out.
    pub fn take_unshared_forks(&mut self) -> Vec<UnsharedFork> {
        let forks = self.0.unshared_forks.0.get_mut();
        let forks = forks.map(|forks| mem::take(forks.get_mut().unwrap_or_else(PoisonError::into_inner)));
        let exists = |lease: &LeaseState| lease.alive.load(Ordering::Acquire) || lease.sent.load(Ordering::Acquire);
        let forks = forks.unwrap_or_default().into_iter().filter(|remembered| exists(&remembered.lease));
        forks.map(|remembered| remembered.fork).collect()
    }
}
