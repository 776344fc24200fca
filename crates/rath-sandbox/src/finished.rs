//! The result of a command: exit status and output.

use std::time::Duration;

use rath_core::Time;
use serde::{Deserialize, Serialize};

/// How the main process of a command ended. Exit code 137 and death by signal 9 are different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// The command exited with this code.
    Exited(i32),
    /// The command was killed by a signal.
    Signalled {
        /// The signal number.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
    },
}

impl ExitStatus {
    /// Whether it exited with code 0.
    pub fn success(self) -> bool {
        self == ExitStatus::Exited(0)
    }
}

/// The captured output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The first bytes, up to [`Command::output_limit`](crate::Command::output_limit).
    pub bytes: Vec<u8>,
    /// Total number of bytes that were written.
    pub total: u64,
    /// Whether `bytes` is incomplete.
    pub cut: bool,
}

impl CapturedOutput {
    /// Counts `bytes` and keeps those below `limit`. Returns how many were kept.
    pub(crate) fn push(&mut self, bytes: &[u8], limit: u64) -> usize {
        let room = limit.saturating_sub(self.bytes.len() as u64);
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.total += bytes.len() as u64;
        self.cut |= kept < bytes.len();
        kept
    }
}

/// The result of a command. All processes that it started have ended too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How its main process ended.
    pub ended: ExitStatus,
    /// Whether it was stopped by its timeout.
    pub timed_out: bool,
    /// Whether it was stopped on request.
    pub killed: bool,
    /// Standard output.
    pub stdout: CapturedOutput,
    /// Standard error.
    pub stderr: CapturedOutput,
    /// Number of processes that were still running after the main process had ended, and were killed.
    pub killed_orphans: u32,
    /// Names of the system calls that the sandbox refused, with the number of refusals.
    pub refused: Vec<(String, u64)>,
    /// The limit that it exceeded, if it was stopped for that: its name, a colon, and the usage.
    pub limit_exceeded: Option<String>,
    /// When it was started.
    pub started: Time,
    /// Time until all of its processes had ended.
    pub duration: Duration,
}
