//! Has jobs done: here and now where that is soon over, else by a thread.
//!
//! A thread that is woken begins some tens of microseconds later, and so does whoever waits for its answer: together a
//! third of a fast disk's sync. So one session that writes alone writes itself, as long as the disk is quick. Several
//! share the thread, and its syncs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rath_core::store::{Error, Result};
use rusqlite::Connection;

use super::Paths;
use super::commit::Committer;
use super::holder::Liveness;
use super::job::Job;
use super::seat::Seat;

/// How many jobs share a sync, at most.
const GROUP: usize = 512;

/// Who writes to the store.
pub(super) struct Writer {
    desk: Arc<Desk>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    seat: Mutex<Seat>,
    /// How many jobs were sent to the thread and are not done.
    sent: AtomicUsize,
}

impl Writer {
    pub(super) fn start(db: Connection, paths: Paths, program: &str) -> Result<Self> {
        let liveness = Liveness::begin(&paths.holders, program)?;
        let seat = Mutex::new(Seat::new(Committer::new(db, paths, liveness)));
        let desk = Arc::new(Desk { seat, sent: AtomicUsize::new(0) });
        let (jobs, inbox) = channel();
        let at = desk.clone();
        let thread = std::thread::Builder::new()
            .name("rath-writer".into())
            .spawn(move || run(&at, &inbox))
            .map_err(|error| Error::machine("starting the writer", error))?;
        Ok(Self { desk, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has a job done, after all that were sent before it.
    pub(super) fn send(&self, job: Job) {
        let Some(job) = self.do_here(job) else { return };
        self.desk.sent.fetch_add(1, Ordering::AcqRel);
        // If the thread is gone the reply channel is dropped with the job, and who waits is told.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Reads with the connection that writes, if nobody writes just now: the pages that changed last are at hand there,
    /// and any other connection forgets all it has when one changes.
    pub(super) fn read<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Option<Result<T>> {
        let seat = self.desk.seat.try_lock().ok()?;
        Some(work(seat.connection()))
    }

    /// Does a job that is better done here; any other comes back.
    fn do_here(&self, job: Job) -> Option<Job> {
        if !job.is_little() || self.desk.sent.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        match self.desk.seat.try_lock() {
            Ok(mut seat) if seat.suits(&job) => seat.write(vec![job]),
            _ => return Some(job),
        }
        None
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(desk: &Desk, inbox: &Receiver<Job>) {
    while let Ok(first) = inbox.recv() {
        // Somebody may have broken down in the middle: nothing may be added to what is there.
        let Ok(mut seat) = desk.seat.lock() else { return };
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = inbox.try_recv()
        {
            group.push(next);
        }
        let count = group.len();
        seat.write(group);
        desk.sent.fetch_sub(count, Ordering::AcqRel);
    }
    if let Ok(mut seat) = desk.seat.lock() {
        seat.leave();
    }
}
