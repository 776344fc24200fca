//! The origin of a configuration value.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The source of a value, from lowest to highest precedence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub(crate) enum Origin {
    /// The user's configuration file.
    User { file: PathBuf, line: usize },
    /// The project's configuration file.
    Project { file: PathBuf, line: usize },
    /// An environment variable.
    Environment { variable: &'static str },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::User { file, line } | Origin::Project { file, line } => write!(f, "{}:{line}", file.display()),
            Origin::Environment { variable } => write!(f, "${variable}"),
        }
    }
}
