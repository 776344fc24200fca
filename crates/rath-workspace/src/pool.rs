//! Thread pools.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool that walks directories, and reads and writes files. Its work may block on the store. It has one thread more
/// than there are processors, because one is usually blocked on the disk: with exactly one thread for each processor, a
/// walk of 1,000 files took 50 % longer.
pub static FILES: Pool = Pool::new("rath-files", 1);

/// A thread pool that starts its threads at first use.
pub struct Pool {
    name: &'static str,
    /// Number of threads in addition to one for each processor.
    more: usize,
    threads: OnceLock<Option<ThreadPool>>,
}

/// Stack size of a thread in bytes. A walk recurses into directories, and a thread that waits for part of its walk may
/// run part of another walk on the same stack.
const STACK: usize = 16 << 20;

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name)
    }
}

impl Pool {
    /// A pool with one thread for each processor and `more` in addition. The threads are named after `name`.
    pub const fn new(name: &'static str, more: usize) -> Self {
        Self { name, more, threads: OnceLock::new() }
    }

    /// Runs `work` in the pool and waits for it. Runs it on this thread if the pool could not be started.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.threads.get_or_init(|| self.start()) {
            Some(threads) => threads.install(work),
            None => work(),
        }
    }

    /// Runs `work` in the background on one of the threads. `None` if the pool could not be started.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) -> Option<()> {
        self.threads.get_or_init(|| self.start()).as_ref().map(|threads| threads.spawn(work))
    }

    fn start(&self) -> Option<ThreadPool> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + self.more;
        let name = self.name;
        // A panicking job sends no result. The receiver sees a closed channel.
        let pool = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK).panic_handler(|_| {});
        pool.thread_name(move |n| format!("{name}-{n}")).build().ok()
    }
}
