//! How a command ended, and what it said.

use std::time::Duration;

use rath_core::Time;
use serde::{Deserialize, Serialize};

/// How a command ended. Never invented: leaving with code 137 and being killed by signal 9 are two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Signalled {
        /// Its number.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
    },
}

impl Ended {
    /// Whether it ended by itself with code 0.
    pub fn well(self) -> bool {
        self == Ended::Exited(0)
    }
}

/// What came out of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes, up to the command's limit.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub total: u64,
    /// Whether some are not in `bytes`.
    pub cut: bool,
}

impl Captured {
    /// Counts `bytes` and keeps what is below `limit`. Says how many were kept.
    pub(crate) fn push(&mut self, bytes: &[u8], limit: u64) -> usize {
        let room = limit.saturating_sub(self.bytes.len() as u64);
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.total += bytes.len() as u64;
        self.cut |= kept < bytes.len();
        kept
    }
}

/// A command that has ended, together with all that it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How its main process ended.
    pub ended: Ended,
    /// Whether it was stopped because its time was over.
    pub timed_out: bool,
    /// Whether it was stopped because someone asked for it.
    pub killed: bool,
    /// What it said.
    pub stdout: Captured,
    /// What it complained about.
    pub stderr: Captured,
    /// How many processes it left behind that had to be killed.
    pub escaped: u32,
    /// System calls that the sandbox refused, with how often.
    pub refused: Vec<(String, u64)>,
    /// The limit for which it was stopped.
    pub beyond: Option<String>,
    /// When it began.
    pub started: Time,
    /// How long it took until all of it was gone.
    pub duration: Duration,
}
