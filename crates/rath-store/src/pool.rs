//! Threads for what takes several processors.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Walks directories, and reads and writes files. What runs here may wait for the store.
pub(crate) static FILES: Pool = Pool::new("rath-files");

/// Unfolds what was read. Not where things are squeezed: who reads does not wait for who writes much.
pub(crate) static UNFOLDERS: Pool = Pool::new("rath-unfold");

/// Squeezes what is about to be written. The writer of a store waits for it, so nothing that runs here waits for a store.
pub(crate) static SQUEEZERS: Pool = Pool::new("rath-squeeze");

/// Threads that are started when they are first needed.
pub(crate) struct Pool {
    name: &'static str,
    threads: OnceLock<Option<ThreadPool>>,
}

impl Pool {
    const fn new(name: &'static str) -> Self {
        Self { name, threads: OnceLock::new() }
    }

    /// Does work with these threads at hand; here, where there can be none.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.threads.get_or_init(|| self.start()) {
            Some(threads) => threads.install(work),
            None => work(),
        }
    }

    /// One thread more than there are processors, because one that has to do with files is always about to wait for a disk
    /// or a directory. With as many as processors a walk of a thousand files took half as long again.
    fn start(&self) -> Option<ThreadPool> {
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get() + 1);
        let name = self.name;
        ThreadPoolBuilder::new().num_threads(threads).thread_name(move |n| format!("{name}-{n}")).build().ok()
    }
}
