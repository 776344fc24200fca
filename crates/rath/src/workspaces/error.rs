//! Errors of workspaces.

use rath_core::files::{Change, FilePath};
use rath_core::{SessionId, store};
use rath_workspace as workspace;

/// The result type of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a session's files or commands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the session.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
    /// The files could not be saved or restored.
    #[error(transparent)]
    Workspace(#[from] workspace::Error),
    /// An error of the sandbox or its backend.
    #[error(transparent)]
    Sandbox(#[from] rath_sandbox::Error),
    /// The session has no workspace.
    #[error("session {} has no workspace: assign one with `rath workspace set`", .0.short())]
    NotPlaced(SessionId),
    /// The session works in the origin itself, not in a copy.
    #[error("session {} works in {directory} itself: there is nothing to apply", session.short())]
    InPlace {
        /// The session that works in place.
        session: SessionId,
        /// The directory that it works in.
        directory: FilePath,
    },
    /// The session's files were not copied from a directory.
    #[error("the files of session {} were not copied from a directory: there is nothing to apply", .0.short())]
    NoOrigin(SessionId),
    /// The directory of an in-place workspace has other files than the session.
    #[error("{directory} is not empty and has other files than the session")]
    NotEmpty {
        /// The directory that would be overwritten.
        directory: String,
    },
    /// There are unresolved conflicts.
    #[error("session {} has {} open: {}", session.short(), conflicts(.paths.len()), names(.paths))]
    Conflicts {
        /// The session with the conflicts.
        session: SessionId,
        /// The paths in conflict.
        paths: Vec<FilePath>,
    },
    /// The path has no open conflict.
    #[error("session {} has no open conflict on {path}", session.short())]
    NoConflict {
        /// The session that was to be resolved.
        session: SessionId,
        /// The path that was named.
        path: FilePath,
    },
    /// The path is in conflict with several branches, and the resolution does not name one.
    #[error("{path} is in conflict with {}: name the branch whose side to take", .branches.iter().map(|branch| branch.short()).collect::<Vec<_>>().join(", "))]
    SeveralSides {
        /// The path in conflict.
        path: FilePath,
        /// The branches that it is in conflict with.
        branches: Vec<SessionId>,
    },
    /// Paths to be applied were also changed in the origin since it was copied.
    #[error("{directory} changed since the session copied its files:\n{}", list(.paths))]
    ChangedMeanwhile {
        /// The origin.
        directory: String,
        /// The paths that changed.
        paths: Vec<FilePath>,
    },
    /// No record changed the files.
    #[error("no record of session {} changed its files: there is nothing to undo", .0.short())]
    NothingToUndo(SessionId),
    /// The session's files are overlay layers, and no directory contains all of them.
    #[error("the files of session {} are overlay layers, which are only mounted in its sandbox: there is no directory", .0.short())]
    Layered(SessionId),
    /// The setup command failed.
    #[error("the setup `{line}` failed ({ended})\n{output}")]
    Setup {
        /// The command.
        line: String,
        /// How it ended.
        ended: String,
        /// Its standard error, or its standard output if that is empty: the first 2,000 characters.
        output: String,
    },
    /// The directory has external edits.
    #[error("{} not recorded in session {}: run `rath workspace save`\n{}", changed(.changes.len()), session.short(), list_changes(.changes))]
    Unsaved {
        /// The session whose directory has the edits.
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

fn names(paths: &[FilePath]) -> String {
    let more = if paths.len() > 5 { format!(" and {} more", paths.len() - 5) } else { String::new() };
    paths.iter().take(5).map(FilePath::to_string).collect::<Vec<_>>().join(", ") + &more
}

fn list(paths: &[FilePath]) -> String {
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
    /// The error's code, which names its page `docs/errors/CODE.md`.
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
