//! How a store is doing: sizes, leftovers, lag.

use std::fs;
use std::path::Path;

use rath_core::store::Result;
use serde::Serialize;

use super::schema::sql;
use super::{Embedded, holder, ids, schema};

/// What `rath doctor` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// The store's format.
    pub format: i64,
    /// The version of SQLite in use.
    pub sqlite: String,
    /// Sessions.
    pub sessions: u64,
    /// Of those, closed.
    pub closed: u64,
    /// Records.
    pub records: u64,
    /// Published tails.
    pub segments: u64,
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Bytes of its log that are not in the database yet.
    pub log_bytes: u64,
    /// Packs.
    pub packs: Vec<PackHealth>,
    /// Segments that the index of record ids has not seen yet.
    pub ids_behind: u64,
    /// Lock files of processes that are gone.
    pub dead_holders: Vec<String>,
    /// Sessions held by a process that is gone. They are free to take.
    pub orphaned: u64,
    /// What SQLite says about its file; empty when it is well.
    pub damage: Vec<String>,
}

/// One pack.
#[derive(Clone, Debug, Serialize)]
pub struct PackHealth {
    /// Its file name.
    pub name: String,
    /// Bytes on disk; `None` when the file is gone.
    pub bytes: Option<u64>,
    /// Bytes the index names.
    pub indexed: u64,
}

impl Embedded {
    /// Looks at the store without changing anything.
    pub fn health(&self) -> Result<Health> {
        let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).unwrap_or(0);
        let dead_holders = holder::dead(&self.paths.holders);
        self.read(|db| {
            let _moment = db.unchecked_transaction().map_err(sql)?;
            let count = |text: &str| db.query_row(text, [], |row| row.get::<_, i64>(0)).map(|n| n as u64).map_err(sql);
            let mut holders =
                db.prepare("SELECT holder, count(*) FROM sessions WHERE holder IS NOT NULL GROUP BY 1").map_err(sql)?;
            let held =
                holders.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).map_err(sql)?;
            let mut orphaned = 0;
            for held in held {
                let (id, sessions) = held.map_err(sql)?;
                if holder::living(&self.paths.holders, &id).is_none() {
                    orphaned += sessions as u64;
                }
            }
            let mut packs = db.prepare("SELECT name, length FROM packs ORDER BY no").map_err(sql)?;
            let packs =
                packs.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).map_err(sql)?;
            let pack = |(name, indexed): (String, i64)| {
                let bytes = fs::metadata(self.paths.packs.join(&name)).ok().map(|meta| meta.len());
                PackHealth { name, bytes, indexed: indexed as u64 }
            };
            let packs = packs.map(|row| row.map(pack)).collect::<rusqlite::Result<_>>().map_err(sql)?;
            let last = count("SELECT coalesce(max(cursor), 0) FROM segments")?;
            let mut check = db.prepare("PRAGMA quick_check(10)").map_err(sql)?;
            let damage = match check.query_map([], |row| row.get::<_, String>(0)) {
                Ok(lines) => lines
                    .map(|line| line.unwrap_or_else(|error| error.to_string()))
                    .filter(|line| line != "ok")
                    .collect(),
                Err(error) => vec![error.to_string()],
            };
            Ok(Health {
                format: schema::format(db)?,
                sqlite: rusqlite::version().into(),
                sessions: count("SELECT count(*) FROM sessions")?,
                closed: count("SELECT count(*) FROM sessions WHERE closed")?,
                records: count("SELECT coalesce(sum(count), 0) FROM segments")?,
                segments: count("SELECT count(*) FROM segments")?,
                database_bytes: size(&self.paths.database),
                log_bytes: size(&self.paths.database.with_extension("db-wal")),
                packs,
                ids_behind: last.saturating_sub(ids::cursor(db)? as u64),
                dead_holders,
                orphaned,
                damage,
            })
        })
    }

    /// Moves the log into the database and cuts it off.
    pub fn checkpoint(&self) -> Result<()> {
        schema::empty_log(&schema::connect(&self.paths.database, schema::Access::Write)?)
    }
}
