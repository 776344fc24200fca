//! The results of actions on sessions, as JSON for programs.

use rath_core::files::{Change, FilePath, Node, Version};
use rath_core::{Reference, Session, SessionId, Usage};
use rath_sandbox::ExitStatus;
use serde::Serialize;

use crate::workspaces::{ApplyReport, ExecReport, RestoreReport};

/// A session that was created or forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionCreated {
    /// The id of the new session.
    pub session: SessionId,
    /// Its last record.
    pub head: Reference,
}

impl From<&Session> for SessionCreated {
    fn from(session: &Session) -> Self {
        Self { session: session.id(), head: session.head() }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RunOutcome {
    /// The run is done.
    Done {
        /// The session on which the run ended.
        session: SessionId,
        /// Its last record.
        head: Reference,
        /// The answer.
        text: String,
        /// The usage of the session, including the sessions that it was forked from.
        usage: Usage,
    },
    /// The run waits for an answer.
    Waiting {
        /// The session that asks.
        session: SessionId,
    },
    /// The run was cancelled.
    Stopped {
        /// The session on which the run was cancelled.
        session: SessionId,
    },
    /// The run failed.
    Failed {
        /// The session on which the run failed.
        session: SessionId,
        /// The error.
        why: String,
    },
}

/// The result of a command.
#[derive(Clone, Debug, Serialize)]
pub struct CommandOutcome {
    /// Its `tool_finished` record.
    pub record: Reference,
    /// The exit code, or the signal that ended it.
    pub ended: ExitStatus,
    /// Whether it exceeded its time limit.
    pub timed_out: bool,
    /// Whether it was killed.
    pub killed: bool,
    /// The duration in microseconds.
    pub duration_us: u64,
    /// The number of leftover processes that were killed.
    pub left_behind: u32,
    /// System calls that the sandbox refused, with their counts.
    pub refused: Vec<(String, u64)>,
    /// The resource limit that it exceeded.
    pub beyond: Option<String>,
    /// Standard output as text, truncated if it is long.
    pub stdout: String,
    /// The size of standard output in bytes.
    pub stdout_bytes: u64,
    /// Standard error as text, truncated if it is long.
    pub stderr: String,
    /// The size of standard error in bytes.
    pub stderr_bytes: u64,
    /// Whether `stdout` is truncated.
    pub stdout_cut: bool,
    /// Whether `stderr` is truncated.
    pub stderr_cut: bool,
    /// The version of the files before the command.
    pub before: Version,
    /// The version of the files after the command.
    pub after: Version,
    /// The changes between the two.
    pub changed: Vec<Change>,
    /// External edits before it started.
    pub outside: Vec<Change>,
    /// Whether it was isolated from the machine.
    pub isolated: bool,
    /// Notes for people: files that were not saved, or that changed while they were saved.
    pub remarks: Vec<String>,
}

impl From<ExecReport> for CommandOutcome {
    fn from(ExecReport { record, finished, before, after, changed, outside, isolated, remarks }: ExecReport) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            record,
            ended: finished.ended,
            timed_out: finished.timed_out,
            killed: finished.killed,
            duration_us: u64::try_from(finished.duration.as_micros()).unwrap_or(u64::MAX),
            left_behind: finished.killed_orphans,
            refused: finished.refused,
            beyond: finished.limit_exceeded,
            stdout: text(&finished.stdout.bytes),
            stdout_bytes: finished.stdout.total,
            stderr: text(&finished.stderr.bytes),
            stderr_bytes: finished.stderr.total,
            stdout_cut: finished.stdout.cut,
            stderr_cut: finished.stderr.cut,
            before,
            after,
            changed,
            outside,
            isolated,
            remarks,
        }
    }
}

/// The result of a restore.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreSummary {
    /// The record; null if the files had this version already.
    pub record: Option<Reference>,
    /// The paths that were changed.
    pub changed: Vec<Change>,
    /// External edits, which are in the version before the restore.
    pub outside: Vec<Change>,
    /// Paths that changed during the restore and were not restored.
    pub kept: Vec<FilePath>,
    /// For an undo, the change that was undone.
    pub undone: Option<UndoneChange>,
}

/// A change that was undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndoneChange {
    /// Its record.
    pub record: Reference,
    /// The command, or what else changed the files.
    pub what: String,
}

impl From<RestoreReport> for RestoreSummary {
    fn from(RestoreReport { record, changed, outside, kept, undone }: RestoreReport) -> Self {
        let undone = undone.map(|undone| UndoneChange { record: undone.record, what: undone.what });
        Self { record, changed, outside, kept, undone }
    }
}

/// The result of applying changes to the directory that the files were copied from.
#[derive(Clone, Debug, Serialize)]
pub struct ApplyOutcome {
    /// The record; null if there was nothing to apply, or for a dry run.
    pub record: Option<Reference>,
    /// The directory that was changed.
    pub directory: FilePath,
    /// The changes that were made, or would be made by a dry run.
    pub changed: Vec<Change>,
    /// Paths that had the session's content already.
    pub already: Vec<FilePath>,
    /// Whether it was a dry run.
    pub dry_run: bool,
}

impl ApplyOutcome {
    /// Converts the report of the workspaces.
    pub fn new(applied: ApplyReport, dry_run: bool) -> Self {
        let ApplyReport { record, directory, changed, already } = applied;
        Self { record, directory, changed, already, dry_run }
    }
}

/// The result of saving a session's files.
#[derive(Clone, Debug, Serialize)]
pub struct SaveOutcome {
    /// The record; null if nothing changed.
    pub record: Option<Reference>,
    /// The changes that were saved.
    pub changed: Vec<Change>,
}

/// The files of a version.
#[derive(Clone, Debug, Serialize)]
pub struct FileListing {
    /// The version whose files are listed.
    pub version: Version,
    /// Its files, directories and links.
    pub files: Vec<ListedFile>,
}

/// A file, directory or link.
#[derive(Clone, Debug, Serialize)]
pub struct ListedFile {
    /// Its path.
    pub path: FilePath,
    /// Its kind, mode, size and digest.
    pub node: Node,
}
