//! One thread that writes. What waits when it is free again is committed together, with one sync.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use futures_channel::oneshot;
use rath_core::SessionId;
use rath_core::store::{Batch, Error, Fence, Holder, Post, Result, Trouble};
use rusqlite::Connection;

use super::commit::Committer;
use super::holder::Liveness;
use super::schema::{self, sql};
use super::{Paths, ids, take};
use crate::packs::Squeezed;

/// How many jobs share a sync, at most.
const GROUP: usize = 512;

/// How often the writer looks again before it sleeps: some tens of microseconds.
const SPINS: u32 = 2_000;

type Reply<T> = oneshot::Sender<Result<T>>;

/// Something to write.
pub(super) enum Job {
    Commit {
        batch: Batch,
        reply: Reply<()>,
    },
    Blobs {
        blobs: Vec<Squeezed>,
        reply: Reply<()>,
    },
    Lease {
        session: SessionId,
        reply: Reply<Fence>,
    },
    Release {
        session: SessionId,
        fence: Fence,
    },
    Take {
        session: SessionId,
        reply: Reply<Option<Holder>>,
    },
    Post {
        post: Box<Post>,
        reply: Reply<()>,
    },
    /// Brings the index of record ids up to date.
    CatchUpIds {
        reply: Reply<()>,
    },
}

impl Job {
    /// The session that it gives back.
    fn gives_back(&self) -> Option<(SessionId, Fence)> {
        match self {
            Job::Release { session, fence } => Some((*session, *fence)),
            _ => None,
        }
    }

    /// Whether what it does must outlive a power cut. Leases die with their process anyway, and blobs last with the
    /// commit that names them: what they wrote to a pack is synced before the index knows of it.
    fn must_last(&self) -> bool {
        !matches!(
            self,
            Job::Blobs { .. } | Job::Lease { .. } | Job::Release { .. } | Job::Take { .. } | Job::CatchUpIds { .. }
        )
    }
}

/// The handle on the writing thread.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(db: Connection, paths: Paths, program: &str) -> Result<Self> {
        let liveness = Liveness::begin(&paths.holders, program)?;
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("rath-writer".into())
            .spawn(move || run(&db, &paths, &liveness, &inbox))
            .map_err(|error| Error::machine("starting the writer", error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) fn send(&self, job: Job) {
        // If the thread is gone the reply channel is dropped with the job, and who waits is told.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
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

fn run(db: &Connection, paths: &Paths, liveness: &Liveness, inbox: &Receiver<Job>) {
    let mut committer = Committer::new(db, &paths.packs, &paths.holders, &liveness.holder);
    while let Some(first) = next_job(inbox) {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = inbox.try_recv()
        {
            group.push(next);
        }
        write_group(db, paths, &mut committer, group);
    }
    let _ = committer.settle();
    give_back(db, &liveness.holder.id);
}

/// Waits for a job. A writer that publishes again at once is met awake: a wake-up costs a tenth of a fast disk's sync.
fn next_job(inbox: &Receiver<Job>) -> Option<Job> {
    for _ in 0..SPINS {
        if let Ok(job) = inbox.try_recv() {
            return Some(job);
        }
        std::hint::spin_loop();
    }
    inbox.recv().ok()
}

/// At the end of an orderly life the sessions are free at once.
fn give_back(db: &Connection, me: &str) {
    let _ = schema::synced(db, false);
    let _ = db.execute("UPDATE sessions SET holder = NULL WHERE holder = ?1", [me]);
}

/// What is said to a job's sender after the commit.
type Answer = Box<dyn FnOnce(Option<&Error>)>;

fn write_group(db: &Connection, paths: &Paths, committer: &mut Committer<'_>, mut group: Vec<Job>) {
    let again = std::mem::take(&mut committer.kept);
    group.splice(0..0, again.into_iter().map(|(session, fence)| Job::Release { session, fence }));
    let released: Vec<_> = group.iter().filter_map(Job::gives_back).collect();
    let begun = committer.settle().and_then(|()| {
        committer.set_sync(group.iter().any(Job::must_last)).map_err(sql)?;
        run_cached(db, "BEGIN IMMEDIATE").map_err(schema::doing("beginning to write"))
    });
    if let Err(error) = begun {
        let error = match error {
            Error::Machine { doing, trouble: Trouble::Busy, .. } => {
                Error::trouble(doing, Trouble::Busy, take::who_writes(&paths.database))
            }
            error => error,
        };
        group.into_iter().for_each(|job| refuse(job, &error));
        committer.kept = released;
        return;
    }
    let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
    // Why nothing of the group may be committed.
    let mut spoilt: Option<Error> = None;
    for job in group {
        // SQLite may have undone everything by itself; what came now would stand alone.
        if let Some(error) = &spoilt {
            refuse(job, error);
            continue;
        }
        // One job's failure must not undo its neighbours' work.
        if let Err(error) = run_cached(db, "SAVEPOINT job") {
            refuse(job, &sql(error));
            continue;
        }
        let (failed, answer) = work(db, committer, job);
        answers.push(answer);
        if let Some(error) = failed {
            // The index forgets what this job appended to the pack; what its neighbours appended must last.
            let undone = committer.leave_pack().and_then(|()| run_cached(db, "ROLLBACK TO job").map_err(sql));
            spoilt = undone.err().map(|undone| match error {
                Error::Machine { trouble: Trouble::Other, .. } => undone,
                error => error,
            });
        }
        let _ = run_cached(db, "RELEASE job");
    }
    let finished = match spoilt {
        Some(error) => Err(error),
        None => committer.finish(),
    };
    if finished.is_err() {
        let _ = db.execute_batch("ROLLBACK");
        committer.forget_pack();
        committer.kept = released;
    }
    answers.into_iter().for_each(|answer| answer(finished.as_ref().err()));
}

fn run_cached(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}

/// Does one job. The answer is given when the fate of the whole group is known.
fn work(db: &Connection, committer: &mut Committer<'_>, job: Job) -> (Option<Error>, Answer) {
    fn answer<T: Send + 'static>(reply: Reply<T>, done: Result<T>) -> (Option<Error>, Answer) {
        let failed = done.as_ref().err().map(again);
        let answer = move |commit_failed: Option<&Error>| {
            let done = match commit_failed {
                Some(error) if done.is_ok() => Err(again(error)),
                _ => done,
            };
            let _ = reply.send(done);
        };
        (failed, Box::new(answer))
    }
    match job {
        Job::Commit { batch, reply } => answer(reply, committer.commit(batch)),
        Job::Blobs { blobs, reply } => answer(reply, committer.put_squeezed(&blobs)),
        Job::Lease { session, reply } => answer(reply, committer.lease(session)),
        Job::Release { session, fence } => {
            let failed = committer.release(session, fence).err();
            committer.kept.extend(failed.is_some().then_some((session, fence)));
            (failed, Box::new(|_| {}))
        }
        Job::Take { session, reply } => answer(reply, committer.take(session)),
        Job::Post { post, reply } => answer(reply, committer.post(&post)),
        Job::CatchUpIds { reply } => answer(reply, ids::catch_up(db)),
    }
}

/// One failure, said to several.
fn again(error: &Error) -> Error {
    match error {
        Error::Machine { doing, trouble, cause } => Error::trouble(doing, *trouble, cause.to_string()),
        error => Error::machine("writing", error.to_string()),
    }
}

fn refuse(job: Job, error: &Error) {
    match job {
        Job::Commit { reply, .. } | Job::Blobs { reply, .. } | Job::Post { reply, .. } | Job::CatchUpIds { reply } => {
            let _ = reply.send(Err(again(error)));
        }
        Job::Lease { reply, .. } => {
            let _ = reply.send(Err(again(error)));
        }
        Job::Take { reply, .. } => {
            let _ = reply.send(Err(again(error)));
        }
        Job::Release { .. } => {}
    }
}
