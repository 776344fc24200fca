//! What kind of refusal a machine's is. It decides what to do about it.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Why a machine refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// No room is left.
    Full,
    /// Nothing may be written there.
    ReadOnly,
    /// The disk fails.
    Disk,
    /// What is stored is not what was written.
    Damaged,
    /// Another process keeps the store for itself.
    Busy,
    /// Anything else.
    Other,
}

/// "Input/output error" on every Unix.
const EIO: i32 = 5;

impl Trouble {
    /// Every kind.
    pub const ALL: &'static [Trouble] =
        &[Trouble::Full, Trouble::ReadOnly, Trouble::Disk, Trouble::Damaged, Trouble::Busy, Trouble::Other];

    /// The kind of trouble behind an error: what the operating system said, wherever it is among the causes.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut at = Some(error);
        while let Some(error) = at {
            if let Some(said) = error.downcast_ref::<io::Error>() {
                match said.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => return Self::Full,
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => return Self::ReadOnly,
                    _ if said.raw_os_error() == Some(EIO) => return Self::Disk,
                    _ => {}
                }
            }
            at = error.source();
        }
        Self::Other
    }

    /// The code of errors of this kind; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &'static str {
        match self {
            Trouble::Full => "disk-full",
            Trouble::ReadOnly => "read-only-store",
            Trouble::Disk => "disk-failed",
            Trouble::Damaged => "store-damaged",
            Trouble::Busy => "store-busy",
            Trouble::Other => "machine",
        }
    }

    /// What to do about it, in a sentence.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Trouble::Full => Some("free some space and try again; what was acknowledged is safe"),
            Trouble::ReadOnly => Some(
                "nothing was written; mend the permissions of the store's files, or copy it to where you may write",
            ),
            Trouble::Disk => {
                Some("copy the store to another disk and `rath verify` it there; what failed was not written")
            }
            Trouble::Damaged => Some("`rath verify` says what is still good; keep the files, and go back to a copy"),
            Trouble::Busy => Some("nothing was written; try again when the other process is done, or was woken"),
            Trouble::Other => None,
        }
    }
}
