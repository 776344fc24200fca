//! What a failed sync leaves in doubt, for all connections of a store that write.
//!
//! After a sync that failed, the kernel takes for written what it could not write, and later syncs say nothing of it. So
//! before anything is promised again, what may be missing is written once more, as the kernel has it at hand. Whose sync
//! it was does not matter: the log is one for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rath_core::store::{Error, Result, Trouble};
use rusqlite::Connection;

use super::schema::{self, doing, sql};

const LOG: u64 = 1;
const PAGES: u64 = 2;
const WHAT: u64 = LOG | PAGES;

/// So often one begins anew when syncs go on failing.
const TRIES: usize = 3;

/// What may not be on the disk. The lowest bits say it; above them stands how often something was noted, so that nobody
/// takes a new doubt for the one he settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt(Arc<AtomicU64>);

impl Doubt {
    /// Passes on what came of a commit. Where the disk failed, the log is in doubt.
    pub(super) fn of_log<T>(&self, done: Result<T>) -> Result<T> {
        self.note(LOG, done)
    }

    /// Passes on what came of moving the log. Where the disk failed, pages of the database are in doubt too, and not only
    /// those that were moved now: SQLite does not sync what it moves while somebody still reads an older end of the log,
    /// and does not move it again.
    pub(super) fn of_pages<T>(&self, done: Result<T>) -> Result<T> {
        self.note(WHAT, done)
    }

    fn note<T>(&self, what: u64, done: Result<T>) -> Result<T> {
        if is_of_disk(&done) {
            let noted = |state: u64| Some(state.wrapping_add(WHAT + 1) | what);
            let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, noted);
        }
        done
    }

    /// Whether there is any.
    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::Acquire) & WHAT != 0
    }

    /// Writes what is in doubt once more. Until that is done, and where it fails, the doubt stays.
    pub(super) fn settle(&self, db: &Connection) -> Result<()> {
        for _ in 0..TRIES {
            let seen = self.0.load(Ordering::Acquire);
            if seen & WHAT == 0 {
                return Ok(());
            }
            self.of_log(schema::write_log_again(db))?;
            if seen & PAGES != 0 {
                // Every page goes through the log again, and is moved with it. A log as long as the database is not kept.
                self.of_pages(db.execute_batch("VACUUM").map_err(doing("writing the database again")))?;
                let moved = self.of_pages(schema::empty_log(db));
                if is_of_disk(&moved) {
                    return moved;
                }
            }
            let _ = self.0.compare_exchange(seen, seen & !WHAT, Ordering::AcqRel, Ordering::Acquire);
        }
        let why = "syncs go on failing";
        Err(Error::trouble("writing again what may not be on the disk", Trouble::Disk, why))
    }

    /// Ends a transaction. Where somebody else's sync failed meanwhile, it counts only when that is settled.
    pub(super) fn commit(&self, db: &Connection) -> Result<()> {
        let done = self.of_log(db.execute_batch("COMMIT").map_err(sql));
        if done.is_err() {
            let _ = db.execute_batch("ROLLBACK");
        }
        done.and_then(|()| self.settle(db))
    }

    /// Makes durable what was committed without a sync.
    pub(super) fn sync_log(&self, db: &Connection) -> Result<()> {
        self.settle(db)?;
        self.of_log(schema::sync_log(db))
    }

    /// Moves what nobody reads any more into the database.
    pub(super) fn shorten_log(&self, db: &Connection) -> Result<()> {
        self.settle(db)?;
        self.of_pages(schema::shorten_log(db))
    }

    /// Moves all of the log and cuts it off.
    pub(super) fn empty_log(&self, db: &Connection) -> Result<()> {
        self.settle(db)?;
        self.of_pages(schema::empty_log(db))
    }
}

/// Whether the disk failed.
pub(super) fn is_of_disk<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::Machine { trouble: Trouble::Disk, .. }))
}
