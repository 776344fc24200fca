//! How long the database's log is, and when it is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rath_core::store::Result;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::schema::sql;

/// As many pages are long. A short log is written over and over in place, which syncs faster than one that grows.
const LONG: i32 = 250;

/// As many pages are too long, also while one commit brings as many as [`LONG`]: to move the log each time would take as
/// long as to write it.
const TOO_LONG: i32 = 4096;

/// As many bytes of it stay on disk, which is more than a log that is [`TOO_LONG`] has. While somebody looks at one moment for long it grows by all that is written, and what
/// grew is cut off when it is begun anew.
pub(super) const ROOM: i64 = 32 << 20;

/// The log of a connection, as its last commit left it.
pub(super) struct Log {
    pages: Arc<AtomicI32>,
    /// How many of them the last commit brought.
    brought: Arc<AtomicI32>,
}

impl Log {
    /// Hears of every commit. SQLite does not move the log by itself from now on.
    pub(super) fn of(db: &mut Connection) -> Result<Self> {
        let log = Self { pages: Arc::default(), brought: Arc::default() };
        let (heard, brought) = (log.pages.clone(), log.brought.clone());
        let hear = move |_: &mut Wal, pages: i32| {
            let before = heard.swap(pages, Ordering::Relaxed);
            // A log that is shorter than before was begun anew.
            brought.store(if pages > before { pages - before } else { pages }, Ordering::Relaxed);
            Ok(())
        };
        db.wal_hook(Some(hear)).map_err(sql)?;
        Ok(log)
    }

    pub(super) fn is_long(&self) -> bool {
        let (pages, brought) = (self.pages.load(Ordering::Relaxed), self.brought.load(Ordering::Relaxed));
        pages >= if brought < LONG { LONG } else { TOO_LONG }
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use rath_core::{Actor, Blob, Session};

    use crate::Embedded;
    use crate::embedded::log::{LONG, ROOM};
    use crate::embedded::schema::{self, Access};

    #[test]
    fn what_grew_while_somebody_looked_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path()).unwrap();
        let mut session = Session::create(&store, Actor::program("busy"));
        let mut write = || {
            session.note("words ".repeat(500)).unwrap();
            block_on(session.publish()).unwrap();
        };
        write();
        let database = dir.path().join("rath.db");
        let length = || database.with_extension("db-wal").metadata().unwrap().len();
        let looking = schema::connect(&database, Access::Read).unwrap();
        looking.execute_batch("BEGIN; SELECT count(*) FROM sessions").unwrap();
        for _ in 0..100_000 {
            if length() > ROOM as u64 {
                break;
            }
            write();
        }
        assert!(length() > ROOM as u64);
        drop(looking);
        (0..3).for_each(|_| write());
        assert!(length() <= ROOM as u64, "{}", length());
    }

    /// Commits of blobs alone are not synced. They must not let the log grow: saving files is nothing but such commits.
    #[test]
    fn the_log_stays_short_while_only_blobs_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path()).unwrap();
        let log = dir.path().join("rath.db-wal");
        for number in 0..600u32 {
            let blob = Blob::new(number.to_le_bytes().repeat(300), "application/octet-stream");
            block_on(store.blob_put(vec![blob])).unwrap();
        }
        let page = 4096 + 24;
        let bytes = log.metadata().unwrap().len();
        assert!(bytes < 2 * LONG as u64 * page, "the log has {bytes} bytes");
    }
}
