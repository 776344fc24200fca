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
