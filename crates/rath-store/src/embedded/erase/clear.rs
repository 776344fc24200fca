//! Clears bytes out of files: packs, the database, its log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use rath_core::Digest;
use rath_core::store::{Error, Result, Trouble};
use rusqlite::{Connection, OptionalExtension as _};

use super::Destroyed;
use crate::embedded::doubt::Doubt;
use crate::embedded::raise::{self, Backup};
use crate::embedded::schema::{doing, sql};
use crate::embedded::{Embedded, anew};
use rath_workspace::durable::sync_dir;

/// The packs that hold these blobs.
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
    /// Overwrites what the index does not name in these packs, and writes them anew where nobody appends to them.
    pub(super) fn clear_packs(&self, db: &Connection, names: &[String], destroyed: &mut Destroyed) -> Result<()> {
        for name in names {
            let path = self.paths.packs.join(name);
            let io = |error: io::Error| Error::machine(format!("clearing {}", path.display()), error);
            let file = match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io(error)),
            };
            let query = "SELECT no, length FROM packs WHERE name = ?1";
            let row = db.query_row(query, [name], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
            let length = file.metadata().map_err(io)?.len();
            let Some((no, indexed)) = row.optional().map_err(sql)? else {
                // Moved out already; only the file was left.
                overwrite(&file, &[(0, length)]).map_err(io)?;
                fs::remove_file(&path).map_err(io)?;
                destroyed.freed += length;
                continue;
            };
            // Who still has the file open after it is removed finds nothing either.
            let gaps = gaps(db, no, indexed as u64)?;
            overwrite(&file, &gaps).map_err(io)?;
            if file.try_lock().is_err() {
                destroyed.overwritten += gaps.iter().map(|(from, to)| to - from).sum::<u64>();
                continue;
            }
            let kept = self.move_out(db, no, name)?;
            fs::remove_file(&path).map_err(io)?;
            destroyed.packs += 1;
            destroyed.freed += length.saturating_sub(kept);
        }
        match names.is_empty() {
            true => Ok(()),
            false => sync_dir(&self.paths.packs).map_err(|error| Error::machine("removing packs", error)),
        }
    }

    /// Removes what was kept of the database when its format was raised: nobody goes back to a ledger that still says
    /// what was to be forgotten.
    pub(super) fn clear_backups(&self, destroyed: &mut Destroyed) -> Result<()> {
        for Backup { path, bytes, .. } in raise::backups(&self.paths.database) {
            fs::remove_file(&path).map_err(|error| Error::machine(format!("removing {}", path.display()), error))?;
            destroyed.freed += bytes;
            destroyed.backups.push(path);
        }
        match destroyed.backups.is_empty() {
            true => Ok(()),
            false => sync_dir(&self.paths.root).map_err(|error| Error::machine("removing backups", error)),
        }
    }
}

/// What the index does not name of the first `length` bytes of a pack.
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

/// Writes the database anew, and cuts the log off, which has the pages as they were. What was deleted is zero already; but
/// where SQLite moved a row to another page, while it lived, the old page may still have it in its free part.
pub(super) fn database(db: &Connection, doubt: &Doubt, destroyed: &mut Destroyed) -> Result<()> {
    destroyed.freed += anew::write(db, doubt, "writing the database anew, which may hold what was erased")?;
    cut_log(db, doubt)
}

fn cut_log(db: &Connection, doubt: &Doubt) -> Result<()> {
    doubt.settle(db)?;
    let busy = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match doubt.of_pages(busy.map_err(doing("cutting off the log of the database")))? {
        0 => Ok(()),
        _ => Err(Error::trouble(
            "cutting off the log of the database, which may hold what was erased",
            Trouble::Busy,
            "somebody has been reading for long",
        )),
    }
}
