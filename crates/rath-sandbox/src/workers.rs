//! Threads that watch commands. One that is done waits a while for the next command: waking it takes a fifth of the
//! time that making a new one takes.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for work, and how many do.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_IDLE: usize = 16;

/// The threads that wait, with their numbers.
static IDLE: Mutex<Pool> = Mutex::new(Pool { threads: Vec::new(), next: 0 });

struct Pool {
    threads: Vec<(u64, Sender<Job>)>,
    next: u64,
}

fn idle() -> MutexGuard<'static, Pool> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `job` on a thread of its own.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut job: Job = Box::new(job);
    loop {
        let Some((_, thread)) = idle().threads.pop() else { break };
        match thread.send(job) {
            Ok(()) => return Ok(()),
            Err(back) => job = back.0,
        }
    }
    std::thread::Builder::new().name("rath-exec".into()).stack_size(256 << 10).spawn(|| work(job)).map(drop)
}

fn work(job: Job) {
    let (sender, receiver) = channel();
    job();
    loop {
        let number = {
            let mut idle = idle();
            if idle.threads.len() >= MOST_IDLE {
                return;
            }
            idle.next += 1;
            let number = idle.next;
            idle.threads.push((number, sender.clone()));
            number
        };
        let job = receiver.recv_timeout(PATIENCE).ok().or_else(|| {
            let mut idle = idle();
            let waiting = idle.threads.len();
            idle.threads.retain(|(other, _)| *other != number);
            // Whoever took this thread from the list is about to send.
            if idle.threads.len() == waiting {
                drop(idle);
                return receiver.recv().ok();
            }
            None
        });
        match job {
            Some(job) => job(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_whether_threads_wait_or_not() {
        for round in 0..20 {
            let (sender, receiver) = channel();
            for n in 0..40 {
                let sender = sender.clone();
                run(move || sender.send(n + round).unwrap()).unwrap();
            }
            drop(sender);
            let mut done: Vec<i32> = receiver.into_iter().collect();
            done.sort_unstable();
            assert_eq!(done, (round..round + 40).collect::<Vec<_>>());
            assert!(idle().threads.len() <= MOST_IDLE);
        }
    }
}
