//! Errors in scripts.

use std::path::PathBuf;

/// Why a script cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read script {}: {cause}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        cause: std::io::Error,
    },
    /// The file name has neither of the two known extensions.
    #[error("{} is not a script: the file name must end in .toml or .jsonl", path.display())]
    UnknownForm {
        /// The path of the file.
        path: PathBuf,
    },
    /// A line of the script is invalid.
    #[error("line {line} of the script, {at}: {why}")]
    Invalid {
        /// The line number, from 1.
        line: usize,
        /// The field, or the text at this place.
        at: String,
        /// What was found and what was expected.
        why: String,
    },
    /// An error in a script that was loaded from a file.
    #[error("{}: {cause}", path.display())]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error in the script.
        cause: Box<ScriptError>,
    },
}
