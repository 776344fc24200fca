//! What a sandbox promises, and the values that cross it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::backend::{Capabilities, Identity};
use crate::command::Command;
use crate::error::Result;
use crate::running::Running;

/// A place where commands run and files are touched. Paths are relative to the workspace and never lead out of it;
/// links inside it are followed.
pub trait Sandbox: Send + Sync {
    /// Which one it is.
    fn identity(&self) -> &Identity;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// How it isolates, in a word; `None` if it does not.
    fn isolation(&self) -> Option<String> {
        None
    }

    /// What it does not enforce, or not exactly, of what could be expected.
    fn not_enforced(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sockets and FIFOs of the workspace that commands find covered, because a process outside may listen behind them.
    fn covered(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Starts a command. Fails with [`crate::Error::CannotStart`] when there is nothing to start.
    fn exec(&self, command: Command) -> BoxFuture<'_, Result<Running>>;

    /// Reads a part of a regular file.
    fn read<'a>(&'a self, path: &'a Path, part: Part) -> BoxFuture<'a, Result<Contents>>;

    /// Replaces a regular file, or makes it and its directories. Readers see the old content or the new one; other
    /// hard links of the file keep the old one. Without a mode the file keeps the one it has.
    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<Written>>;

    /// What a directory holds, sorted by the bytes of the names.
    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// Where a path leads: the same path where there are no links on it. What is not there yet is where it would be.
    fn real<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>>;

    /// Removes a file, a link (not what it leads to) or a directory with all that is in it.
    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// How it is.
    fn status(&self) -> BoxFuture<'_, Result<Status>>;

    /// Stops all its commands and lets go of everything it holds of the workspace, until it is used again. Whoever
    /// changes the workspace's layers asks for that first.
    fn rest(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Stops all its commands and forgets it. The files stay. May be asked twice.
    fn close(&self) -> BoxFuture<'_, Result<Closed>>;
}

impl fmt::Debug for dyn Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sandbox({})", self.identity())
    }
}

/// How a sandbox is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It takes commands.
    Open {
        /// How many run.
        running: usize,
    },
    /// It was closed.
    Closed,
    /// It is gone.
    Lost {
        /// How it shows.
        why: String,
    },
}

/// What closing a sandbox did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// How many commands were still running.
    pub stopped: usize,
}

/// Which bytes of a file are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub offset: u64,
    /// At most this many.
    pub limit: u64,
}

impl Part {
    /// The whole file.
    pub const ALL: Part = Part { offset: 0, limit: u64::MAX };

    /// The first `limit` bytes.
    pub fn first(limit: u64) -> Self {
        Self { offset: 0, limit }
    }
}

/// What was read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The bytes asked for, fewer where the file ends.
    pub bytes: Vec<u8>,
    /// The size of the whole file.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, any bytes.
    pub name: OsString,
    /// What it is. Links are not followed.
    pub kind: EntryKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
}

/// What became of a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There was none.
    New,
    /// It took the place of one.
    Replaced,
}
