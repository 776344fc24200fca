//! Where a value comes from.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Who says so. A later one wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub(crate) enum Origin {
    /// The user's own file.
    User { file: PathBuf, line: usize },
    /// The project's file.
    Project { file: PathBuf, line: usize },
    /// A variable of the environment.
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
