//! Revoking the lease of a stopped process, and finding the process that blocks writes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rath_core::SessionId;
use rath_core::store::{Holder, Result};

use super::Embedded;
use super::schema::BUSY_TIMEOUT;
use super::write_request::WriteRequest;

/// The byte of the `-shm` file that a process locks while it writes to the database.
const WRITE_LOCK: &str = "120";

impl Embedded {
    /// Revokes the lease of a session and returns its holder, if there was one. The holder's next commit fails and
    /// stores nothing. The lock of a holder does not show whether its process is stopped or busy, so only a person
    /// should decide to call this.
    pub async fn revoke_lease(&self, session: SessionId) -> Result<Option<Holder>> {
        self.write(|reply| WriteRequest::Revoke { session, reply }).await
    }

    /// Whether a process is stopped, by SIGSTOP or a debugger. Returns `false` if that cannot be determined.
    pub fn is_stopped(process: u32) -> bool {
        // The process name may contain parentheses.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| matches!(rest.trim_start().chars().next(), Some('T' | 't')))
    }
}

/// The cause of a lock timeout: which process is writing to the database.
pub(super) fn who_writes(database: &Path) -> String {
    match locker(database) {
        Some(process) if Embedded::is_stopped(process) => format!(
            "process {process} was stopped while it was writing; continue it with `kill -CONT {process}`, or end it with \
             `kill -KILL {process}`, which rolls back its unfinished transaction"
        ),
        Some(process) => format!("process {process} has been writing for {} s", BUSY_TIMEOUT.as_secs()),
        None => format!("another process has been writing for {} s", BUSY_TIMEOUT.as_secs()),
    }
}

/// The process that has the write lock, from `/proc/locks`. This process must not open the file to test the lock,
/// because closing it would release its own POSIX locks on the file.
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
    fn the_writing_process_is_named() {
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
