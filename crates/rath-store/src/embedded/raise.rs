//! Brings a store of an older format to the current one, step by step, and keeps the old database beside it.
//!
//! All steps are one transaction. Before it writes, the database is copied whole under another name, synced and given
//! its name: whoever is interrupted at any point leaves a store of the old format or of the new one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rath_core::store::{Error, Result};
use rusqlite::backup::{Backup as Copying, StepResult};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use serde::Serialize;

use super::schema::{self, Access, FORMAT, STEPS, doing};
use rath_workspace::durable::sync_dir;

/// Pages that are copied at once.
const PAGES: i32 = 4096;

/// A store that was brought to the current format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Raised {
    /// The format that it had.
    pub from: i64,
    /// The format that it has.
    pub to: i64,
    /// Where the old database is kept.
    pub backup: PathBuf,
}

/// A database of an older format, kept when the store was raised. It holds what was erased since, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backup {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: i64,
    /// Its length.
    pub bytes: u64,
}

/// Brings the store to the current format, if it has an older one. Another process may be doing the same.
pub(super) fn raise(db: &Connection, path: &Path) -> Result<Option<Raised>> {
    if schema::format(db)? == FORMAT {
        return Ok(None);
    }
    let failed = || doing("bringing the store to the current format");
    let raising = Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(failed())?;
    let from = schema::format(&raising)?;
    if from > FORMAT {
        return Err(Error::Future { found: from, known: FORMAT });
    }
    if from == FORMAT {
        return Ok(None);
    }
    let backup = keep(path, from)?;
    for (_, step) in STEPS.iter().filter(|(to, _)| *to > from) {
        raising.execute_batch(step).map_err(failed())?;
    }
    raising.pragma_update(None, "user_version", FORMAT).map_err(failed())?;
    raising.commit().map_err(failed())?;
    Ok(Some(Raised { from, to: FORMAT, backup }))
}

/// Copies the database as it is. The caller has the write lock, so nothing changes meanwhile, and what an interrupted
/// attempt left is nobody's.
fn keep(path: &Path, format: i64) -> Result<PathBuf> {
    let backup = place(path, format);
    let unfinished = |suffix: &str| PathBuf::from(format!("{}.{suffix}.new", backup.display()));
    let copied = leftovers(path).and_then(|old| old.iter().try_for_each(fs::remove_file)).map_err(Into::into);
    let copied = copied.and_then(|()| copy(path, &unfinished(&rath_core::fresh_name()), &backup));
    copied.map_err(|cause| {
        for leftover in leftovers(path).unwrap_or_default() {
            let _ = fs::remove_file(leftover);
        }
        let size = fs::metadata(path).map(|database| database.len()).unwrap_or_default();
        let what =
            format!("keeping a copy of the database of format {format} before it becomes one of format {FORMAT}");
        let help = format!("make room for {size} bytes beside it and try again; reading works without");
        Error::machine(what, format!("{cause}. The store is as it was\n  help: {help}"))
    })?;
    Ok(backup)
}

fn copy(from: &Path, unfinished: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mode = fs::metadata(from)?.permissions().mode() & 0o777;
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(unfinished)?;
    let source = schema::connect(from, Access::Read)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(unfinished, flags)?;
    // Nobody reads it before it is whole: it is synced once, at the end.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let copying = Copying::new(&source, &mut target)?;
    loop {
        match copying.step(PAGES)? {
            StepResult::Done => break,
            StepResult::More => {}
            // The write lock is ours, so nobody is in the way for long.
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

fn place(path: &Path, format: i64) -> PathBuf {
    path.with_file_name(format!("{}{format}{SUFFIX}", prefix(path)))
}

const SUFFIX: &str = ".backup";

fn prefix(path: &Path) -> String {
    format!("{}.format-", path.file_name().unwrap_or_default().to_string_lossy())
}

fn beside(path: &Path) -> io::Result<Vec<(PathBuf, String)>> {
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

/// What an interrupted attempt left.
fn leftovers(path: &Path) -> io::Result<Vec<PathBuf>> {
    let unfinished = |(_, rest): &(PathBuf, String)| rest.contains(".backup.") && rest.contains(".new");
    Ok(beside(path)?.into_iter().filter(unfinished).map(|(path, _)| path).collect())
}

/// The databases of older formats that are kept beside this one.
pub(super) fn backups(path: &Path) -> Vec<Backup> {
    let format = |rest: &str| rest.strip_suffix(SUFFIX)?.parse().ok();
    let backup = |(path, rest): (PathBuf, String)| {
        let bytes = File::open(&path).and_then(|file| file.metadata()).ok()?.len();
        Some(Backup { format: format(&rest)?, bytes, path })
    };
    let mut backups: Vec<_> = beside(path).unwrap_or_default().into_iter().filter_map(backup).collect();
    backups.sort_by_key(|backup| backup.format);
    backups
}
