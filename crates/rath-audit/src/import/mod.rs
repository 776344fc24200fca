//! Work of other systems, taken in as sessions.
//!
//! A reader ([`openrath`], [`jsonl`]) turns a file into [`Parsed`]: what was said, line by line, and what had to be
//! repaired. [`Intake`] writes that into a store: the file itself as a blob, an `imported` record that names it, and a
//! record for each thing said, which points at its line. The same file twice is one session; a file that grew goes on.

pub mod jsonl;
mod lines;
pub mod openrath;
mod take;

pub use take::{Fate, Intake, Taken};

use rath_core::body::Repair;
use rath_core::{SessionId, store};

/// A file, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The format.
    pub from: &'static str,
    /// The session's id there.
    pub original: Option<String>,
    /// When it was made there.
    pub created_at: Option<String>,
    /// How it came about there.
    pub lineage: Vec<String>,
    /// The ids of the sessions it came from there.
    pub parents: Vec<String>,
    /// What the file says at its end, as JSON text.
    pub trailer: Option<String>,
    /// What was said, in order.
    pub said: Vec<Said>,
    /// What was not as the format wants it.
    pub repairs: Vec<Repair>,
}

/// One thing that was said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The line, from 1.
    pub line: u64,
    /// When, as the file says it.
    pub time: Option<String>,
    /// What.
    pub what: What,
}

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Standing instructions.
    System(String),
    /// By a person.
    User(String),
    /// By a model: words, and calls of tools.
    Assistant {
        /// The words; empty when there are none.
        text: String,
        /// The calls.
        calls: Vec<ToolCall>,
    },
    /// By a tool.
    Result {
        /// The call it answers.
        call: String,
        /// What the model was shown.
        text: String,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
}

/// Why a file cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Unreadable {
    /// The line, from 1.
    pub line: u64,
    /// The reason.
    pub why: String,
}

/// Why a file was not taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not what it should be.
    #[error("{name}, {why}")]
    Unreadable {
        /// The file.
        name: String,
        /// How it shows.
        why: Unreadable,
    },
    /// The session was imported before, from another text.
    #[error(
        "{name} is session {}, which was imported before from a file that has another line {line}",
        .session.short()
    )]
    Differs {
        /// The file.
        name: String,
        /// The session.
        session: SessionId,
        /// The first line that is another one.
        line: u64,
    },
    /// The session cannot go on with what is new in the file.
    #[error("{name} has more than session {} was imported from, and cannot go on there: {why}", .session.short())]
    Stuck {
        /// The file.
        name: String,
        /// The session.
        session: SessionId,
        /// The reason.
        why: String,
    },
    /// The source could not be kept.
    #[error(transparent)]
    Bundle(#[from] crate::bundle::Error),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A session could not be read or written.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
}

impl Error {
    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &str {
        match self {
            Error::Unreadable { .. } => "unreadable-import",
            Error::Differs { .. } | Error::Stuck { .. } => "import-differs",
            Error::Bundle(error) => error.code(),
            Error::Store(error) => error.code(),
            Error::Session(error) => error.code(),
        }
    }
}
