//! Why a sandbox did not do what it was asked.

use std::fmt;
use std::path::{Path, PathBuf};

/// What a sandbox answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a sandbox did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No backend has this name.
    #[error("there is no sandbox backend \"{name}\"; use one of: {}", known.join(", "))]
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The backend cannot do what is needed.
    #[error("the sandbox backend \"{name}\" has no {}; use another backend or ask for less", missing.join(", no "))]
    Incapable {
        /// The backend.
        name: String,
        /// What it lacks.
        missing: Vec<&'static str>,
    },
    /// This machine can isolate nothing. Nothing runs unisolated instead.
    #[error(
        "this machine gives no isolation:\n{}\n  help: `rath doctor` tries again; `--on host` runs without any isolation",
        told(refusals)
    )]
    NoIsolation {
        /// What was tried, and what the machine said.
        refusals: Vec<String>,
    },
    /// The program never ran.
    #[error("cannot start {tried}: {why}")]
    CannotStart {
        /// The program or the directory that was tried.
        tried: String,
        /// What is wrong with it.
        why: String,
    },
    /// The sandbox is gone.
    #[error("sandbox {id} is lost: {why}; open a new one from the last saved version")]
    Lost {
        /// The sandbox.
        id: String,
        /// How it shows.
        why: String,
    },
    /// The sandbox was closed.
    #[error("sandbox {id} is closed; open a new one")]
    Closed {
        /// The sandbox.
        id: String,
    },
    /// A path that this operation does not take.
    #[error("{}: {why}", path.display())]
    BadPath {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        why: Why,
    },
    /// The machine refused.
    #[error("{doing}: {cause}")]
    Machine {
        /// What was being done.
        doing: String,
        /// What the machine said. Part of the message, and so not a source of its own.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It begins at the root of the machine.
    Absolute,
    /// It leads out of the workspace, by itself or through a link.
    Outside,
    /// It holds a NUL byte or is too long for the machine.
    Unspeakable,
    /// There is nothing there.
    Missing,
    /// It is a directory, and a file is needed.
    IsDirectory,
    /// It, or something on the way, is a file, and a directory is needed.
    NotADirectory,
    /// It is a pipe, a socket or a device.
    Special,
    /// Its links lead in a circle, or there are too many.
    Links,
    /// The machine does not let this user touch it.
    Denied,
    /// It is the workspace itself.
    Workspace,
    /// It can be read, and stays as it is: hooks and configuration of a repository, which run programs elsewhere.
    Protected,
    /// It is not shown to those who work here.
    Hidden,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Absolute => "the path is absolute; give it relative to the workspace",
            Why::Outside => "the path leads out of the workspace; use one inside it",
            Why::Unspeakable => "the path holds a NUL byte or is too long",
            Why::Missing => "there is no such file or directory in the workspace",
            Why::IsDirectory => "this is a directory; name a file",
            Why::NotADirectory => "this, or a part of the path, is not a directory",
            Why::Special => "this is a pipe, socket or device; only regular files are read and written",
            Why::Links => "its symbolic links lead in a circle, or there are too many",
            Why::Denied => "permission denied; change its mode or use another path",
            Why::Workspace => "this is the workspace itself; name something inside it",
            Why::Protected => {
                "this can be read here and not changed, like all hooks and configuration of the repository"
            }
            Why::Hidden => "this is hidden here; use another path",
        })
    }
}

impl Error {
    /// The error's code; `docs/errors/CODE.md` says what to do.
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

    /// Wraps what the machine said while `doing` something.
    pub fn machine(doing: impl Into<String>, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Machine { doing: doing.into(), cause: cause.into() }
    }

    /// A path that is refused.
    pub fn path(path: &Path, why: Why) -> Self {
        Error::BadPath { path: path.to_owned(), why }
    }
}

fn told(refusals: &[String]) -> String {
    refusals.iter().map(|refusal| format!("  {refusal}")).collect::<Vec<_>>().join("\n")
}
