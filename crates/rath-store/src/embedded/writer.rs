//! Has jobs done: here and now where that is soon over, else by a thread.
//!
//! A thread that is woken begins some tens of microseconds later, and so does whoever waits for its answer: together a
//! third of a fast disk's sync. So one session that writes alone writes itself, as long as the disk is quick. Several
//! share the thread, and its syncs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;

use rath_core::store::{Error, Result};
use rusqlite::Connection;

use super::Paths;
use super::commit::Committer;
use super::doubt::Doubt;
use super::holder::Liveness;
use super::job::Job;
use super::seat::Seat;
use super::signal::Signals;
use super::soon::Soon;

/// How many jobs share a sync, at most.
const GROUP: usize = 512;

/// What the writer shares with the rest of the store.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) soon: Arc<Soon>,
    pub(super) doubt: Doubt,
    pub(super) signals: Arc<Signals>,
}

/// Who writes to the store.
pub(super) struct Writer {
    desk: Arc<Desk>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    /// Gone when somebody broke down in it: nothing may be added to what is there, and the lock on the store is not to
    /// be kept.
    seat: Mutex<Option<Seat>>,
    /// How many jobs were sent to the thread and are not done.
    sent: AtomicUsize,
}

/// Works in the seat.
fn sit<T>(seat: &mut Option<Seat>, work: impl FnOnce(&mut Seat) -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(|| seat.as_mut().map(work)));
    if done.is_err() {
        *seat = None;
    }
    done.ok().flatten()
}

impl Writer {
    pub(super) fn start(db: Connection, paths: Paths, shared: Shared, program: &str) -> Result<Self> {
        let liveness = Liveness::begin(&paths.holders, program)?;
        let seat = Mutex::new(Some(Seat::new(Committer::new(db, paths, shared, liveness)?)));
        let desk = Arc::new(Desk { seat, sent: AtomicUsize::new(0) });
        let (jobs, inbox) = channel();
        let at = desk.clone();
        let thread = std::thread::Builder::new()
            .name("rath-writer".into())
            .spawn(move || run(&at, &inbox))
            .map_err(|error| Error::machine("starting the writer", error))?;
        Ok(Self { desk, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has a job done, after all that were sent before it. Says whether it was done here.
    pub(super) fn send(&self, job: Job) -> bool {
        let Some(job) = self.do_here(job) else { return true };
        self.desk.sent.fetch_add(1, Ordering::AcqRel);
        // If the thread is gone the reply channel is dropped with the job, and who waits is told.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
        false
    }

    /// Reads with the connection that writes, if nobody writes just now: the pages that changed last are at hand there,
    /// and any other connection forgets all it has when one changes.
    pub(super) fn read<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Option<Result<T>> {
        let seat = self.desk.seat.try_lock().ok()?;
        seat.as_ref().map(|seat| work(seat.connection()))
    }

    /// Does a job that is better done here; any other comes back. One in which somebody breaks down gets no answer.
    fn do_here(&self, job: Job) -> Option<Job> {
        if self.desk.sent.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        let Ok(mut seat) = self.desk.seat.try_lock() else { return Some(job) };
        if !seat.as_ref().is_some_and(|seat| seat.suits(&job)) {
            return Some(job);
        }
        let done = sit(&mut seat, |seat| seat.write_at_once(job));
        drop(seat);
        match done? {
            Ok(answers) => answers.give(),
            Err(job) => return Some(job),
        }
        self.desk.tidy();
        None
    }
}

impl Desk {
    /// Tidies up, unless somebody is there already: the next one who writes does it then.
    fn tidy(&self) {
        let mut seat = match self.seat.try_lock() {
            Ok(seat) => seat,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        sit(&mut seat, Seat::tidy);
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
        let mut seat = desk.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = inbox.try_recv()
        {
            group.push(next);
        }
        let count = group.len();
        let Some(answers) = sit(&mut seat, |seat| seat.write(group)) else { return };
        drop(seat);
        // Who is answered may come back at once, and finds the way free.
        desk.sent.fetch_sub(count, Ordering::AcqRel);
        answers.give();
        desk.tidy();
    }
    sit(&mut desk.seat.lock().unwrap_or_else(PoisonError::into_inner), Seat::leave);
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use futures_channel::oneshot;
    use pollster::block_on;
    use rath_core::store::{Batch, FIRST_FENCE, Part, Scan, Store as _};
    use rath_core::{Actor, Memory, Record, Session, SessionId};

    use super::*;
    use crate::embedded::Embedded;
    use crate::embedded::schema::{self, Access};
    use crate::packing::Prepared;

    struct Bench {
        writer: Writer,
        paths: Paths,
        _dir: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        drop(Embedded::create(dir.path()).unwrap());
        let paths = Paths::of(dir.path());
        let db = schema::connect(&paths.database, Access::Write).unwrap();
        let signals = Arc::new(Signals::new(&paths.root, &paths.database));
        let shared = Shared { soon: Arc::default(), doubt: Doubt::default(), signals };
        Bench { writer: Writer::start(db, paths.clone(), shared, "test").unwrap(), paths, _dir: dir }
    }

    /// Records of a session, of which none is stored.
    fn line() -> (SessionId, Vec<Record>) {
        let store = Memory::new();
        let mut session = Session::create(&store, Actor::program("test"));
        for word in ["one", "two", "three"] {
            session.user(word).unwrap();
        }
        block_on(session.publish()).unwrap();
        let page = block_on(store.scan(Scan::session(session.id(), 0, session.head().seq))).unwrap();
        (session.id(), page.records)
    }

    type Answer = oneshot::Receiver<Result<()>>;

    fn commit(session: SessionId, records: &[Record]) -> (Job, Answer) {
        let part = Part { session, fence: FIRST_FENCE, hold: true, records: records.to_vec(), snapshot: None };
        let (reply, answer) = oneshot::channel();
        (Job::Commit { parts: vec![Prepared::new(part)], taken: Vec::new(), reply }, answer)
    }

    impl Bench {
        /// Does a job here, or says that it comes back.
        fn here(&self, session: SessionId, records: &[Record]) -> Option<Result<()>> {
            let (job, mut answer) = commit(session, records);
            let back = self.writer.do_here(job);
            back.is_none().then(|| answer.try_recv().unwrap().unwrap())
        }

        fn sent(&self, session: SessionId, records: &[Record]) -> Result<()> {
            let (job, answer) = commit(session, records);
            self.writer.send(job);
            block_on(answer).unwrap()
        }

        fn hurry(&self, session: SessionId) {
            self.writer.desk.seat.lock().unwrap().as_mut().unwrap().hurry(session);
        }

        fn stored(&self) -> u64 {
            let db = schema::connect(&self.paths.database, Access::Read).unwrap();
            db.query_row("SELECT sum(count) FROM segments", [], |row| row.get::<_, i64>(0)).unwrap() as u64
        }
    }

    #[test]
    fn one_that_writes_alone_is_done_here_and_a_failure_undoes_nothing_else() {
        let bench = bench();
        let ((me, mine), (other, others)) = (line(), line());
        assert!(bench.here(me, &mine[..1]).is_none(), "nobody knows yet how quick it is");
        bench.sent(me, &mine[..1]).unwrap();
        bench.hurry(me);
        bench.here(me, &mine[1..2]).unwrap().unwrap();
        // One record is left out.
        bench.hurry(me);
        assert!(bench.here(me, &mine[3..]).unwrap().is_err());
        assert!(bench.here(me, &mine[2..3]).is_none(), "after a failure the thread does the next ones");
        bench.sent(me, &mine[2..3]).unwrap();
        bench.hurry(me);
        bench.here(me, &mine[3..]).unwrap().unwrap();
        assert!(bench.here(other, &others).is_none());
        bench.sent(other, &others).unwrap();
        assert_eq!(bench.stored(), (mine.len() + others.len()) as u64);
    }

    #[test]
    fn nobody_waits_here_for_another_process() {
        let bench = bench();
        let (me, mine) = line();
        bench.sent(me, &mine[..1]).unwrap();
        bench.hurry(me);
        let another = Connection::open(&bench.paths.database).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(bench.here(me, &mine[1..2]).is_none());
        let (job, mut answer) = commit(me, &mine[1..]);
        bench.writer.send(job);
        assert!(answer.try_recv().unwrap().is_none(), "it waits");
        another.execute_batch("COMMIT").unwrap();
        block_on(answer).unwrap().unwrap();
        assert_eq!(bench.stored(), mine.len() as u64);
    }

    #[test]
    fn whoever_breaks_down_leaves_the_store_to_others() {
        let bench = bench();
        let (me, mine) = line();
        bench.sent(me, &mine[..1]).unwrap();
        bench.hurry(me);
        {
            let mut seat = bench.writer.desk.seat.lock().unwrap();
            let broken: Option<()> = sit(&mut seat, |seat| {
                seat.connection().execute_batch("BEGIN IMMEDIATE; DELETE FROM sessions").unwrap();
                resume_unwind(Box::new("broken"))
            });
            assert!(broken.is_none());
        }
        let (job, answer) = commit(me, &mine[1..]);
        bench.writer.send(job);
        assert!(block_on(answer).is_err(), "nobody is there to answer");
        assert!(bench.writer.read(|_| Ok(())).is_none());
        let heir = Embedded::open_here(&bench.paths.root, "heir").unwrap();
        let fence = block_on(heir.lease(me)).unwrap();
        let part = Part { session: me, fence, hold: true, records: mine[1..].to_vec(), snapshot: None };
        block_on(heir.commit(Batch { parts: vec![part], taken: Vec::new() })).unwrap();
        assert_eq!(bench.stored(), mine.len() as u64);
    }
}
