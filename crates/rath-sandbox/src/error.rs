//! Errors of sandbox operations.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of a sandbox operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a sandbox operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no backend with this name.
    #[error("unknown sandbox backend \"{name}\"; use one of: {}", known.join(", "))]
    UnknownBackend {
        /// The requested name.
        name: String,
        /// The names of the available backends.
        known: Vec<String>,
    },
    /// The backend lacks required capabilities.
    #[error("the sandbox backend \"{name}\" has no {}; use another backend, or do not require this", missing.join(", no "))]
    Incapable {
        /// The backend.
        name: String,
        /// The missing capabilities.
        missing: Vec<&'static str>,
    },
    /// This machine supports no isolation level. The command is not run without isolation instead.
    #[error(
        "this machine cannot isolate commands:\n{}\n  help: `rath doctor` checks again; `--on host` runs commands without isolation",
        list(refusals)
    )]
    NoIsolation {
        /// The levels that were tried, with the errors of the operating system.
        refusals: Vec<String>,
    },
    /// The program could not be started.
    #[error("cannot start {tried}: {why}")]
    CannotStart {
        /// The program or the working directory.
        tried: String,
        /// The reason.
        why: String,
    },
    /// The sandbox does not exist any more.
    #[error("sandbox {id} is lost: {why}; open a new one from the last saved version")]
    Lost {
        /// The sandbox.
        id: String,
        /// The reason.
        why: String,
    },
    /// The sandbox was closed.
    #[error("sandbox {id} is closed; open a new one")]
    Closed {
        /// The sandbox.
        id: String,
    },
    /// The operation does not accept this path.
    #[error("{}: {why}", path.display())]
    BadPath {
        /// The path, as passed to the operation.
        path: PathBuf,
        /// The reason.
        why: PathError,
    },
    /// An operating system call failed.
    #[error("{doing}: {cause}")]
    Machine {
        /// The operation that failed, such as "writing /path".
        doing: String,
        /// The error of the operating system. It is part of the message, so it is not reported as the error's source.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why a path is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The path is absolute.
    Absolute,
    /// The path leads out of the workspace, directly or through a link.
    Outside,
    /// The path contains a NUL byte, or is longer than the operating system accepts.
    Invalid,
    /// The path does not exist.
    Missing,
    /// The path is a directory, and the operation needs a file.
    IsDirectory,
    /// The path or one of its parents is a file, and the operation needs a directory.
    NotADirectory,
    /// The path is a FIFO, a socket or a device.
    Special,
    /// The path has a cycle of links, or too many links.
    LinkLoop,
    /// This user has no permission.
    Denied,
    /// The path is the workspace directory itself.
    Workspace,
    /// The path is read-only in a sandbox: hooks and configuration of a git repository, which can run programs outside
    /// of it.
    Protected,
    /// The path is hidden in this sandbox.
    Hidden,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::Absolute => "the path is absolute; give it relative to the workspace",
            PathError::Outside => "the path leads out of the workspace; use one inside it",
            PathError::Invalid => "the path contains a NUL byte or is too long",
            PathError::Missing => "no such file or directory in the workspace",
            PathError::IsDirectory => "this is a directory; name a file",
            PathError::NotADirectory => "this, or a part of the path, is not a directory",
            PathError::Special => "this is a pipe, socket or device; only regular files are read and written",
            PathError::LinkLoop => "its symbolic links form a cycle, or there are too many",
            PathError::Denied => "permission denied; change its mode or use another path",
            PathError::Workspace => "this is the workspace itself; name something inside it",
            PathError::Protected => "this is read-only here, like all hooks and configuration of the repository",
            PathError::Hidden => "this path is hidden here; use another path",
        })
    }
}

impl Error {
    /// The error code. `docs/errors/CODE.md` explains it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::UnknownBackend { .. } => "unknown-backend",
            Error::Incapable { .. } => "backend-incapable",
            Error::NoIsolation { .. } => "no-isolation",
            Error::CannotStart { .. } => "cannot-start",
            Error::Lost { .. } => "sandbox-lost",
            Error::Closed { .. } => "sandbox-closed",
            Error::BadPath { .. } => "bad-path",
            Error::Machine { .. } => "machine",
        }
    }

    /// Wraps an error of the operating system. `doing` is the operation that failed, such as "writing /path".
    pub fn machine(doing: impl Into<String>, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Machine { doing: doing.into(), cause: cause.into() }
    }

    /// An error for a path that is not accepted.
    pub fn path(path: &Path, why: PathError) -> Self {
        Error::BadPath { path: path.to_owned(), why }
    }
}

fn list(refusals: &[String]) -> String {
    refusals.iter().map(|refusal| format!("  {refusal}")).collect::<Vec<_>>().join("\n")
}
