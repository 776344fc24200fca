//! Executes write requests, on the caller's thread or on a writer thread.
//!
//! A thread runs some tens of microseconds after it is woken, and the caller that waits for the reply wakes up as late.
//! Together that is a third of the time of a sync on a fast disk. So if only one session writes and the disk is fast,
//! the caller executes its requests itself. Otherwise all requests go to one writer thread, which commits several of
//! them with one sync.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;

use rath_core::store::{Error, Result};
use rusqlite::Connection;

use super::Paths;
use super::change_signal::ChangeSignals;
use super::commit::Committer;
use super::deferred_blobs::DeferredBlobs;
use super::holder::HolderLock;
use super::suspect_wal::SuspectWal;
use super::write_request::WriteRequest;
use super::write_slot::WriteSlot;

/// The most requests that are committed together.
const MAX_GROUP: usize = 512;

/// The parts that the writer shares with the readers of the same store.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) deferred: Arc<DeferredBlobs>,
    pub(super) suspect_wal: SuspectWal,
    pub(super) signals: Arc<ChangeSignals>,
}

/// The writer of a store. Dropping it executes the queued requests and ends the thread.
pub(super) struct Writer {
    queue: Arc<WriteQueue>,
    jobs: Option<Sender<WriteRequest>>,
    thread: Option<JoinHandle<()>>,
}

struct WriteQueue {
    /// `None` after a request panicked: the transaction is in an unknown state, so nothing more is written, and the
    /// connection is closed to free its lock on the database.
    slot: Mutex<Option<WriteSlot>>,
    /// How many requests the thread has received and not finished.
    sent: AtomicUsize,
}

/// Runs `work` with the write slot. If `work` panics, removes the slot and returns `None`.
fn in_slot<T>(slot: &mut Option<WriteSlot>, work: impl FnOnce(&mut WriteSlot) -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(|| slot.as_mut().map(work)));
    if done.is_err() {
        *slot = None;
    }
    done.ok().flatten()
}

impl Writer {
    pub(super) fn start(db: Connection, paths: Paths, shared: Shared, program: &str) -> Result<Self> {
        let holder_lock = HolderLock::create(&paths.holders, program)?;
        let slot = Mutex::new(Some(WriteSlot::new(Committer::new(db, paths, shared, holder_lock)?)));
        let queue = Arc::new(WriteQueue { slot, sent: AtomicUsize::new(0) });
        let (jobs, inbox) = channel();
        let at = queue.clone();
        let thread = std::thread::Builder::new()
            .name("rath-writer".into())
            .spawn(move || run(&at, &inbox))
            .map_err(|error| Error::machine("starting the writer", error))?;
        Ok(Self { queue, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Executes a request after all requests that were sent before. Returns whether it was executed on this thread.
    pub(super) fn send(&self, job: WriteRequest) -> bool {
        let Some(job) = self.try_inline(job) else { return true };
        self.queue.sent.fetch_add(1, Ordering::AcqRel);
        // If the thread has ended, the reply channel is dropped with the request, and the caller gets an error.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
        false
    }

    /// Reads with the write connection; `None` if it is in use. Its page cache has the pages that changed last. Every
    /// other connection drops its page cache when the database changes.
    pub(super) fn read<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Option<Result<T>> {
        let slot = self.queue.slot.try_lock().ok()?;
        slot.as_ref().map(|slot| work(slot.connection()))
    }

    /// Executes a request on this thread if that is preferable, and returns `None`. Otherwise returns the request. A
    /// request that panics gets no reply.
    fn try_inline(&self, job: WriteRequest) -> Option<WriteRequest> {
        if self.queue.sent.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        let Ok(mut slot) = self.queue.slot.try_lock() else { return Some(job) };
        if !slot.as_ref().is_some_and(|slot| slot.prefers_inline(&job)) {
            return Some(job);
        }
        let done = in_slot(&mut slot, |slot| slot.try_write(job));
        drop(slot);
        match done? {
            Ok(replies) => replies.send(),
            Err(job) => return Some(job),
        }
        self.queue.maintain();
        None
    }
}

impl WriteQueue {
    /// Checkpoints a long WAL, unless the slot is in use; the next writer does it then.
    fn maintain(&self) {
        let mut slot = match self.slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        in_slot(&mut slot, WriteSlot::maintain);
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

fn run(queue: &WriteQueue, inbox: &Receiver<WriteRequest>) {
    while let Ok(first) = inbox.recv() {
        let mut slot = queue.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(next) = inbox.try_recv()
        {
            group.push(next);
        }
        let count = group.len();
        let Some(replies) = in_slot(&mut slot, |slot| slot.write(group)) else { return };
        drop(slot);
        // Counted down before the replies: a caller that sends its next request at once may then execute it on its own
        // thread.
        queue.sent.fetch_sub(count, Ordering::AcqRel);
        replies.send();
        queue.maintain();
    }
    in_slot(&mut queue.slot.lock().unwrap_or_else(PoisonError::into_inner), WriteSlot::shut_down);
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use futures_channel::oneshot;
    use pollster::block_on;
    use rath_core::store::{Batch, BatchPart, FIRST_FENCING_TOKEN, Scan, Store as _};
    use rath_core::{Actor, InMemory, Record, Session, SessionId};

    use super::*;
    use crate::embedded::Embedded;
    use crate::embedded::schema::{self, Access};
    use crate::packing::Prepared;

    struct TestWriter {
        writer: Writer,
        paths: Paths,
        _dir: tempfile::TempDir,
    }

    fn test_writer() -> TestWriter {
        let dir = tempfile::tempdir().unwrap();
        drop(Embedded::create(dir.path()).unwrap());
        let paths = Paths::of(dir.path());
        let db = schema::connect(&paths.database, Access::Write).unwrap();
        let signals = Arc::new(ChangeSignals::new(&paths.root, &paths.database));
        let shared = Shared { deferred: Arc::default(), suspect_wal: SuspectWal::default(), signals };
        TestWriter { writer: Writer::start(db, paths.clone(), shared, "test").unwrap(), paths, _dir: dir }
    }

    /// A session with its records, none of which is in the store.
    fn unstored_session() -> (SessionId, Vec<Record>) {
        let store = InMemory::new();
        let mut session = Session::create(&store, Actor::program("test"));
        for word in ["one", "two", "three"] {
            session.user(word).unwrap();
        }
        block_on(session.publish()).unwrap();
        let page = block_on(store.scan(Scan::session(session.id(), 0, session.head().seq))).unwrap();
        (session.id(), page.records)
    }

    type Reply = oneshot::Receiver<Result<()>>;

    fn commit(session: SessionId, records: &[Record]) -> (WriteRequest, Reply) {
        let part = BatchPart {
            session,
            fence: FIRST_FENCING_TOKEN,
            keep_lease: true,
            records: records.to_vec(),
            snapshot: None,
        };
        let (reply, answer) = oneshot::channel();
        (WriteRequest::Commit { parts: vec![Prepared::new(part)], consumed: Vec::new(), reply }, answer)
    }

    impl TestWriter {
        /// Executes a commit on this thread; `None` if the writer returns the request.
        fn commit_inline(&self, session: SessionId, records: &[Record]) -> Option<Result<()>> {
            let (job, mut answer) = commit(session, records);
            let back = self.writer.try_inline(job);
            back.is_none().then(|| answer.try_recv().unwrap().unwrap())
        }

        fn commit_on_thread(&self, session: SessionId, records: &[Record]) -> Result<()> {
            let (job, answer) = commit(session, records);
            self.writer.send(job);
            block_on(answer).unwrap()
        }

        fn simulate_fast_commits(&self, session: SessionId) {
            self.writer.queue.slot.lock().unwrap().as_mut().unwrap().simulate_fast_commits(session);
        }

        fn stored(&self) -> u64 {
            let db = schema::connect(&self.paths.database, Access::Read).unwrap();
            db.query_row("SELECT sum(count) FROM segments", [], |row| row.get::<_, i64>(0)).unwrap() as u64
        }
    }

    #[test]
    fn a_lone_writer_commits_on_its_own_thread_and_a_failed_commit_undoes_nothing_else() {
        let test = test_writer();
        let ((me, mine), (other, others)) = (unstored_session(), unstored_session());
        assert!(test.commit_inline(me, &mine[..1]).is_none(), "there are no fast commits yet");
        test.commit_on_thread(me, &mine[..1]).unwrap();
        test.simulate_fast_commits(me);
        test.commit_inline(me, &mine[1..2]).unwrap().unwrap();
        // `mine[2]` is not stored yet, so this commit fails.
        test.simulate_fast_commits(me);
        assert!(test.commit_inline(me, &mine[3..]).unwrap().is_err());
        assert!(
            test.commit_inline(me, &mine[2..3]).is_none(),
            "after a failure the writer thread executes the next commits"
        );
        test.commit_on_thread(me, &mine[2..3]).unwrap();
        test.simulate_fast_commits(me);
        test.commit_inline(me, &mine[3..]).unwrap().unwrap();
        assert!(test.commit_inline(other, &others).is_none());
        test.commit_on_thread(other, &others).unwrap();
        assert_eq!(test.stored(), (mine.len() + others.len()) as u64);
    }

    #[test]
    fn a_locked_database_does_not_block_the_callers_thread() {
        let test = test_writer();
        let (me, mine) = unstored_session();
        test.commit_on_thread(me, &mine[..1]).unwrap();
        test.simulate_fast_commits(me);
        let another = Connection::open(&test.paths.database).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(test.commit_inline(me, &mine[1..2]).is_none());
        let (job, mut answer) = commit(me, &mine[1..]);
        test.writer.send(job);
        assert!(answer.try_recv().unwrap().is_none(), "it waits");
        another.execute_batch("COMMIT").unwrap();
        block_on(answer).unwrap().unwrap();
        assert_eq!(test.stored(), mine.len() as u64);
    }

    #[test]
    fn after_a_panic_other_processes_can_write() {
        let test = test_writer();
        let (me, mine) = unstored_session();
        test.commit_on_thread(me, &mine[..1]).unwrap();
        test.simulate_fast_commits(me);
        {
            let mut slot = test.writer.queue.slot.lock().unwrap();
            let broken: Option<()> = in_slot(&mut slot, |slot| {
                slot.connection().execute_batch("BEGIN IMMEDIATE; DELETE FROM sessions").unwrap();
                resume_unwind(Box::new("broken"))
            });
            assert!(broken.is_none());
        }
        let (job, answer) = commit(me, &mine[1..]);
        test.writer.send(job);
        assert!(block_on(answer).is_err(), "the slot is gone");
        assert!(test.writer.read(|_| Ok(())).is_none());
        let successor = Embedded::open_as(&test.paths.root, "successor").unwrap();
        let fence = block_on(successor.lease(me)).unwrap();
        let part = BatchPart { session: me, fence, keep_lease: true, records: mine[1..].to_vec(), snapshot: None };
        block_on(successor.commit(Batch { parts: vec![part], consumed_posts: Vec::new() })).unwrap();
        assert_eq!(test.stored(), mine.len() as u64);
    }
}
