//! The health report of a store: sizes, leftovers, outdated indexes.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use rath_core::SessionId;
use rath_core::store::Result;
use serde::Serialize;

use super::schema::sql;
use super::{Embedded, FormatBackup, holder, ids, integrity, schema, upgrade};
use crate::search::SearchHealth;

/// The health of a store, as `rath doctor` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct StoreHealth {
    /// The format of the store.
    pub format: i64,
    /// The version of SQLite in use.
    pub sqlite: String,
    /// The number of sessions.
    pub sessions: u64,
    /// The number of closed sessions.
    pub closed: u64,
    /// The number of records.
    pub records: u64,
    /// The number of segments. Each publish is at least one segment.
    pub segments: u64,
    /// The length of the database file.
    pub database_bytes: u64,
    /// The length of the write-ahead log.
    pub log_bytes: u64,
    /// The packs.
    pub packs: Vec<PackHealth>,
    /// The number of segments that are not in the index of record ids yet.
    pub ids_behind: u64,
    /// The search index.
    pub search: SearchHealth,
    /// The ids of holders whose process has ended and whose lock file remained.
    pub dead_holders: Vec<String>,
    /// The number of sessions whose lease belongs to a process that has ended. Any process can lease them.
    pub orphaned: u64,
    /// The free bytes on the disk of the store, if the file system reports them.
    #[serde(rename = "room")]
    pub free_disk: Option<u64>,
    /// Backups of the database from upgrades of the store's format.
    pub backups: Vec<FormatBackup>,
    /// Files in the directory of packs that are not in the table of packs.
    pub unnamed_packs: Vec<String>,
    /// Files in the store's directory that are not part of a store.
    #[serde(rename = "strangers")]
    pub unknown_files: Vec<String>,
    /// The damage that SQLite's `quick_check` and the check for missing rows found.
    pub damage: Vec<String>,
}

/// The health of one pack.
#[derive(Clone, Debug, Serialize)]
pub struct PackHealth {
    /// The file name.
    pub name: String,
    /// The length of the file; `None` if it is missing.
    pub bytes: Option<u64>,
    /// The length according to the table of packs.
    pub indexed: u64,
    /// Why the file exists but cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl Embedded {
    /// Reports the health of the store. Changes nothing.
    pub fn health(&self) -> Result<StoreHealth> {
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
            let mut unknown_files = names(&self.paths.root);
            unknown_files.retain(|name| !is_part(name));
            let last = count("SELECT coalesce(max(cursor), 0) FROM segments")?;
            let mut check = db.prepare("PRAGMA quick_check(10)").map_err(sql)?;
            let mut damage: Vec<String> = match check.query_map([], |row| row.get::<_, String>(0)) {
                Ok(lines) => lines
                    .map(|line| line.unwrap_or_else(|error| error.to_string()))
                    .filter(|line| line != "ok")
                    .collect(),
                Err(error) => vec![error.to_string()],
            };
            damage.extend(integrity::check_session_list(db).err().map(|error| error.to_string()));
            damage.extend(integrity::faults(db).unwrap_or_else(|error| vec![error.to_string()]));
            Ok(StoreHealth {
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
                free_disk: free_disk(&self.paths.root),
                backups: upgrade::backups(&self.paths.database),
                unnamed_packs,
                unknown_files,
                damage,
            })
        })
    }

    /// The stored bytes of the records of each session.
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

    /// Checkpoints the write-ahead log into the database and truncates it.
    pub fn checkpoint(&self) -> Result<()> {
        self.suspect_wal.truncate_wal(&self.connect_to_write()?)
    }
}

/// The bytes that a user other than root can still write to the disk.
fn free_disk(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    // A file system that does not report its size has 0 blocks.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The sorted names of the files in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The files of a store, except its databases and their backups.
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
