//! What goes wrong with the files of a workspace.

use rath_core::files::{Change, Name};
use rath_core::store::{self, Trouble};

/// What workspace operations return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workspace was not saved or changed. Whatever it says, no file was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory is not there.
    #[error("there is no directory {0}")]
    Missing(String),
    /// A directory that is hardly meant.
    #[error("{directory} is {what}: a workspace there would take in far more than a project")]
    Protected {
        /// The directory.
        directory: String,
        /// What it is.
        what: &'static str,
    },
    /// More than the budget allows.
    #[error("{directory} has more than {limit} {what}; most are in {heaviest}")]
    OverBudget {
        /// The workspace.
        directory: String,
        /// The limit.
        limit: u64,
        /// Of what.
        what: &'static str,
        /// The entries of the root that hold most.
        heaviest: String,
    },
    /// Files differ from what the session knows.
    #[error("{} changed since the session's last record:\n{}", files(.changes.len()), list(.changes))]
    OutsideChanges {
        /// What differs.
        changes: Vec<Change>,
    },
    /// Something that is not versioned stands where a file must go.
    #[error("not versioned, and in the way:\n{}", .paths.iter().map(|path| format!("  {path}")).collect::<Vec<_>>().join("\n"))]
    InTheWay {
        /// The paths.
        paths: Vec<Name>,
    },
    /// Another process works on the directory.
    #[error("{directory} is in use by process {process}")]
    Busy {
        /// The directory.
        directory: String,
        /// Who.
        process: String,
    },
    /// A rule in the configuration that is none.
    #[error(transparent)]
    BadRule(#[from] super::BadRule),
    /// The note about an unfinished restore cannot be read.
    #[error("{path} says what a restore had begun, and cannot be read: {why}")]
    BrokenJournal {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The machine refused.
    #[error("{doing}: {cause}")]
    Machine {
        /// What was being done.
        doing: String,
        /// What the machine said.
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
    /// The error's code; `docs/errors/CODE.md` says what to do.
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
            Error::Machine { cause, .. } => match Trouble::of(cause) {
                trouble @ (Trouble::Full | Trouble::Disk) => trouble.code(),
                _ => "machine",
            },
        }
    }

    /// Wraps what the machine said while `doing` something.
    pub(crate) fn machine(doing: impl Into<String>, cause: impl Into<std::io::Error>) -> Self {
        Error::Machine { doing: doing.into(), cause: cause.into() }
    }
}
