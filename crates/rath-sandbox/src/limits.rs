//! Resource limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum run time of a command, unless the command or its sandbox sets another one: 120 s.
pub const WALL_TIME: Duration = Duration::from_secs(120);

/// Number of bytes of each output stream that are kept, unless the command sets another limit: 16 MiB.
pub const OUTPUT_LIMIT: u64 = 16 << 20;

/// Time between SIGTERM and SIGKILL when a command is stopped, unless the command sets another one.
pub const GRACE: Duration = Duration::from_secs(2);

/// Resource limits of the commands of a sandbox. `None` is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Run time of a command.
    pub wall_time: Option<Duration>,
    /// Number of processes and threads of a command.
    pub processes: Option<u64>,
    /// Total memory of a command's processes in bytes, without mapped files.
    pub memory: Option<u64>,
    /// Address space of each process in bytes. Not limited by default, because many runtimes reserve much more than
    /// they use.
    pub address_space: Option<u64>,
    /// Size of each file in bytes.
    pub file_size: Option<u64>,
    /// Number of open files of each process.
    pub open_files: Option<u64>,
    /// Disk usage in bytes of the workspace and the sandbox's private directories.
    pub disk: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_time: Some(WALL_TIME),
            processes: Some(4096),
            memory: Some(8 << 30),
            address_space: None,
            file_size: Some(8 << 30),
            open_files: Some(16 << 10),
            disk: Some(20 << 30),
        }
    }
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        wall_time: None,
        processes: None,
        memory: None,
        address_space: None,
        file_size: None,
        open_files: None,
        disk: None,
    };
}
