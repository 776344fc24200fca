//! Connections that only read, used again.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rath_core::store::Result;
use rusqlite::Connection;

use super::schema::{self, Access};

/// Those that nobody uses just now.
#[derive(Debug)]
pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// With a first connection, which says whether this is a store.
    pub(super) fn new(database: PathBuf) -> Result<Self> {
        let first = schema::connect(&database, Access::Read)?;
        Ok(Self { database, idle: Mutex::new(vec![first]) })
    }

    /// Runs `work` on a connection that only reads. A page of records is the most that is read at once.
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
