//! The entries of a projection, in a table of its database.

use std::cell::Cell;

use rath_core::store::{EntryVisitor, Error, Result, Storage};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::ProjectionError;

pub(super) const TABLE: &str = "CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// The storage of a projection.
pub(super) struct Entries<'a> {
    db: &'a Connection,
    /// The last error of the database.
    error: Cell<Option<rusqlite::Error>>,
}

impl<'a> Entries<'a> {
    pub(super) fn of(db: &'a Connection) -> Self {
        Self { db, error: Cell::new(None) }
    }

    /// Runs `work` with the storage. Distinguishes errors of this database from other errors.
    pub(super) fn run(
        &mut self,
        work: impl FnOnce(&mut dyn Storage) -> Result<()>,
    ) -> std::result::Result<(), ProjectionError> {
        work(self).map_err(|error| match self.error.take() {
            Some(error) => ProjectionError::Database(error),
            None => ProjectionError::Store(error),
        })
    }

    fn done<T>(&self, done: rusqlite::Result<T>) -> Result<T> {
        done.map_err(|error| {
            let returned = Error::machine("working with the database of a projection", error.to_string());
            self.error.set(Some(error));
            returned
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

    fn each(&self, prefix: &[u8], each: &mut EntryVisitor<'_>) -> Result<()> {
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
