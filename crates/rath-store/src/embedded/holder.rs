//! Holders: processes that have leases. Each has a lock file in `holders/`, and the kernel releases the lock when the
//! process ends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rath_core::Time;
use rath_core::store::{Error, Holder, Result};

/// The lock file of this process. Its leases end when this is dropped or the process ends.
pub(super) struct HolderLock {
    pub(super) holder: Holder,
    path: PathBuf,
    /// The locked file.
    _lock: File,
}

impl HolderLock {
    /// Creates and locks the file of this process.
    pub(super) fn create(dir: &Path, program: &str) -> Result<Self> {
        let enter = || -> io::Result<Self> {
            fs::create_dir_all(dir)?;
            remove_dead(dir);
            let id = rath_core::fresh_name();
            let holder = Holder { id, process: std::process::id(), program: program.into(), since: Time::now() };
            // The file is locked before it gets its name, so that no process takes it for the file of a dead holder.
            let path = dir.join(format!("{}.lock", holder.id));
            let unnamed = dir.join(format!("{}.new", holder.id));
            let mut lock = File::create_new(&unnamed)?;
            lock.try_lock().map_err(io::Error::other)?;
            lock.write_all(&serde_json::to_vec(&holder)?)?;
            fs::rename(&unnamed, &path)?;
            Ok(Self { holder, path, _lock: lock })
        };
        enter().map_err(|error| Error::machine(format!("creating a lock file in {}", dir.display()), error))
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The holder with this id, if its process is alive.
pub(super) fn living(dir: &Path, id: &str) -> Option<Holder> {
    let path = dir.join(format!("{id}.lock"));
    let unknown = || Some(Holder { id: id.into(), process: 0, program: "unknown".into(), since: Time(0) });
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        // A holder whose lock cannot be tested counts as alive.
        Err(_) => return unknown(),
    };
    match lock.try_lock_shared() {
        Ok(()) => None,
        Err(_) => fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).or_else(unknown),
    }
}

/// The ids of holders whose process has ended.
pub(super) fn dead(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_suffix(".lock").map(str::to_owned));
    ids.filter(|id| living(dir, id).is_none()).collect()
}

/// Removes the files of dead holders.
fn remove_dead(dir: &Path) {
    for id in dead(dir) {
        let _ = fs::remove_file(dir.join(format!("{id}.lock")));
    }
    // Files without their final name that are older than one hour, left by a crash.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok().filter(|age| age.as_secs() > 3600);
        if entry.path().extension().is_some_and(|end| end == "new") && old().is_some() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
