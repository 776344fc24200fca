//! The write slot: only its owner writes to the store. Requests that are queued when it becomes free are committed
//! together, with one sync.

use std::time::Duration;

use futures_channel::oneshot;
use rath_core::store::{Error, FencingToken, IoErrorKind, Result};
use rath_core::{SessionId, Time};
use rusqlite::Connection;

use super::change_signal::CHANGES;
use super::commit::Committer;
use super::schema::{self, sql};
use super::write_request::{Reply, WriteRequest};
use super::writer_pacing::WriterPacing;

/// The exclusive owner of the write connection.
pub(super) struct WriteSlot {
    committer: Committer,
    pacing: WriterPacing,
}

impl WriteSlot {
    pub(super) fn new(committer: Committer) -> Self {
        Self { committer, pacing: WriterPacing::default() }
    }

    /// Whether the caller should execute this request on its own thread.
    pub(super) fn prefers_inline(&self, request: &WriteRequest) -> bool {
        self.pacing.prefers_inline(request.written_session()) && self.committer.has_no_backlog() && request.is_small()
    }

    /// The write connection, with no open transaction.
    pub(super) fn connection(&self) -> &Connection {
        &self.committer.db
    }

    /// Pretends that the last ten commits were fast and of this session.
    #[cfg(test)]
    pub(super) fn simulate_fast_commits(&mut self, session: SessionId) {
        for _ in 0..10 {
            self.pacing.record_session(session);
            self.pacing.record_duration(0);
        }
    }

    /// Checkpoints a long WAL. Called after the replies were sent, because no caller has to wait for it.
    pub(super) fn maintain(&mut self) {
        let began = Time::now();
        if self.committer.maintain() {
            self.pacing.record_duration(Time::now().micros_since(began));
        }
    }

    /// Stores the deferred blobs and releases the leases of this process, when the store is closed.
    pub(super) fn shut_down(&mut self) {
        if self.committer.has_deferred() {
            let (reply, _) = oneshot::channel();
            self.write(vec![WriteRequest::Blobs { blobs: Vec::new(), reply }]).send();
        }
        self.committer.release_all();
    }

    /// Commits one request without waiting for other processes. Returns the request if the database is locked.
    pub(super) fn try_write(&mut self, request: WriteRequest) -> std::result::Result<Replies, WriteRequest> {
        let without_waiting = self.committer.db.busy_timeout(Duration::ZERO).map_err(sql);
        let started = without_waiting.and_then(|()| self.start_transaction(request.needs_fsync()));
        let _ = self.committer.db.busy_timeout(schema::BUSY_TIMEOUT);
        if started.is_err() {
            self.pacing.record_failure();
            return Err(request);
        }
        Ok(self.execute_group(vec![request], Vec::new()))
    }

    /// Commits requests in one transaction. A request that fails does not undo the others.
    pub(super) fn write(&mut self, mut group: Vec<WriteRequest>) -> Replies {
        let again = std::mem::take(&mut self.committer.unreleased);
        group.splice(0..0, again.into_iter().map(|(session, fence)| WriteRequest::Release { session, fence }));
        let released: Vec<_> = group.iter().filter_map(WriteRequest::released_lease).collect();
        if let Err(error) = self.start_transaction(group.iter().any(WriteRequest::needs_fsync)) {
            self.pacing.record_failure();
            let error = self.committer.name_writer(error);
            group.into_iter().for_each(|request| request.reject(&error));
            self.committer.unreleased = released;
            return Replies::default();
        }
        self.execute_group(group, released)
    }

    fn start_transaction(&mut self, needs_fsync: bool) -> Result<()> {
        self.committer.repair()?;
        self.committer.set_sync(needs_fsync).map_err(sql)?;
        run_cached(&self.committer.db, "BEGIN IMMEDIATE").map_err(schema::doing("starting a write transaction"))
    }

    /// Executes requests in the open transaction, and commits it or rolls it back.
    fn execute_group(&mut self, group: Vec<WriteRequest>, released: Vec<(SessionId, FencingToken)>) -> Replies {
        for session in group.iter().filter_map(WriteRequest::written_session) {
            self.pacing.record_session(session);
        }
        let (began, needs_fsync) = (Time::now(), group.iter().any(WriteRequest::needs_fsync));
        let changes =
            CHANGES.map(|change| group.iter().any(|request| request.topic() == Some(change)).then_some(change));
        let committer = &mut self.committer;
        let mut replies: Vec<Reply> = Vec::with_capacity(group.len());
        // The reason why the whole group must be rolled back.
        let mut aborted: Option<Error> = None;
        let mut stored_blobs = 0;
        if group.iter().any(WriteRequest::has_data) {
            match committer.put_deferred() {
                Ok(count) => stored_blobs = count,
                Err(error) => aborted = Some(error),
            }
        }
        let has_others = group.len() > 1;
        for request in group {
            // SQLite may have rolled back the transaction. A statement executed now would be committed on its own.
            if let Some(error) = &aborted {
                request.reject(error);
                continue;
            }
            // A savepoint for each request, so that a failed one can be undone alone.
            if has_others && let Err(error) = run_cached(&committer.db, "SAVEPOINT job") {
                request.reject(&sql(error));
                continue;
            }
            let (failed, reply) = request.execute(committer);
            replies.push(reply);
            if !has_others {
                aborted = failed;
                break;
            }
            if let Some(error) = failed {
                // The rollback removes the index rows of what this request appended to the pack. What the other
                // requests appended must be durable, so the pack is synced, and the next request opens another one.
                let rolled_back = committer
                    .sync_and_close_pack()
                    .and_then(|()| run_cached(&committer.db, "ROLLBACK TO job").map_err(sql));
                aborted = rolled_back.err().map(|rolled_back| match error {
                    Error::Machine { kind: IoErrorKind::Other, .. } => rolled_back,
                    error => error,
                });
            }
            let _ = run_cached(&committer.db, "RELEASE job");
        }
        let is_synced = needs_fsync || committer.has_unsynced_blobs();
        let finished = match aborted {
            Some(error) => Err(error),
            None => committer.finish(),
        };
        if finished.is_err() {
            let _ = committer.db.execute_batch("ROLLBACK");
            committer.abandon_pack();
            committer.unreleased = released;
            self.pacing.record_failure();
        } else {
            committer.deferred_committed(stored_blobs);
            changes.into_iter().flatten().for_each(|change| committer.signals.notify(change));
            if is_synced {
                self.pacing.record_duration(Time::now().micros_since(began));
            }
        }
        Replies { replies, failed: finished.err() }
    }
}

/// Replies to send after the write lock is released.
#[derive(Default)]
pub(super) struct Replies {
    replies: Vec<Reply>,
    failed: Option<Error>,
}

impl Replies {
    pub(super) fn send(self) {
        self.replies.into_iter().for_each(|reply| reply(self.failed.as_ref()));
    }
}

fn run_cached(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}
