//! Upgrades a store of an older format to the current one, and keeps a backup of the old database.
//!
//! All steps run in one transaction. Before it writes, the database is copied to a file with a temporary name, which is
//! synced and renamed to the name of the backup. An interruption at any point leaves a store of the old format or of
//! the new one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rath_core::store::{Error, Result};
use rusqlite::backup::{Backup as DatabaseBackup, StepResult};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use serde::Serialize;

use super::schema::{self, Access, FORMAT, STEPS, doing};
use rath_workspace::durable::sync_dir;

/// How many pages one step of the backup copies.
const PAGES_PER_STEP: i32 = 4096;

/// An upgrade of a store to the current format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormatUpgrade {
    /// The old format.
    pub from: i64,
    /// The new format.
    pub to: i64,
    /// The backup of the old database.
    pub backup: PathBuf,
}

/// A database of an older format that was kept when the store was upgraded. It still has what was erased since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormatBackup {
    /// The path of the backup.
    pub path: PathBuf,
    /// The format of the old database.
    pub format: i64,
    /// The length of the file.
    pub bytes: u64,
}

/// Upgrades the store if it has an older format. If several processes try at the same time, only the first one to get the
/// write lock does it.
pub(super) fn upgrade(db: &Connection, path: &Path) -> Result<Option<FormatUpgrade>> {
    if schema::format(db)? == FORMAT {
        return Ok(None);
    }
    let failed = || doing("upgrading the store to the current format");
    let upgrading = Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(failed())?;
    let from = schema::format(&upgrading)?;
    if from > FORMAT {
        return Err(Error::Future { found: from, known: FORMAT });
    }
    if from == FORMAT {
        return Ok(None);
    }
    let backup = back_up(path, from)?;
    for (_, step) in STEPS.iter().filter(|(to, _)| *to > from) {
        upgrading.execute_batch(step).map_err(failed())?;
    }
    upgrading.pragma_update(None, "user_version", FORMAT).map_err(failed())?;
    upgrading.commit().map_err(failed())?;
    Ok(Some(FormatUpgrade { from, to: FORMAT, backup }))
}

/// Copies the database to its backup. The caller has the write lock, so the database does not change, and unfinished
/// copies are leftovers of interrupted upgrades.
fn back_up(path: &Path, format: i64) -> Result<PathBuf> {
    let backup = backup_path(path, format);
    let unfinished = |suffix: &str| PathBuf::from(format!("{}.{suffix}.new", backup.display()));
    let copied = leftovers(path).and_then(|old| old.iter().try_for_each(fs::remove_file)).map_err(Into::into);
    let copied = copied.and_then(|()| copy(path, &unfinished(&rath_core::fresh_name()), &backup));
    copied.map_err(|cause| {
        for leftover in leftovers(path).unwrap_or_default() {
            let _ = fs::remove_file(leftover);
        }
        let size = fs::metadata(path).map(|database| database.len()).unwrap_or_default();
        let what = format!("backing up the database of format {format} before the upgrade to format {FORMAT}");
        let help =
            format!("free {size} bytes on the disk of the store and try again; reading works without the upgrade");
        Error::machine(what, format!("{cause}; the store was not changed\n  help: {help}"))
    })?;
    Ok(backup)
}

fn copy(from: &Path, unfinished: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mode = fs::metadata(from)?.permissions().mode() & 0o777;
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(unfinished)?;
    let source = schema::connect(from, Access::Read)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(unfinished, flags)?;
    // The copy gets its name only when it is complete, so it is synced once, at the end.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let copying = DatabaseBackup::new(&source, &mut target)?;
    loop {
        match copying.step(PAGES_PER_STEP)? {
            StepResult::Done => break,
            StepResult::More => {}
            // This connection has the write lock, so other locks are short.
            _ => std::thread::yield_now(),
        }
    }
    drop(copying);
    target.close().map_err(|(_, error)| error)?;
    file.sync_all()?;
    fs::rename(unfinished, to)?;
    sync_dir(to.parent().unwrap_or(Path::new(".")))?;
    Ok(())
}

fn backup_path(path: &Path, format: i64) -> PathBuf {
    path.with_file_name(format!("{}{format}{SUFFIX}", prefix(path)))
}

const SUFFIX: &str = ".backup";

fn prefix(path: &Path) -> String {
    format!("{}.format-", path.file_name().unwrap_or_default().to_string_lossy())
}

fn backup_files(path: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let prefix = prefix(path);
    let mut found = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        if let Some(rest) = entry.file_name().to_string_lossy().strip_prefix(&prefix) {
            found.push((entry.path(), rest.to_owned()));
        }
    }
    Ok(found)
}

/// Unfinished copies of interrupted upgrades.
fn leftovers(path: &Path) -> io::Result<Vec<PathBuf>> {
    let unfinished = |(_, rest): &(PathBuf, String)| rest.contains(".backup.") && rest.contains(".new");
    Ok(backup_files(path)?.into_iter().filter(unfinished).map(|(path, _)| path).collect())
}

/// The backups of older formats, by format.
pub(super) fn backups(path: &Path) -> Vec<FormatBackup> {
    let format = |rest: &str| rest.strip_suffix(SUFFIX)?.parse().ok();
    let backup = |(path, rest): (PathBuf, String)| {
        let bytes = File::open(&path).and_then(|file| file.metadata()).ok()?.len();
        Some(FormatBackup { format: format(&rest)?, bytes, path })
    };
    let mut backups: Vec<_> = backup_files(path).unwrap_or_default().into_iter().filter_map(backup).collect();
    backups.sort_by_key(|backup| backup.format);
    backups
}
