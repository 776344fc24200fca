//! How much a sandbox may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a command may run unless it or its sandbox says otherwise.
pub const WALL_TIME: Duration = Duration::from_secs(120);

/// What the commands of a sandbox may take. `None` is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How long a command may run.
    pub wall_time: Option<Duration>,
    /// Processes and threads of a command.
    pub processes: Option<u64>,
    /// Memory of a command's processes together, without what they map from files.
    pub memory: Option<u64>,
    /// Address space of each process. Many runtimes reserve far more than they use, so there is none by default.
    pub address_space: Option<u64>,
    /// Size of each file.
    pub file_size: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Bytes on disk that the workspace and the private directories may grow to.
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
    /// No limit at all.
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
