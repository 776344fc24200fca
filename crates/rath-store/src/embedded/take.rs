//! Taking a session from a process that keeps it and does nothing, and finding such processes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rath_core::SessionId;
use rath_core::store::{Holder, Result};

use super::Embedded;
use super::job::Job;

/// The byte of a WAL index that a process locks while it writes to the database.
const WRITE_LOCK: &str = "120";

impl Embedded {
    /// Takes a session from whoever holds it, and says who that was. A lock that dies with its process cannot tell a
    /// stopped one from a busy one: a person decides. The holder learns it when it next writes, and nothing of that is
    /// stored.
    pub async fn take(&self, session: SessionId) -> Result<Option<Holder>> {
        self.write(|reply| Job::Take { session, reply }).await
    }

    /// Whether a process stands still (SIGSTOP, a debugger), as far as this machine can say.
    pub fn is_stopped(process: u32) -> bool {
        // The name may hold anything, also parentheses.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| matches!(rest.trim_start().chars().next(), Some('T' | 't')))
    }
}

/// Why the database was locked for so long: who writes to it.
pub(super) fn who_writes(database: &Path) -> String {
    match locker(database) {
        Some(process) if Embedded::is_stopped(process) => format!(
            "process {process} was stopped while it was writing; wake it with `kill -CONT {process}`, or end it with \
             `kill -KILL {process}`: what it had not finished is undone"
        ),
        Some(process) => format!("process {process} has been writing for half a minute"),
        None => "another process has been writing for half a minute".into(),
    }
}

/// The process that has the write lock. Asked of the kernel: to open the file and close it again would give up the locks
/// that this process has on it.
fn locker(database: &Path) -> Option<u32> {
    let index = fs::metadata(database.with_extension("db-shm")).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut writers = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", process, file, from, to] = words[..] else { return None };
        let is_this = file.rsplit(':').next() == Some(&index) && from == WRITE_LOCK && to == WRITE_LOCK;
        is_this.then(|| process.parse().ok()).flatten()
    });
    writers.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn the_process_that_writes_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rath.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n); ").unwrap();
        assert_eq!(locker(&path), None);
        db.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(locker(&path), Some(std::process::id()));
        assert!(who_writes(&path).contains(&format!("process {} has been writing", std::process::id())));
        db.execute_batch("COMMIT").unwrap();
        assert_eq!(locker(&path), None);
    }
}
