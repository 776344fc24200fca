//! How a store is doing: sizes, leftovers, lag.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use rath_core::SessionId;
use rath_core::store::Result;
use serde::Serialize;

use super::schema::sql;
use super::{Backup, Embedded, holder, ids, lines, raise, schema};
use crate::search::SearchHealth;

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
    /// The search index.
    pub search: SearchHealth,
    /// Lock files of processes that are gone.
    pub dead_holders: Vec<String>,
    /// Sessions held by a process that is gone. They are free to take.
    pub orphaned: u64,
    /// Bytes that may still be written to the disk that the store is on, where the system says so.
    pub room: Option<u64>,
    /// Databases of older formats, kept when the store was raised.
    pub backups: Vec<Backup>,
    /// Files in the directory of packs that the index does not name.
    pub unnamed_packs: Vec<String>,
    /// What stands in the store's directory and is not part of a store.
    pub strangers: Vec<String>,
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
    /// Why its file cannot be read, where it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl Embedded {
    /// Looks at the store without changing anything.
    pub fn health(&self) -> Result<Health> {
        let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).unwrap_or(0);
        let dead_holders = holder::dead(&self.paths.holders);
        let search = self.search_health()?;
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
                let path = self.paths.packs.join(&name);
                let bytes = fs::metadata(&path).ok().map(|meta| meta.len());
                let opened = fs::File::open(&path).and_then(|mut file| file.read(&mut [0]));
                let unreadable = opened.err().filter(|_| bytes.is_some()).map(|error| error.to_string());
                PackHealth { name, bytes, indexed: indexed as u64, unreadable }
            };
            let packs: Vec<PackHealth> =
                packs.map(|row| row.map(pack)).collect::<rusqlite::Result<_>>().map_err(sql)?;
            let mut unnamed_packs = names(&self.paths.packs);
            unnamed_packs.retain(|name| packs.iter().all(|pack| pack.name != *name));
            let mut strangers = names(&self.paths.root);
            strangers.retain(|name| !is_part(name));
            let last = count("SELECT coalesce(max(cursor), 0) FROM segments")?;
            let mut check = db.prepare("PRAGMA quick_check(10)").map_err(sql)?;
            let mut damage: Vec<String> = match check.query_map([], |row| row.get::<_, String>(0)) {
                Ok(lines) => lines
                    .map(|line| line.unwrap_or_else(|error| error.to_string()))
                    .filter(|line| line != "ok")
                    .collect(),
                Err(error) => vec![error.to_string()],
            };
            damage.extend(lines::check_list(db).err().map(|error| error.to_string()));
            damage.extend(lines::faults(db).unwrap_or_else(|error| vec![error.to_string()]));
            Ok(Health {
                format: schema::format(db)?,
                sqlite: rusqlite::version().into(),
                sessions: count("SELECT count(*) FROM sessions NOT INDEXED")?,
                closed: count("SELECT count(*) FROM sessions WHERE closed")?,
                records: count("SELECT coalesce(sum(count), 0) FROM segments")?,
                segments: count("SELECT count(*) FROM segments")?,
                database_bytes: size(&self.paths.database),
                log_bytes: size(&self.paths.database.with_extension("db-wal")),
                packs,
                ids_behind: last.saturating_sub(ids::cursor(db)? as u64),
                search,
                dead_holders,
                orphaned,
                room: room(&self.paths.root),
                backups: raise::backups(&self.paths.database),
                unnamed_packs,
                strangers,
                damage,
            })
        })
    }

    /// The bytes of each session's records, as they are stored.
    pub fn sizes(&self) -> Result<HashMap<SessionId, u64>> {
        self.read(|db| {
            let query = "SELECT s.id, g.bytes FROM sessions s
                JOIN (SELECT session, sum(length(data)) AS bytes FROM segments GROUP BY session) g ON g.session = s.no";
            let mut query = db.prepare_cached(query).map_err(sql)?;
            let sizes = query.query_map([], |row| {
                Ok((SessionId(uuid::Uuid::from_bytes(row.get(0)?)), row.get::<_, i64>(1)? as u64))
            });
            sizes.map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)
        })
    }

    /// Moves the log into the database and cuts it off.
    pub fn checkpoint(&self) -> Result<()> {
        self.doubt.empty_log(&self.connect_to_write()?)
    }
}

/// What is left on the disk for who is not root.
fn room(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    // A file system that counts nothing has no blocks at all.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The names of what is in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What a store is made of, beside its databases and their copies.
const PARTS: &[&str] = &[
    "packs",
    "holders",
    "workspaces",
    "erasing",
    "projections",
    "watch",
    ".gitignore",
    "gc.lock",
    "search.lock",
    "config.toml",
];

fn is_part(name: &str) -> bool {
    PARTS.contains(&name)
        || name.starts_with("rath.db")
        || name.starts_with("search.db")
        || name.starts_with("written-by.json")
}
