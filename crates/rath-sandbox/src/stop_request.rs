//! Requests from other threads to stop a command.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::EventfdFlags;

use crate::error::{Error, Result};
use crate::running::StopMode;

/// A request to the thread that watches a command.
pub(crate) struct StopRequest {
    stop: AtomicU8,
    /// An eventfd that becomes readable with the first request.
    pub(crate) wake: OwnedFd,
}

impl StopRequest {
    pub(crate) fn new() -> Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| Error::machine("starting a command", error))?;
        Ok(Self { stop: AtomicU8::new(0), wake })
    }

    /// Requests a stop. The stricter of two modes wins.
    pub(crate) fn stop(&self, how: StopMode) {
        self.stop.fetch_max(how as u8 + 1, Ordering::SeqCst);
        // This fails only if the descriptor is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The strictest mode requested so far.
    pub(crate) fn requested(&self) -> Option<StopMode> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        [None, Some(StopMode::Graceful), Some(StopMode::Immediate)][usize::from(self.stop.load(Ordering::SeqCst))]
    }
}
