//! The pool of read connections.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rath_core::store::Result;
use rusqlite::Connection;

use super::schema::{self, Access};

/// The pool, with its idle connections.
#[derive(Debug)]
pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Opens a first connection, which fails if the database is not a store.
    pub(super) fn new(database: PathBuf) -> Result<Self> {
        let first = schema::connect(&database, Access::Read)?;
        Ok(Self { database, idle: Mutex::new(vec![first]) })
    }

    /// Runs `work` on a read connection, which returns to the pool afterwards.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        let db = match pooled {
            Some(db) => db,
            None => schema::connect(&self.database, Access::Read)?,
        };
        let answer = work(&db);
        idle().push(db);
        answer
    }
}
