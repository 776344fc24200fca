//! Kinds of I/O errors, by what a user can do about them.

use std::error::Error;
use std::io::{self, ErrorKind};

/// The kind of an I/O error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The disk is full, or a quota or file size limit is reached.
    Full,
    /// The file system is read-only, or permission is denied.
    ReadOnly,
    /// The disk reported an I/O error.
    Disk,
    /// Stored data is damaged.
    Damaged,
    /// Another process blocks the store.
    Busy,
    /// Any other error.
    Other,
}

/// The number of `EIO`, the same on every Unix.
const EIO: i32 = 5;

impl IoErrorKind {
    /// All kinds.
    pub const ALL: &'static [IoErrorKind] = &[
        IoErrorKind::Full,
        IoErrorKind::ReadOnly,
        IoErrorKind::Disk,
        IoErrorKind::Damaged,
        IoErrorKind::Busy,
        IoErrorKind::Other,
    ];

    /// The kind of an error, from the first `io::Error` in its chain of causes that has one.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut at = Some(error);
        while let Some(error) = at {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => return Self::Full,
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => return Self::ReadOnly,
                    _ if error.raw_os_error() == Some(EIO) => return Self::Disk,
                    _ => {}
                }
            }
            at = error.source();
        }
        Self::Other
    }

    /// The error code; `docs/errors/CODE.md` explains what to do.
    pub fn code(&self) -> &'static str {
        match self {
            IoErrorKind::Full => "disk-full",
            IoErrorKind::ReadOnly => "read-only-store",
            IoErrorKind::Disk => "disk-failed",
            IoErrorKind::Damaged => "store-damaged",
            IoErrorKind::Busy => "store-busy",
            IoErrorKind::Other => "machine",
        }
    }

    /// What to do about the error, in one sentence.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            IoErrorKind::Full => Some("free some space and try again; acknowledged records are safe"),
            IoErrorKind::ReadOnly => Some(
                "nothing was written; fix the permissions of the store's files, or copy the store to a writable directory",
            ),
            IoErrorKind::Disk => {
                Some("copy the store to another disk and run `rath verify` there; the failed operation wrote nothing")
            }
            IoErrorKind::Damaged => {
                Some("run `rath verify` to see what is intact; keep the files and return to a backup")
            }
            IoErrorKind::Busy => {
                Some("nothing was written; try again when the other process has finished or was resumed")
            }
            IoErrorKind::Other => None,
        }
    }
}
