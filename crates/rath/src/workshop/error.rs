//! What goes wrong where sessions meet files and commands.

use rath_core::files::{Change, Name};
use rath_core::{SessionId, store};
use rath_workspace as workspace;

/// What the workshop returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a session's files or commands could not be worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session refused or failed.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
    /// The files could not be saved or set.
    #[error(transparent)]
    Workspace(#[from] workspace::Error),
    /// The backend refused or failed.
    #[error(transparent)]
    Sandbox(#[from] rath_sandbox::Error),
    /// The session works nowhere.
    #[error("session {} has no place to work in", .0.short())]
    NotPlaced(SessionId),
    /// The session works in a directory of its own.
    #[error("session {} works in {directory} itself: there is nothing to bring there", session.short())]
    InPlace {
        /// The session.
        session: SessionId,
        /// The directory.
        directory: Name,
    },
    /// The session's files come from nowhere.
    #[error("the files of session {} come from no directory", .0.short())]
    NoOrigin(SessionId),
    /// A directory with files of its own.
    #[error("{directory} holds other files than the session")]
    NotEmpty {
        /// The directory.
        directory: String,
    },
    /// Conflicts that nobody has decided.
    #[error("session {} has {} open: {}", session.short(), conflicts(.paths.len()), names(.paths))]
    Conflicts {
        /// The session.
        session: SessionId,
        /// Where.
        paths: Vec<Name>,
    },
    /// There is no such conflict.
    #[error("session {} has no open conflict on {path}", session.short())]
    NoConflict {
        /// The session.
        session: SessionId,
        /// The path.
        path: Name,
    },
    /// A path in conflict with several branches, and no word whose side is meant.
    #[error("{path} is in conflict with {}: say whose side", .branches.iter().map(|branch| branch.short()).collect::<Vec<_>>().join(", "))]
    SeveralSides {
        /// The path.
        path: Name,
        /// The branches.
        branches: Vec<SessionId>,
    },
    /// Files in the origin that changed meanwhile.
    #[error("changed in {directory} since the session took its files:\n{}", list(.paths))]
    ChangedMeanwhile {
        /// The origin.
        directory: String,
        /// Which.
        paths: Vec<Name>,
    },
    /// Nothing changed the files.
    #[error("no record of session {} changed its files: there is nothing to take back", .0.short())]
    NothingToUndo(SessionId),
    /// A session whose files are layers: no directory has them all.
    #[error("the files of session {} are layers that only its sandbox shows as one: no directory has them", .0.short())]
    Layered(SessionId),
    /// The line that makes a copy ready for work failed.
    #[error("the setup `{line}` failed ({ended})\n{output}")]
    Setup {
        /// The line.
        line: String,
        /// How it ended.
        ended: String,
        /// What it complained about, the beginning.
        output: String,
    },
    /// Files that the session has not seen.
    #[error("{} not in the session yet:\n{}", changed(.changes.len()), list_changes(.changes))]
    Unsaved {
        /// The session.
        session: SessionId,
        /// What changed.
        changes: Vec<Change>,
    },
}

fn conflicts(count: usize) -> String {
    format!("{count} conflict{}", if count == 1 { "" } else { "s" })
}

fn changed(count: usize) -> String {
    format!("{count} changed path{}", if count == 1 { " is" } else { "s are" })
}

fn names(paths: &[Name]) -> String {
    let more = if paths.len() > 5 { format!(" and {} more", paths.len() - 5) } else { String::new() };
    paths.iter().take(5).map(Name::to_string).collect::<Vec<_>>().join(", ") + &more
}

fn list(paths: &[Name]) -> String {
    let mut lines: Vec<_> = paths.iter().take(20).map(|path| format!("  {path}")).collect();
    if paths.len() > 20 {
        lines.push(format!("  and {} more", paths.len() - 20));
    }
    lines.join("\n")
}

fn list_changes(changes: &[Change]) -> String {
    let paths: Vec<_> =
        changes.iter().take(20).map(|change| format!("  {} {}", change.letter(), change.path)).collect();
    paths.join("\n")
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Error::Session(error.into())
    }
}

impl Error {
    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &str {
        match self {
            Error::Session(error) => error.code(),
            Error::Workspace(error) => error.code(),
            Error::Sandbox(error) => error.code(),
            Error::NotPlaced(_) => "not-placed",
            Error::InPlace { .. } | Error::NoOrigin(_) => "nothing-to-apply",
            Error::NotEmpty { .. } => "directory-not-empty",
            Error::Conflicts { .. } => "open-conflicts",
            Error::NoConflict { .. } => "no-conflict",
            Error::SeveralSides { .. } => "several-sides",
            Error::ChangedMeanwhile { .. } => "changed-meanwhile",
            Error::NothingToUndo(_) => "nothing-to-undo",
            Error::Layered(_) => "layered",
            Error::Setup { .. } => "setup-failed",
            Error::Unsaved { .. } => "unsaved-changes",
        }
    }
}
