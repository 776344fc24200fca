//! Threads for what takes several processors.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Does work with threads at hand.
pub(crate) fn in_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// One thread more than there are processors, because one is always about to wait for a disk or a directory. With as
/// many as processors a walk of a thousand files took half as long again.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || {
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get() + 1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("rath-pool-{n}"));
        pool.build().ok()
    };
    POOL.get_or_init(start).as_ref()
}
