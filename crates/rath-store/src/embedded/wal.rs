//! Tracks the length of the write-ahead log (WAL), to decide when it is checkpointed into the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rath_core::store::Result;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::schema::sql;

/// From this many pages on, the WAL is checkpointed. A short WAL is overwritten in place, which syncs faster than a
/// file that grows.
const LONG: i32 = 250;

/// The limit in pages while single commits write [`LONG`] pages or more. A checkpoint after each of them would take as
/// long as the commit.
const TOO_LONG: i32 = 4096;

/// The most WAL bytes that are kept on disk, more than [`TOO_LONG`] pages. A long read transaction lets the WAL grow
/// beyond this; the excess is truncated when SQLite next restarts the WAL.
pub(super) const SIZE_LIMIT: i64 = 32 << 20;

/// The length of the WAL after the last commit of a connection.
pub(super) struct WalLength {
    pages: Arc<AtomicI32>,
    /// How many pages the last commit wrote.
    last_commit: Arc<AtomicI32>,
}

impl WalLength {
    /// Installs a hook that runs after every commit. SQLite no longer checkpoints by itself on this connection.
    pub(super) fn watch(db: &mut Connection) -> Result<Self> {
        let log = Self { pages: Arc::default(), last_commit: Arc::default() };
        let (length, last_commit) = (log.pages.clone(), log.last_commit.clone());
        let hook = move |_: &mut Wal, pages: i32| {
            let before = length.swap(pages, Ordering::Relaxed);
            // A WAL that is shorter than before was restarted.
            last_commit.store(if pages > before { pages - before } else { pages }, Ordering::Relaxed);
            Ok(())
        };
        db.wal_hook(Some(hook)).map_err(sql)?;
        Ok(log)
    }

    pub(super) fn is_long(&self) -> bool {
        let (pages, last_commit) = (self.pages.load(Ordering::Relaxed), self.last_commit.load(Ordering::Relaxed));
        pages >= if last_commit < LONG { LONG } else { TOO_LONG }
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use rath_core::{Actor, Blob, Session};

    use crate::Embedded;
    use crate::embedded::schema::{self, Access};
    use crate::embedded::wal::{LONG, SIZE_LIMIT};

    #[test]
    fn a_wal_that_grew_during_a_long_read_is_truncated() {
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
        let reader = schema::connect(&database, Access::Read).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM sessions").unwrap();
        for _ in 0..100_000 {
            if length() > SIZE_LIMIT as u64 {
                break;
            }
            write();
        }
        assert!(length() > SIZE_LIMIT as u64);
        drop(reader);
        (0..3).for_each(|_| write());
        assert!(length() <= SIZE_LIMIT as u64, "{}", length());
    }

    /// Commits of blobs alone are not synced. Saving files makes only such commits, and they must not let the WAL grow.
    #[test]
    fn the_wal_stays_short_while_only_blobs_are_stored() {
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
