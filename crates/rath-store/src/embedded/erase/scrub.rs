//! Removes erased bytes from files: packs, the database, its write-ahead log and its backups.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use rath_core::Digest;
use rath_core::store::{Error, IoErrorKind, Result};
use rusqlite::{Connection, OptionalExtension as _};

use super::EraseReport;
use crate::embedded::schema::{doing, sql};
use crate::embedded::suspect_wal::SuspectWal;
use crate::embedded::upgrade::{self, FormatBackup};
use crate::embedded::{Embedded, vacuum};
use rath_workspace::durable::sync_dir;

/// The packs that these blobs are in.
pub(super) fn packs_of(db: &Connection, blobs: &[Digest]) -> Result<Vec<String>> {
    let query = "SELECT p.name FROM blobs b JOIN packs p ON p.no = b.pack WHERE b.digest = ?1";
    let mut query = db.prepare(query).map_err(sql)?;
    let mut names = Vec::new();
    for blob in blobs {
        names.extend(query.query_row([blob.0], |row| row.get::<_, String>(0)).optional().map_err(sql)?);
        names.dedup();
    }
    Ok(names)
}

impl Embedded {
    /// Overwrites the bytes of these packs that are not indexed. Rewrites a pack if no process appends to it.
    pub(super) fn scrub_packs(&self, db: &Connection, names: &[String], report: &mut EraseReport) -> Result<()> {
        for name in names {
            let path = self.paths.packs.join(name);
            let io =
                |error: io::Error| Error::machine(format!("overwriting erased bytes in {}", path.display()), error);
            let file = match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io(error)),
            };
            let query = "SELECT no, length FROM packs WHERE name = ?1";
            let row = db.query_row(query, [name], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
            let length = file.metadata().map_err(io)?.len();
            let Some((no, indexed)) = row.optional().map_err(sql)? else {
                // The pack was rewritten before an interruption; only the old file is left.
                overwrite(&file, &[(0, length)]).map_err(io)?;
                fs::remove_file(&path).map_err(io)?;
                report.freed += length;
                continue;
            };
            // Overwritten even if the pack is rewritten, because a process may have the old file open.
            let gaps = gaps(db, no, indexed as u64)?;
            overwrite(&file, &gaps).map_err(io)?;
            if file.try_lock().is_err() {
                report.overwritten += gaps.iter().map(|(from, to)| to - from).sum::<u64>();
                continue;
            }
            let kept = self.rewrite_pack(db, no, name)?;
            fs::remove_file(&path).map_err(io)?;
            report.packs += 1;
            report.freed += length.saturating_sub(kept);
        }
        match names.is_empty() {
            true => Ok(()),
            false => sync_dir(&self.paths.packs).map_err(|error| Error::machine("removing packs", error)),
        }
    }

    /// Removes the backups of the database from format upgrades, because they contain the erased data.
    pub(super) fn remove_backups(&self, report: &mut EraseReport) -> Result<()> {
        for FormatBackup { path, bytes, .. } in upgrade::backups(&self.paths.database) {
            fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))?;
            report.freed += bytes;
            report.backups.push(path);
        }
        match report.backups.is_empty() {
            true => Ok(()),
            false => sync_dir(&self.paths.root).map_err(|error| Error::machine("removing backups", error)),
        }
    }
}

/// The ranges of the first `length` bytes of a pack that are not indexed.
fn gaps(db: &Connection, pack: i64, length: u64) -> Result<Vec<(u64, u64)>> {
    let mut query = db.prepare("SELECT offset, stored FROM blobs WHERE pack = ?1 ORDER BY offset").map_err(sql)?;
    let rows = query.query_map([pack], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)));
    let (mut gaps, mut end) = (Vec::new(), 0);
    for row in rows.map_err(sql)? {
        let (offset, stored) = row.map_err(sql)?;
        if offset > end {
            gaps.push((end, offset));
        }
        end = end.max(offset.saturating_add(stored));
    }
    if end < length {
        gaps.push((end, length));
    }
    Ok(gaps)
}

fn overwrite(file: &File, gaps: &[(u64, u64)]) -> io::Result<()> {
    let nothing = vec![0; 256 * 1024];
    for (from, to) in gaps {
        let mut at = *from;
        while at < *to {
            let length = (*to - at).min(nothing.len() as u64);
            file.write_all_at(&nothing[..length as usize], at)?;
            at += length;
        }
    }
    file.sync_data()
}

/// Rebuilds the database and truncates the WAL, which has old pages. SQLite overwrites deleted rows with zeros
/// (`secure_delete`), but if it moved a row to another page before, the free part of the old page may still have a
/// copy.
pub(super) fn database(db: &Connection, suspect_wal: &SuspectWal, report: &mut EraseReport) -> Result<()> {
    report.freed += vacuum::run(db, suspect_wal, "rebuilding the database, which may still contain erased data")?;
    truncate_wal(db, suspect_wal)
}

fn truncate_wal(db: &Connection, suspect_wal: &SuspectWal) -> Result<()> {
    suspect_wal.repair(db)?;
    let busy = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match suspect_wal.check_database(busy.map_err(doing("truncating the database log")))? {
        0 => Ok(()),
        _ => Err(Error::with_kind(
            "truncating the database log, which may still contain erased data",
            IoErrorKind::Busy,
            "another process has a long read transaction",
        )),
    }
}
