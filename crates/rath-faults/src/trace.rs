//! What happened, in one file.
//!
//! Each event: six numbers of eight bytes, little endian (what, inode, two more, length of the name, length of the data),
//! then name and data. `rath_testkit::power` reads it.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::rules::{Call, Fault, Rules};

/// What an event says.
pub(crate) enum What<'a> {
    Write { offset: u64, data: &'a [u8] },
    Truncate { length: u64 },
    Sync { failed: bool },
    Create { parent: u64, name: &'a [u8], directory: bool },
    Link { parent: u64, name: &'a [u8] },
    Unlink { parent: u64, name: &'a [u8] },
    Rename { from: u64, old: &'a [u8], to: u64, new: &'a [u8] },
}

/// What the environment says.
pub(crate) struct Setup {
    root: Vec<u8>,
    trace: Option<c_int>,
    rules: Mutex<Rules>,
}

/// The setup; `None` where there is no root.
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
            // SAFETY: opens a path that lives.
            let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) };
            c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
        });
        let rules = Mutex::new(Rules::parse(&variable(c"RATH_FAULTS_RULES").unwrap_or_default()));
        Some(Self { root, trace, rules })
    }

    /// Whether a path is the root or below it.
    pub(crate) fn holds(&self, path: &[u8]) -> bool {
        path.strip_prefix(&self.root[..]).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/'))
    }

    /// Lets nobody else change a file until it is dropped: what is written down happened in that order. Who asks knows
    /// that the call is about a file below the root: a process that was just forked changes none.
    pub(crate) fn alone(&self) -> Alone<'_> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fd) = self.trace {
            // SAFETY: a number.
            unsafe { libc::flock(fd, libc::LOCK_EX) };
        }
        Alone { rules, trace: self.trace }
    }
}

/// One call at a time.
pub(crate) struct Alone<'a> {
    rules: MutexGuard<'a, Rules>,
    trace: Option<c_int>,
}

impl Alone<'_> {
    /// What shall happen to a call.
    pub(crate) fn fault(&mut self, call: Call, name: &[u8]) -> Option<Fault> {
        self.rules.fault(call, name)
    }

    pub(crate) fn set_rules(&mut self, text: &[u8]) {
        *self.rules = Rules::parse(text);
    }

    /// Writes down what happened to an inode.
    pub(crate) fn tell(&self, inode: u64, what: &What<'_>) {
        let Some(fd) = self.trace else { return };
        let joined;
        let (code, a, b, name, data): (u64, u64, u64, &[u8], &[u8]) = match what {
            What::Write { offset, data } => (1, *offset, 0, &[], data),
            What::Truncate { length } => (2, *length, 0, &[], &[]),
            What::Sync { failed } => (3, u64::from(*failed), 0, &[], &[]),
            What::Create { parent, name, directory } => (4, *parent, u64::from(*directory), name, &[]),
            What::Link { parent, name } => (5, *parent, 0, name, &[]),
            What::Unlink { parent, name } => (6, *parent, 0, name, &[]),
            What::Rename { from, old, to, new } => {
                joined = [old, &b"/"[..], new].concat();
                (7, *from, *to, &joined, &[])
            }
        };
        let mut event = Vec::with_capacity(48 + name.len() + data.len());
        for number in [code, inode, a, b, name.len() as u64, data.len() as u64] {
            event.extend_from_slice(&number.to_le_bytes());
        }
        event.extend_from_slice(name);
        event.extend_from_slice(data);
        // SAFETY: writes bytes that live.
        unsafe { libc::syscall(libc::SYS_write, fd, event.as_ptr(), event.len()) };
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.trace {
            // SAFETY: a number.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
        }
    }
}

fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the environment is read once, before the program changes it.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: what is not null is a string of C.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}
