//! Threads for what takes several processors.

use rath_workspace::Pool;

/// Unfolds what was read. Not where things are squeezed: who reads does not wait for who writes much.
pub(crate) static UNFOLDERS: Pool = Pool::new("rath-unfold", 0);

/// Squeezes what is about to be written. The writer of a store waits for it, so nothing that runs here waits for a store.
pub(crate) static SQUEEZERS: Pool = Pool::new("rath-squeeze", 0);
