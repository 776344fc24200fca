//! Imports conversations of other systems as sessions.
//!
//! A reader ([`openrath`], [`jsonl`]) parses a file into a [`ParsedConversation`]: the messages, line by line, and the
//! repairs that were needed. [`Importer`] writes that into a store: the file itself as a blob, an `imported` record
//! that refers to it, and one record per message with its line number. Importing the same file twice gives one session;
//! a file that grew extends its session.

mod importer;
pub mod jsonl;
mod lines;
pub mod openrath;

pub use importer::{ImportOutcome, ImportedFile, Importer};

use rath_core::body::Repair;
use rath_core::{SessionId, store};

/// A parsed file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedConversation {
    /// The name of the format.
    pub from: &'static str,
    /// The session's id in the other system.
    pub original: Option<String>,
    /// When the session was created in the other system.
    pub created_at: Option<String>,
    /// How the session was created in the other system.
    pub lineage: Vec<String>,
    /// The ids of its parent sessions in the other system.
    pub parents: Vec<String>,
    /// The file's trailer, as JSON text.
    pub trailer: Option<String>,
    /// The messages, in order.
    pub messages: Vec<ImportedMessage>,
    /// Deviations from the format, and how they were handled.
    pub repairs: Vec<Repair>,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedMessage {
    /// The line number, from 1.
    pub line: u64,
    /// The time, as text in the file's own format.
    pub time: Option<String>,
    /// The content.
    pub content: ImportedContent,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportedContent {
    /// Standing instructions.
    System(String),
    /// A message of a person.
    User(String),
    /// A turn of a model: text and tool calls.
    Assistant {
        /// The text; empty if there is none.
        text: String,
        /// The tool calls.
        calls: Vec<ImportedCall>,
    },
    /// The result of a tool call.
    Result {
        /// The id of the call.
        call: String,
        /// The output that the model received.
        text: String,
    },
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedCall {
    /// The call's id.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
}

/// Why a file cannot be parsed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ParseError {
    /// The line number, from 1.
    pub line: u64,
    /// The reason.
    pub why: String,
}

/// Why a file was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be parsed.
    #[error("{name}, {why}")]
    Unreadable {
        /// The name of the file.
        name: String,
        /// The parse error.
        why: ParseError,
    },
    /// The session was imported before, from a different file.
    #[error(
        "{name} is session {}, which was imported before from a file with a different line {line}",
        .session.short()
    )]
    Differs {
        /// The name of the file.
        name: String,
        /// The session.
        session: SessionId,
        /// The first line that differs.
        line: u64,
    },
    /// The session cannot be extended with the new lines of the file.
    #[error("cannot extend session {} with the new lines of {name}: {why}", .session.short())]
    CannotContinue {
        /// The name of the file.
        name: String,
        /// The session.
        session: SessionId,
        /// The reason.
        why: String,
    },
    /// The file could not be stored.
    #[error(transparent)]
    Bundle(#[from] crate::bundle::BundleError),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A session could not be read or written.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
}

impl ImportError {
    /// The error's code. `docs/errors/CODE.md` explains what to do.
    pub fn code(&self) -> &str {
        match self {
            ImportError::Unreadable { .. } => "unreadable-import",
            ImportError::Differs { .. } | ImportError::CannotContinue { .. } => "import-differs",
            ImportError::Bundle(error) => error.code(),
            ImportError::Store(error) => error.code(),
            ImportError::Session(error) => error.code(),
        }
    }
}
