//! The sandbox trait and its value types.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::backend::{Capabilities, Identity};
use crate::command::Command;
use crate::error::Result;
use crate::running::Running;

/// Runs commands and accesses files in a workspace.
///
/// Paths are relative to the workspace. Links are followed, unless they lead out of it.
pub trait Sandbox: Send + Sync {
    /// Its id and generation.
    fn identity(&self) -> &Identity;

    /// Its capabilities.
    fn capabilities(&self) -> Capabilities;

    /// The name of its isolation level; `None` without isolation.
    fn isolation(&self) -> Option<String> {
        None
    }

    /// Restrictions and limits that it does not enforce, or not exactly: one sentence each.
    fn not_enforced(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sockets and FIFOs in the workspace that commands cannot use, because a process outside may listen on them.
    fn covered(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Starts a command. Fails with [`crate::Error::CannotStart`] if the program cannot be started.
    fn exec(&self, command: Command) -> BoxFuture<'_, Result<Running>>;

    /// Reads a range of a regular file.
    fn read<'a>(&'a self, path: &'a Path, part: ByteRange) -> BoxFuture<'a, Result<FileContent>>;

    /// Replaces a regular file, or creates it and its parent directories. Readers see either the old content or the new
    /// one. Other hard links of the file keep the old content. Without `mode`, the file keeps its permissions.
    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<WriteOutcome>>;

    /// The entries of a directory, sorted by the bytes of their names.
    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<DirEntry>>>;

    /// Resolves all links of a path. Components that do not exist stay as they are.
    fn real_path<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>>;

    /// Removes a file, a link (not its target), or a directory with everything in it.
    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// Its status.
    fn status(&self) -> BoxFuture<'_, Result<SandboxStatus>>;

    /// Stops all commands and unmounts the workspace until the sandbox is used again. Call this before changing the
    /// workspace's layers.
    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Stops all commands and removes the sandbox. The workspace's files stay. Calling it twice is allowed.
    fn close(&self) -> BoxFuture<'_, Result<CloseReport>>;
}

impl fmt::Debug for dyn Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sandbox({})", self.identity())
    }
}

/// The status of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    /// The sandbox accepts commands.
    Open {
        /// Number of running commands.
        running: usize,
    },
    /// The sandbox was closed.
    Closed,
    /// The sandbox does not exist any more.
    Lost {
        /// The reason.
        why: String,
    },
}

/// The result of closing a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseReport {
    /// Number of commands that were running and were stopped.
    pub stopped: usize,
}

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub limit: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: ByteRange = ByteRange { offset: 0, limit: u64::MAX };

    /// The first `limit` bytes.
    pub fn first(limit: u64) -> Self {
        Self { offset: 0, limit }
    }
}

/// Content that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// The requested bytes; fewer if the file ends before.
    pub bytes: Vec<u8>,
    /// Size of the whole file in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, which may be any bytes.
    pub name: OsString,
    /// The kind. Links are not followed.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write created the file.
    Created,
    /// The write replaced an existing file.
    Replaced,
}
