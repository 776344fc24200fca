//! What a command's watcher is asked from other threads.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::EventfdFlags;

use crate::error::{Error, Result};
use crate::running::Stop;

/// What the watcher of a command is asked.
pub(crate) struct Request {
    stop: AtomicU8,
    /// Readable once there is something asked.
    pub(crate) wake: OwnedFd,
}

impl Request {
    pub(crate) fn new() -> Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| Error::machine("starting a command", error))?;
        Ok(Self { stop: AtomicU8::new(0), wake })
    }

    /// Asks for a stop. The sterner wish wins.
    pub(crate) fn stop(&self, how: Stop) {
        self.stop.fetch_max(how as u8 + 1, Ordering::SeqCst);
        // It can only fail when it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Option<Stop> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        [None, Some(Stop::Politely), Some(Stop::Now)][usize::from(self.stop.load(Ordering::SeqCst))]
    }
}
