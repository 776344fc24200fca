//! The place from which the store is written, one at a time. What waits when it is free is committed together, with one
//! sync.

use rath_core::Time;
use rath_core::store::{Error, Trouble};
use rusqlite::Connection;

use super::commit::Committer;
use super::job::{Answer, Job};
use super::pace::Pace;
use super::schema::{self, sql};

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
        self.pace.suits(job.writes())
    }

    /// What it writes with. No transaction is open.
    pub(super) fn connection(&self) -> &Connection {
        &self.committer.db
    }

    /// At the end.
    pub(super) fn leave(&mut self) {
        self.committer.give_back();
    }

    /// Commits jobs together. One job's failure undoes none of its neighbours.
    pub(super) fn write(&mut self, mut group: Vec<Job>) {
        for session in group.iter().filter_map(Job::writes) {
            self.pace.wrote(session);
        }
        let committer = &mut self.committer;
        let again = std::mem::take(&mut committer.kept);
        group.splice(0..0, again.into_iter().map(|(session, fence)| Job::Release { session, fence }));
        let released: Vec<_> = group.iter().filter_map(Job::gives_back).collect();
        let (began, must_last) = (Time::now(), group.iter().any(Job::must_last));
        let begun = committer.settle().and_then(|()| {
            committer.set_sync(must_last).map_err(sql)?;
            run_cached(&committer.db, "BEGIN IMMEDIATE").map_err(schema::doing("beginning to write"))
        });
        if let Err(error) = begun {
            let error = committer.explain(error);
            group.into_iter().for_each(|job| job.refuse(&error));
            committer.kept = released;
            return;
        }
        let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
        // Why nothing of the group may be committed.
        let mut spoilt: Option<Error> = None;
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
        let finished = match spoilt {
            Some(error) => Err(error),
            None => committer.finish(),
        };
        if finished.is_err() {
            let _ = committer.db.execute_batch("ROLLBACK");
            committer.forget_pack();
            committer.kept = released;
        }
        answers.into_iter().for_each(|answer| answer(finished.as_ref().err()));
        if must_last {
            self.pace.took(Time::now().micros_since(began));
        }
    }
}

fn run_cached(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}
