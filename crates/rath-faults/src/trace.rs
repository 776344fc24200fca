//! The record of file operations, in one file.
//!
//! Each event is six integers of eight bytes, little endian (code, inode, two arguments, length of the name, length of
//! the data), followed by the name and the data. `rath_testkit::power` reads the file.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::rules::{Call, Fault, Rules};

/// A file operation.
pub(crate) enum Event<'a> {
    Write { offset: u64, data: &'a [u8] },
    Truncate { length: u64 },
    Sync { failed: bool },
    Create { parent: u64, name: &'a [u8], directory: bool },
    Link { parent: u64, name: &'a [u8] },
    Unlink { parent: u64, name: &'a [u8] },
    Rename { from: u64, old: &'a [u8], to: u64, new: &'a [u8] },
}

/// The configuration from the environment.
pub(crate) struct Setup {
    root: Vec<u8>,
    trace: Option<c_int>,
    rules: Mutex<Rules>,
}

/// The configuration; `None` if there is no root.
pub(crate) fn setup() -> Option<&'static Setup> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    SETUP.get_or_init(Setup::from_environment).as_ref()
}

impl Setup {
    fn from_environment() -> Option<Self> {
        let root = variable(c"RATH_FAULTS_ROOT")?;
        let trace = variable(c"RATH_FAULTS_TRACE").and_then(|path| {
            let path = std::ffi::CString::new(path).ok()?;
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: the path is a valid C string.
            let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) };
            c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
        });
        let rules = Mutex::new(Rules::parse(&variable(c"RATH_FAULTS_RULES").unwrap_or_default()));
        Some(Self { root, trace, rules })
    }

    /// Whether a path is the root or below it.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        path.strip_prefix(&self.root[..]).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/'))
    }

    /// Takes the lock on all file operations below the root, in all processes, so that they are recorded in the order
    /// in which they happen. Must be called only for operations below the root. A process that was just forked makes
    /// none before `exec`, so it cannot deadlock.
    pub(crate) fn lock(&self) -> Exclusive<'_> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fd) = self.trace {
            // SAFETY: takes no pointer.
            unsafe { libc::flock(fd, libc::LOCK_EX) };
        }
        Exclusive { rules, trace: self.trace }
    }
}

/// The lock on all file operations below the root.
pub(crate) struct Exclusive<'a> {
    rules: MutexGuard<'a, Rules>,
    trace: Option<c_int>,
}

impl Exclusive<'_> {
    /// The fault for a call, if a rule matches.
    pub(crate) fn fault(&mut self, call: Call, name: &[u8]) -> Option<Fault> {
        self.rules.fault(call, name)
    }

    pub(crate) fn set_rules(&mut self, text: &[u8]) {
        *self.rules = Rules::parse(text);
    }

    /// Records an operation on an inode.
    pub(crate) fn record(&self, inode: u64, event: &Event<'_>) {
        let Some(fd) = self.trace else { return };
        let joined;
        let (code, a, b, name, data): (u64, u64, u64, &[u8], &[u8]) = match event {
            Event::Write { offset, data } => (1, *offset, 0, &[], data),
            Event::Truncate { length } => (2, *length, 0, &[], &[]),
            Event::Sync { failed } => (3, u64::from(*failed), 0, &[], &[]),
            Event::Create { parent, name, directory } => (4, *parent, u64::from(*directory), name, &[]),
            Event::Link { parent, name } => (5, *parent, 0, name, &[]),
            Event::Unlink { parent, name } => (6, *parent, 0, name, &[]),
            Event::Rename { from, old, to, new } => {
                joined = [old, &b"/"[..], new].concat();
                (7, *from, *to, &joined, &[])
            }
        };
        let mut bytes = Vec::with_capacity(48 + name.len() + data.len());
        for number in [code, inode, a, b, name.len() as u64, data.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(data);
        // SAFETY: writes a valid buffer.
        unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.trace {
            // SAFETY: takes no pointer.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
        }
    }
}

fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the environment is read once, at the first call, before the program changes it.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns null or a C string.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}
