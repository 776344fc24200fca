//! [`ToolOutcome`]: the outcome of a call: what the model is shown, what is recorded, and what happens next.

use std::any::Any;
use std::fmt;

use serde::Serialize;

use crate::blob::Blob;
use crate::body::{BackgroundCommand, CallOutcome, Exit, OutsideEffect, SandboxDenial, StreamChunk};
use crate::error::Error;
use crate::session::Session;

/// The outcome of a call.
///
/// ```
/// use rath_core::ToolOutcome;
///
/// let done = ToolOutcome::done("Sent.");
/// let failed = ToolOutcome::failed("There is no such address.");
/// let asks = ToolOutcome::ask("Shall I send it to all of them?");
/// let hands_off = ToolOutcome::hand_off("billing", "It is about an invoice.");
/// # let _ = (done, failed, asks, hands_off);
/// ```
#[derive(Debug, Default)]
pub struct ToolOutcome {
    /// What the model is shown.
    pub content: Vec<ContentPart>,
    /// Whether the result is marked as failed.
    pub failed: bool,
    /// What happens next.
    pub then: FollowUp,
    /// What is recorded in addition to the content.
    pub evidence: Option<Box<Evidence>>,
    /// The branch from [`Call::branch`](crate::Call::branch), to be merged into the caller's session.
    pub branch: Option<Session>,
    /// An error that leaves the run open. The call stays open and is repeated when the run is resumed.
    pub open: Option<Error>,
}

/// What happens after a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FollowUp {
    /// The model is shown the content.
    #[default]
    Report,
    /// A person is asked, with the content as the question. Their answer is the result.
    Ask,
    /// The agent's step ends, and the agent or workflow of this name continues the session. It must be one of those
    /// given to the agent with `hands_off_to`.
    HandOff(String),
}

/// A part of a tool result.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// A JSON value, as text.
    Json(String),
    /// An image. The blob's media type gives its format.
    Image(Blob),
    /// A file.
    File {
        /// The file's name.
        name: String,
        /// The file's content.
        content: Blob,
    },
}

/// What is recorded of a call in addition to what the model is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How the call ended, if neither done nor failed.
    pub outcome: Option<CallOutcome>,
    /// The exit code or signal of a command.
    pub exit: Option<Exit>,
    /// The whole output by stream. If empty, the output is what the model is shown.
    pub streams: Vec<CapturedStream>,
    /// The order in which the streams were written.
    pub order: Vec<StreamChunk>,
    /// Effects outside the session's files.
    pub effects: Vec<OutsideEffect>,
    /// The number of processes that outlived the command and were killed.
    pub killed_orphans: u64,
    /// What the sandbox denied.
    pub refused: Vec<SandboxDenial>,
    /// The limit that was reached.
    pub limit_exceeded: Option<String>,
    /// Commands that still run in the background, or were found to have ended.
    pub background: Vec<BackgroundCommand>,
    /// Ids with which the rest of a shortened output can be read.
    pub rest_ids: Vec<String>,
    /// Remarks for people.
    pub remarks: Vec<String>,
}

/// The captured output of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedStream {
    /// Its name: `stdout`, `stderr`.
    pub stream: String,
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// The length of the whole stream in bytes, if not all of it was kept.
    pub cut_from: Option<u64>,
}

impl ToolOutcome {
    /// The call succeeded.
    pub fn done(text: impl Into<String>) -> Self {
        Self::default().with_text(text)
    }

    /// The call failed. `text` should tell the model what it can do.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::done(text) }
    }

    /// Asks a person. The answer is the result of the call; the tool is not called again.
    pub fn ask(question: impl Into<String>) -> Self {
        Self { then: FollowUp::Ask, ..Self::done(question) }
    }

    /// Hands the session off to the agent or workflow called `to` after this turn. `text` is the result of the call.
    pub fn hand_off(to: impl Into<String>, text: impl Into<String>) -> Self {
        Self { then: FollowUp::HandOff(to.into()), ..Self::done(text) }
    }

    /// Adds a text. An empty text adds nothing.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { self } else { self.with_part(ContentPart::Text(text)) }
    }

    /// Adds an image.
    #[must_use]
    pub fn with_image(self, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.with_part(ContentPart::Image(Blob::new(bytes.into(), media_type)))
    }

    /// Adds a file.
    #[must_use]
    pub fn with_file(self, name: impl Into<String>, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.with_part(ContentPart::File { name: name.into(), content: Blob::new(bytes.into(), media_type) })
    }

    /// Adds a value as JSON. If serialization fails, the outcome becomes a failure.
    #[must_use]
    pub fn with_json(self, value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => self.with_part(ContentPart::Json(text)),
            Err(error) => Self::failed(format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// Adds a part.
    #[must_use]
    pub fn with_part(mut self, part: ContentPart) -> Self {
        self.content.push(part);
        self
    }

    /// Adds an effect outside the session's files.
    #[must_use]
    pub fn with_effect(mut self, effect: OutsideEffect) -> Self {
        self.evidence.get_or_insert_default().effects.push(effect);
        self
    }

    /// Sets the branch to be merged into the caller's session.
    #[must_use]
    pub fn with_branch(mut self, branch: Session) -> Self {
        self.branch = Some(branch);
        self
    }

    /// The text of all parts. Images and files are shown in brackets.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self.content.iter().map(ToString::to_string).collect();
        parts.join("\n")
    }
}

impl fmt::Display for ContentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Json(text) => f.write_str(text),
            Self::Image(Blob { reference, .. }) => write!(f, "[{}, {} bytes]", reference.media_type, reference.bytes),
            Self::File { name, content: Blob { reference, .. } } => {
                write!(f, "[{name}, {}, {} bytes]", reference.media_type, reference.bytes)
            }
        }
    }
}

/// The outcome of a call whose work on its branch failed. The branch that the error carries is merged without its
/// files. An error that leaves the run open, such as a question that waits for a person, leaves the call open too.
impl From<Error> for ToolOutcome {
    fn from(error: Error) -> Self {
        let failed = Self::failed(format!("It failed: {error}"));
        if error.leaves_the_run_open() {
            return Self { open: Some(error), ..failed };
        }
        Self { branch: error.into_sessions().into_iter().next(), ..failed }
    }
}

/// What a tool function may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "return text, `()`, `Json(value)`, a `ToolOutcome`, or a `Result` of one of these whose error is text or an error type"
)]
pub trait IntoOutcome {
    /// Converts into an outcome.
    fn into_outcome(self) -> ToolOutcome;
}

/// A value that is shown to the model as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl IntoOutcome for ToolOutcome {
    fn into_outcome(self) -> ToolOutcome {
        self
    }
}

impl IntoOutcome for String {
    fn into_outcome(self) -> ToolOutcome {
        ToolOutcome::done(self)
    }
}

impl IntoOutcome for &str {
    fn into_outcome(self) -> ToolOutcome {
        ToolOutcome::done(self)
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> ToolOutcome {
        ToolOutcome::done("done")
    }
}

impl<T: Serialize> IntoOutcome for Json<T> {
    fn into_outcome(self) -> ToolOutcome {
        ToolOutcome::default().with_json(&self.0)
    }
}

/// The error is shown as text. An [`Error`] is converted with `From`, which keeps the branch that it carries.
impl<T: IntoOutcome, E: fmt::Display + 'static> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> ToolOutcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => {
                let text = error.to_string();
                let error: Box<dyn Any> = Box::new(error);
                match error.downcast::<Error>() {
                    Ok(error) => (*error).into(),
                    Err(_) => ToolOutcome::failed(text),
                }
            }
        }
    }
}
