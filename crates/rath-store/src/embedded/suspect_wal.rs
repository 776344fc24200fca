//! Tracks whether the write-ahead log or the database may be missing on the disk after a failed sync.
//!
//! After a failed fsync, the kernel marks the pages clean although it did not write them, and a later fsync succeeds
//! without writing them. A later successful sync therefore proves nothing. Before the store acknowledges anything
//! again, it rewrites the suspect files from the page cache, which still has the data. All writing connections of an
//! [`Embedded`](super::Embedded) share one [`SuspectWal`], because they share one WAL file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rath_core::store::{Error, IoErrorKind, Result};
use rusqlite::Connection;

use super::schema::{self, doing, sql};

/// The WAL is suspect.
const WAL: u64 = 1;
/// The pages of the database file are suspect.
const DATABASE: u64 = 2;
const FLAGS: u64 = WAL | DATABASE;

/// How many times [`SuspectWal::repair`] rewrites the files while syncs keep failing.
const TRIES: usize = 3;

/// The suspect files. The two lowest bits are the flags. The bits above count failures, so that a repair does not clear
/// the flag of a failure that happened while the repair ran.
#[derive(Clone, Debug, Default)]
pub(super) struct SuspectWal(Arc<AtomicU64>);

impl SuspectWal {
    /// Returns the result of a commit. On an I/O error, marks the WAL as suspect.
    pub(super) fn check_wal<T>(&self, done: Result<T>) -> Result<T> {
        self.note(WAL, done)
    }

    /// Returns the result of a checkpoint. On an I/O error, marks the WAL and the whole database file as suspect, and
    /// not only the pages of this checkpoint: SQLite does not sync a checkpoint while a reader still uses an older
    /// snapshot of the WAL, and it does not copy those pages again.
    pub(super) fn check_database<T>(&self, done: Result<T>) -> Result<T> {
        self.note(FLAGS, done)
    }

    fn note<T>(&self, flags: u64, done: Result<T>) -> Result<T> {
        if is_disk_error(&done) {
            let marked = |state: u64| Some(state.wrapping_add(FLAGS + 1) | flags);
            let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, marked);
        }
        done
    }

    /// Whether the WAL or the database is suspect.
    pub(super) fn is_suspect(&self) -> bool {
        self.0.load(Ordering::Acquire) & FLAGS != 0
    }

    /// Rewrites the suspect files. The flags are cleared only after the rewrite succeeded.
    pub(super) fn repair(&self, db: &Connection) -> Result<()> {
        for _ in 0..TRIES {
            let seen = self.0.load(Ordering::Acquire);
            if seen & FLAGS == 0 {
                return Ok(());
            }
            self.check_wal(schema::rewrite_wal(db))?;
            if seen & DATABASE != 0 {
                // VACUUM writes every page through the WAL. The checkpoint copies them to the database and truncates
                // the WAL.
                self.check_database(
                    db.execute_batch("VACUUM").map_err(doing("rewriting the database after a failed sync")),
                )?;
                let moved = self.check_database(schema::truncate_wal(db));
                if is_disk_error(&moved) {
                    return moved;
                }
            }
            let _ = self.0.compare_exchange(seen, seen & !FLAGS, Ordering::AcqRel, Ordering::Acquire);
        }
        let why = format!("{TRIES} attempts failed");
        Err(Error::with_kind("rewriting the database and its log after a failed sync", IoErrorKind::Disk, why))
    }

    /// Commits the open transaction. If another connection's sync failed since, the commit succeeds only after the
    /// repair.
    pub(super) fn commit(&self, db: &Connection) -> Result<()> {
        let done = self.check_wal(db.execute_batch("COMMIT").map_err(sql));
        if done.is_err() {
            let _ = db.execute_batch("ROLLBACK");
        }
        done.and_then(|()| self.repair(db))
    }

    /// Makes the commits durable that were made without a sync.
    pub(super) fn sync_wal(&self, db: &Connection) -> Result<()> {
        self.repair(db)?;
        self.check_wal(schema::sync_wal(db))
    }

    /// Copies the part of the WAL that no reader needs into the database.
    pub(super) fn checkpoint_wal(&self, db: &Connection) -> Result<()> {
        self.repair(db)?;
        self.check_database(schema::checkpoint_wal(db))
    }

    /// Copies the whole WAL into the database and truncates the WAL.
    pub(super) fn truncate_wal(&self, db: &Connection) -> Result<()> {
        self.repair(db)?;
        self.check_database(schema::truncate_wal(db))
    }
}

/// Whether the result is an I/O error of the disk.
pub(super) fn is_disk_error<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::Machine { kind: IoErrorKind::Disk, .. }))
}
