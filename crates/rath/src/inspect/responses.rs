//! What an action on a session did, as a program is told it.

use rath_core::files::{Change, Name, Node, Version};
use rath_core::{Reference, Session, SessionId, Usage};
use rath_sandbox::Ended;
use serde::Serialize;

use crate::workshop::{Applied, Back, Done};

/// A session that was created or forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionCreated {
    /// The session.
    pub session: SessionId,
    /// Its head.
    pub head: Reference,
}

impl From<&Session> for SessionCreated {
    fn from(session: &Session) -> Self {
        Self { session: session.id(), head: session.head() }
    }
}

/// How the work on a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RunOutcome {
    /// It is done.
    Done {
        /// The session.
        session: SessionId,
        /// Its head.
        head: Reference,
        /// The answer.
        text: String,
        /// What was used.
        usage: Usage,
    },
    /// It waits for a person's answer.
    Waiting {
        /// The session that asks.
        session: SessionId,
    },
    /// A person stopped it.
    Stopped {
        /// The session.
        session: SessionId,
    },
    /// It failed.
    Failed {
        /// The session.
        session: SessionId,
        /// Why.
        why: String,
    },
}

/// A command that ended.
#[derive(Clone, Debug, Serialize)]
pub struct CommandOutcome {
    /// Its `tool_finished` record.
    pub record: Reference,
    /// How its process ended.
    pub ended: Ended,
    /// Whether it took longer than it may.
    pub timed_out: bool,
    /// Whether it was stopped.
    pub killed: bool,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// Processes that it left behind, and that were killed.
    pub left_behind: u32,
    /// System calls that the sandbox refused, with how often.
    pub refused: Vec<(String, u64)>,
    /// The limit that it went beyond.
    pub beyond: Option<String>,
    /// What it wrote, as text; the beginning of it, if that is long.
    pub stdout: String,
    /// How many bytes it wrote.
    pub stdout_bytes: u64,
    /// The same of its errors.
    pub stderr: String,
    /// How many bytes of errors it wrote.
    pub stderr_bytes: u64,
    /// Whether `stdout` is cut.
    pub stdout_cut: bool,
    /// Whether `stderr` is cut.
    pub stderr_cut: bool,
    /// The files before.
    pub before: Version,
    /// The files after.
    pub after: Version,
    /// What it changed in them.
    pub changed: Vec<Change>,
    /// What had changed before it started, without a record.
    pub outside: Vec<Change>,
    /// Whether it was isolated from the machine.
    pub isolated: bool,
    /// What a reader should know besides.
    pub remarks: Vec<String>,
}

impl From<Done> for CommandOutcome {
    fn from(Done { record, finished, before, after, changed, outside, isolated, remarks }: Done) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            record,
            ended: finished.ended,
            timed_out: finished.timed_out,
            killed: finished.killed,
            duration_us: u64::try_from(finished.duration.as_micros()).unwrap_or(u64::MAX),
            left_behind: finished.escaped,
            refused: finished.refused,
            beyond: finished.beyond,
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

/// What a restore did.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreOutcome {
    /// Its record; null if the files were like this already.
    pub record: Option<Reference>,
    /// What was rewritten.
    pub changed: Vec<Change>,
    /// What had changed without a record: the version before the restore has it.
    pub outside: Vec<Change>,
    /// Paths that changed during the restore, and were left alone.
    pub kept: Vec<Name>,
    /// For an undo, the change that was taken back.
    pub undone: Option<UndoneChange>,
}

/// A change that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndoneChange {
    /// Its record.
    pub record: Reference,
    /// The command, or what else changed the files.
    pub what: String,
}

impl From<Back> for RestoreOutcome {
    fn from(Back { record, changed, outside, kept, undone }: Back) -> Self {
        let undone = undone.map(|undone| UndoneChange { record: undone.record, what: undone.what });
        Self { record, changed, outside, kept, undone }
    }
}

/// What was brought from a copy into the directory that it was made of.
#[derive(Clone, Debug, Serialize)]
pub struct ApplyOutcome {
    /// The record; null if there was nothing to bring, or nothing was to be touched.
    pub record: Option<Reference>,
    /// The directory.
    pub directory: Name,
    /// What changed there.
    pub changed: Vec<Change>,
    /// Paths that were like this already.
    pub already: Vec<Name>,
    /// Whether nothing was to be touched.
    pub dry_run: bool,
}

impl ApplyOutcome {
    /// Of what the workshop did.
    pub fn new(applied: Applied, dry_run: bool) -> Self {
        let Applied { record, directory, changed, already } = applied;
        Self { record, directory, changed, already, dry_run }
    }
}

/// What saving the files of a session found.
#[derive(Clone, Debug, Serialize)]
pub struct SaveOutcome {
    /// The record; null if nothing had changed.
    pub record: Option<Reference>,
    /// What had changed.
    pub changed: Vec<Change>,
}

/// The files of a version.
#[derive(Clone, Debug, Serialize)]
pub struct FileListing {
    /// The version.
    pub version: Version,
    /// The files.
    pub files: Vec<ListedFile>,
}

/// A file, directory or link.
#[derive(Clone, Debug, Serialize)]
pub struct ListedFile {
    /// Its path.
    pub path: Name,
    /// Its kind, mode, size and digest.
    pub node: Node,
}
