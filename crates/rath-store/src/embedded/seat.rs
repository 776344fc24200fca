//! The place from which the store is written, one at a time. What waits when it is free is committed together, with one
//! sync.

use std::time::Duration;

use futures_channel::oneshot;
use rath_core::store::{Error, Fence, Result, Trouble};
use rath_core::{SessionId, Time};
use rusqlite::Connection;

use super::commit::Committer;
use super::job::{Answer, Job};
use super::pace::Pace;
use super::schema::{self, sql};
use super::signal::CHANGES;

/// Who sits here writes.
pub(super) struct Seat {
    committer: Committer,
    pace: Pace,
}

impl Seat {
    pub(super) fn new(committer: Committer) -> Self {
        Self { committer, pace: Pace::default() }
    }

    /// Whether a job had better be done by whoever asks for it.
    pub(super) fn suits(&self, job: &Job) -> bool {
        self.pace.suits(job.writes()) && self.committer.owes_nothing() && job.is_little()
    }

    /// What it writes with. No transaction is open.
    pub(super) fn connection(&self) -> &Connection {
        &self.committer.db
    }

    /// As after quick commits of this session.
    #[cfg(test)]
    pub(super) fn hurry(&mut self, session: SessionId) {
        for _ in 0..10 {
            self.pace.wrote(session);
            self.pace.took(0);
        }
    }

    /// What can wait until those who sent jobs have their answers.
    pub(super) fn tidy(&mut self) {
        let began = Time::now();
        if self.committer.tidy() {
            self.pace.took(Time::now().micros_since(began));
        }
    }

    /// At the end.
    pub(super) fn leave(&mut self) {
        if self.committer.has_soon() {
            let (reply, _) = oneshot::channel();
            self.write(vec![Job::Blobs { blobs: Vec::new(), reply }]).give();
        }
        self.committer.give_back();
    }

    /// Commits one job without waiting for another process: it comes back when one is writing.
    pub(super) fn write_at_once(&mut self, job: Job) -> std::result::Result<Answers, Job> {
        let hurried = self.committer.db.busy_timeout(Duration::ZERO).map_err(sql);
        let begun = hurried.and_then(|()| self.begin(job.must_last()));
        let _ = self.committer.db.busy_timeout(schema::PATIENCE);
        if begun.is_err() {
            self.pace.failed();
            return Err(job);
        }
        Ok(self.carry_out(vec![job], Vec::new()))
    }

    /// Commits jobs together. One job's failure undoes none of its neighbours.
    pub(super) fn write(&mut self, mut group: Vec<Job>) -> Answers {
        let again = std::mem::take(&mut self.committer.kept);
        group.splice(0..0, again.into_iter().map(|(session, fence)| Job::Release { session, fence }));
        let released: Vec<_> = group.iter().filter_map(Job::gives_back).collect();
        if let Err(error) = self.begin(group.iter().any(Job::must_last)) {
            self.pace.failed();
            let error = self.committer.explain(error);
            group.into_iter().for_each(|job| job.refuse(&error));
            self.committer.kept = released;
            return Answers::default();
        }
        self.carry_out(group, released)
    }

    fn begin(&mut self, must_last: bool) -> Result<()> {
        self.committer.settle()?;
        self.committer.set_sync(must_last).map_err(sql)?;
        run_cached(&self.committer.db, "BEGIN IMMEDIATE").map_err(schema::doing("beginning to write"))
    }

    /// Does jobs in the transaction that was begun, and ends it.
    fn carry_out(&mut self, group: Vec<Job>, released: Vec<(SessionId, Fence)>) -> Answers {
        for session in group.iter().filter_map(Job::writes) {
            self.pace.wrote(session);
        }
        let (began, must_last) = (Time::now(), group.iter().any(Job::must_last));
        let changes = CHANGES.map(|change| group.iter().any(|job| job.makes() == Some(change)).then_some(change));
        let committer = &mut self.committer;
        let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
        // Why nothing of the group may be committed.
        let mut spoilt: Option<Error> = None;
        let mut brought = 0;
        if group.iter().any(Job::brings) {
            match committer.bring_soon() {
                Ok(count) => brought = count,
                Err(error) => spoilt = Some(error),
            }
        }
        let has_neighbours = group.len() > 1;
        for job in group {
            // SQLite may have undone everything by itself; what came now would stand alone.
            if let Some(error) = &spoilt {
                job.refuse(error);
                continue;
            }
            // One job's failure must not undo its neighbours' work.
            if has_neighbours && let Err(error) = run_cached(&committer.db, "SAVEPOINT job") {
                job.refuse(&sql(error));
                continue;
            }
            let (failed, answer) = job.work(committer);
            answers.push(answer);
            if !has_neighbours {
                spoilt = failed;
                break;
            }
            if let Some(error) = failed {
                // The index forgets what this job appended to the pack; what its neighbours appended must last.
                let undone =
                    committer.leave_pack().and_then(|()| run_cached(&committer.db, "ROLLBACK TO job").map_err(sql));
                spoilt = undone.err().map(|undone| match error {
                    Error::Machine { trouble: Trouble::Other, .. } => undone,
                    error => error,
                });
            }
            let _ = run_cached(&committer.db, "RELEASE job");
        }
        let is_synced = must_last || committer.has_unsynced_blobs();
        let finished = match spoilt {
            Some(error) => Err(error),
            None => committer.finish(),
        };
        if finished.is_err() {
            let _ = committer.db.execute_batch("ROLLBACK");
            committer.forget_pack();
            committer.kept = released;
            self.pace.failed();
        } else {
            committer.arrived(brought);
            changes.into_iter().flatten().for_each(|change| committer.signals.tell(change));
            if is_synced {
                self.pace.took(Time::now().micros_since(began));
            }
        }
        Answers { answers, failed: finished.err() }
    }
}

/// What is to be said to those who sent the jobs, once the next one may sit down.
#[derive(Default)]
pub(super) struct Answers {
    answers: Vec<Answer>,
    failed: Option<Error>,
}

impl Answers {
    pub(super) fn give(self) {
        self.answers.into_iter().for_each(|answer| answer(self.failed.as_ref()));
    }
}

fn run_cached(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}
