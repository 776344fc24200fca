//! Errors of workspace operations.

use rath_core::files::{Change, FilePath};
use rath_core::store::{self, IoErrorKind};

/// The result of a workspace operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workspace was not saved or changed. No file was lost in any of these cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory does not exist.
    #[error("directory not found: {0}")]
    Missing(String),
    /// The home directory, one of its ancestors, `/`, or a directory in the store.
    #[error("refusing {directory} as a workspace: it is {what}")]
    Protected {
        /// The directory that was refused.
        directory: String,
        /// Why it is protected: the end of the sentence "the directory is …".
        what: &'static str,
    },
    /// The workspace is larger than [`WorkspaceBudget`](crate::WorkspaceBudget) allows.
    #[error("{directory} has more than {limit} {what}; most are in {heaviest}")]
    OverBudget {
        /// The workspace.
        directory: String,
        /// The largest allowed number.
        limit: u64,
        /// What is limited: "files" or "bytes".
        what: &'static str,
        /// The top-level entries with the most files, with their numbers of files.
        heaviest: String,
    },
    /// Files changed outside of the session, since the version that its last record names.
    #[error("{} changed since the session's last record:\n{}", files(.changes.len()), list(.changes))]
    OutsideChanges {
        /// The differences.
        changes: Vec<Change>,
    },
    /// An unversioned file is at a path that a restore must write.
    #[error("unversioned files are in the way; move or remove them:\n{}", .paths.iter().map(|path| format!("  {path}")).collect::<Vec<_>>().join("\n"))]
    InTheWay {
        /// The unversioned files.
        paths: Vec<FilePath>,
    },
    /// Another process has locked the directory.
    #[error("{directory} is in use by process {process}")]
    Busy {
        /// The directory that another process uses.
        directory: String,
        /// The id of the process that uses it.
        process: String,
    },
    /// An ignore rule in the configuration is not valid.
    #[error(transparent)]
    BadRule(#[from] super::BadRule),
    /// The journal of an interrupted restore cannot be read.
    #[error("cannot read the restore journal {path}: {why}")]
    BrokenJournal {
        /// The file.
        path: String,
        /// The parse error.
        why: String,
    },
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// An operating system call failed.
    #[error("{doing}: {cause}")]
    Machine {
        /// The operation that failed, as a phrase such as "writing /path".
        doing: String,
        /// The error of the operating system.
        cause: std::io::Error,
    },
}

fn files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "path has" } else { "paths have" })
}

fn list(changes: &[Change]) -> String {
    let mut lines: Vec<_> =
        changes.iter().take(20).map(|change| format!("  {} {}", change.letter(), change.path)).collect();
    if changes.len() > 20 {
        lines.push(format!("  and {} more", changes.len() - 20));
    }
    lines.join("\n")
}

impl Error {
    /// The error code. `docs/errors/CODE.md` explains it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Missing(_) => "no-directory",
            Error::Protected { .. } => "protected-directory",
            Error::OverBudget { .. } => "over-budget",
            Error::OutsideChanges { .. } => "outside-changes",
            Error::InTheWay { .. } => "in-the-way",
            Error::Busy { .. } => "workspace-busy",
            Error::BadRule(_) => "bad-rule",
            Error::BrokenJournal { .. } => "broken-journal",
            Error::Store(error) => error.code(),
            Error::Machine { cause, .. } => match IoErrorKind::of(cause) {
                kind @ (IoErrorKind::Full | IoErrorKind::Disk) => kind.code(),
                _ => "machine",
            },
        }
    }

    /// Wraps an error of the operating system. `doing` is the operation that failed, such as "writing /path".
    pub(crate) fn machine(doing: impl Into<String>, cause: impl Into<std::io::Error>) -> Self {
        Error::Machine { doing: doing.into(), cause: cause.into() }
    }
}
