//! Threads for what takes several processors.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Walks directories, and reads and writes files. What runs here may wait for the store. One thread is always about to wait for
/// a disk or a directory: with as many as processors a walk of a thousand files took half as long again.
pub static FILES: Pool = Pool::new("rath-files", 1);

/// Threads that are started when they are first needed.
pub struct Pool {
    name: &'static str,
    /// How many threads there are besides one for each processor.
    more: usize,
    threads: OnceLock<Option<ThreadPool>>,
}

/// How much stack a thread may use. A walk goes into directories in directories, and may take up another walk while it
/// waits for its own.
const STACK: usize = 16 << 20;

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name)
    }
}

impl Pool {
    /// Threads of this name: one for each processor, and `more`.
    pub const fn new(name: &'static str, more: usize) -> Self {
        Self { name, more, threads: OnceLock::new() }
    }

    /// Does work with these threads at hand; here, where there can be none.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.threads.get_or_init(|| self.start()) {
            Some(threads) => threads.install(work),
            None => work(),
        }
    }

    /// Has work done by one of these threads, whenever that may be; `None` where there can be none.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) -> Option<()> {
        self.threads.get_or_init(|| self.start()).as_ref().map(|threads| threads.spawn(work))
    }

    fn start(&self) -> Option<ThreadPool> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + self.more;
        let name = self.name;
        // Of what breaks down nothing comes, and who waits for it is told so.
        let pool = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK).panic_handler(|_| {});
        pool.thread_name(move |n| format!("{name}-{n}")).build().ok()
    }
}
