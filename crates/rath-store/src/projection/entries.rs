//! Entries of a projection, in a table.

use std::cell::Cell;

use rath_core::store::{EachEntry, Error, Result, Storage};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Trouble;

pub(super) const TABLE: &str = "CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// The entries in a database.
pub(super) struct Entries<'a> {
    db: &'a Connection,
    /// What the database said no with.
    broken: Cell<Option<rusqlite::Error>>,
}

impl<'a> Entries<'a> {
    pub(super) fn of(db: &'a Connection) -> Self {
        Self { db, broken: Cell::new(None) }
    }

    /// Works on them, and tells failures of this database from others.
    pub(super) fn or_broken(
        &mut self,
        work: impl FnOnce(&mut dyn Storage) -> Result<()>,
    ) -> std::result::Result<(), Trouble> {
        work(self).map_err(|error| match self.broken.take() {
            Some(broken) => Trouble::Database(broken),
            None => Trouble::Store(error),
        })
    }

    fn done<T>(&self, done: rusqlite::Result<T>) -> Result<T> {
        done.map_err(|error| {
            let said = Error::machine("working with the database of a projection", error.to_string());
            self.broken.set(Some(error));
            said
        })
    }
}

impl Storage for Entries<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let query = self.db.prepare_cached("SELECT value FROM entries WHERE key = ?1");
        self.done(query.and_then(|mut query| query.query_row([key], |row| row.get(0)).optional()))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let put = self.db.prepare_cached("INSERT OR REPLACE INTO entries VALUES (?1, ?2)");
        self.done(put.and_then(|mut put| put.execute(params![key, value]))).map(drop)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let delete = self.db.prepare_cached("DELETE FROM entries WHERE key = ?1");
        self.done(delete.and_then(|mut delete| delete.execute([key]))).map(drop)
    }

    fn each(&self, prefix: &[u8], each: &mut EachEntry<'_>) -> Result<()> {
        let mut show = || -> rusqlite::Result<()> {
            let mut query = self.db.prepare_cached("SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key")?;
            let mut rows = query.query([prefix])?;
            while let Some(row) = rows.next()? {
                let (key, value) = (row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
                if !key.starts_with(prefix) || each(key, value).is_break() {
                    break;
                }
            }
            Ok(())
        };
        self.done(show())
    }
}
