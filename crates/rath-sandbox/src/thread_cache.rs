//! Threads that watch commands. An idle thread waits 10 s for the next command: waking a thread takes a fifth of the
//! time of creating one.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long an idle thread waits for a job.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of idle threads.
const MAX_IDLE: usize = 16;

/// The idle threads.
static IDLE: Mutex<IdleThreads> = Mutex::new(IdleThreads { threads: Vec::new(), next: 0 });

struct IdleThreads {
    threads: Vec<(u64, Sender<Job>)>,
    next: u64,
}

fn idle() -> MutexGuard<'static, IdleThreads> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `job` on an idle thread or a new one.
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
            if idle.threads.len() >= MAX_IDLE {
                return;
            }
            idle.next += 1;
            let number = idle.next;
            idle.threads.push((number, sender.clone()));
            number
        };
        let job = receiver.recv_timeout(IDLE_TIMEOUT).ok().or_else(|| {
            let mut idle = idle();
            let waiting = idle.threads.len();
            idle.threads.retain(|(other, _)| *other != number);
            // Another thread removed this one from the list, so it is about to send a job.
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
    fn every_job_runs_with_and_without_idle_threads() {
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
            assert!(idle().threads.len() <= MAX_IDLE);
        }
    }
}
