//! Why a script cannot be used.

use std::path::PathBuf;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("the script {} cannot be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the machine said.
        cause: std::io::Error,
    },
    /// The name does not say what is in the file.
    #[error("{} is not known as a script: its name should end in .toml or .jsonl", path.display())]
    UnknownForm {
        /// The file.
        path: PathBuf,
    },
    /// Something in the script is not what it should be.
    #[error("line {line} of the script, {at}: {why}")]
    Invalid {
        /// The line, counted from 1.
        line: usize,
        /// The field, or what is written there.
        at: String,
        /// What was found and what was expected.
        why: String,
    },
    /// As [`Error::Invalid`], in a file.
    #[error("{}: {cause}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: Box<Error>,
    },
}
