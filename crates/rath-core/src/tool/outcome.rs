//! What a call comes to: what the model is shown, what is recorded, and what happens next.

use std::any::Any;
use std::fmt;

use serde::Serialize;

use crate::blob::Blob;
use crate::body::{BackgroundCommand, CallOutcome, Exit, OutsideEffect, Refused, Stretch};
use crate::error::Error;
use crate::session::Session;

/// What a call comes to.
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
    /// What the model is shown, part by part.
    pub content: Vec<ContentPart>,
    /// Whether the model is told that the call failed.
    pub failed: bool,
    /// What happens next.
    pub then: Then,
    /// What is recorded besides the content.
    pub evidence: Option<Box<Evidence>>,
    /// The branch that the call worked on, from [`Call::branch`](crate::Call::branch), to be merged into the caller's
    /// session.
    pub branch: Option<Session>,
    /// An error that leaves the run open: the call is not over, and is made again when the run is resumed.
    pub open: Option<Error>,
}

/// What happens after a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// The model is shown the content.
    #[default]
    Report,
    /// A person is asked, with the content as the question. The model is shown the answer.
    Ask,
    /// The model's turns in this step are over: the agent or workflow of this name goes on with the session. It is one
    /// that the agent was given with `hands_off_to`.
    HandOff(String),
}

/// A part of what the model is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// A JSON value, as text.
    Json(String),
    /// A picture; the media type says of what kind.
    Image(Blob),
    /// A file.
    File {
        /// Its name.
        name: String,
        /// Its content.
        content: Blob,
    },
}

/// What is recorded of a call besides what the model is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How it ended, where that is neither done nor failed.
    pub outcome: Option<CallOutcome>,
    /// The exit code or signal of a command.
    pub exit: Option<Exit>,
    /// The whole output, by stream. Without any, the output is what the model is shown.
    pub streams: Vec<Captured>,
    /// In which order the streams were written.
    pub order: Vec<Stretch>,
    /// What changed outside the session's files.
    pub effects: Vec<OutsideEffect>,
    /// Processes that outlived it and were killed.
    pub left_behind: u64,
    /// What the sandbox refused.
    pub refused: Vec<Refused>,
    /// The limit that was reached.
    pub beyond: Option<String>,
    /// Commands that run on in the background, or were found to have ended.
    pub background: Vec<BackgroundCommand>,
    /// Ids under which the rest of an output that was shortened can be read.
    pub continued: Vec<String>,
    /// What should be known, for people.
    pub remarks: Vec<String>,
}

/// What a stream held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its name: `stdout`, `stderr`.
    pub stream: String,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// How long it was, where not all was kept.
    pub cut_from: Option<u64>,
}

impl ToolOutcome {
    /// It did what was asked.
    pub fn done(text: impl Into<String>) -> Self {
        Self::default().with_text(text)
    }

    /// It did not, and this says why in words that a model can act on.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::done(text) }
    }

    /// A person is asked. Their answer is the result of the call. The tool is not called again for it.
    pub fn ask(question: impl Into<String>) -> Self {
        Self { then: Then::Ask, ..Self::done(question) }
    }

    /// The agent or workflow called `to` goes on with the session after this turn. `text` is the result of the call.
    pub fn hand_off(to: impl Into<String>, text: impl Into<String>) -> Self {
        Self { then: Then::HandOff(to.into()), ..Self::done(text) }
    }

    /// With a text behind the parts it has. An empty one adds nothing.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { self } else { self.with_part(ContentPart::Text(text)) }
    }

    /// With a picture.
    #[must_use]
    pub fn with_image(self, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.with_part(ContentPart::Image(Blob::new(bytes.into(), media_type)))
    }

    /// With a file.
    #[must_use]
    pub fn with_file(self, name: impl Into<String>, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.with_part(ContentPart::File { name: name.into(), content: Blob::new(bytes.into(), media_type) })
    }

    /// With a value as JSON. A value that cannot be written as JSON makes it a failure.
    #[must_use]
    pub fn with_json(self, value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => self.with_part(ContentPart::Json(text)),
            Err(error) => Self::failed(format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// With another part.
    #[must_use]
    pub fn with_part(mut self, part: ContentPart) -> Self {
        self.content.push(part);
        self
    }

    /// With something that changed outside the session's files.
    #[must_use]
    pub fn with_effect(mut self, effect: OutsideEffect) -> Self {
        self.evidence.get_or_insert_default().effects.push(effect);
        self
    }

    /// With the branch that the call worked on, to be merged into the caller's session.
    #[must_use]
    pub fn with_branch(mut self, branch: Session) -> Self {
        self.branch = Some(branch);
        self
    }

    /// The text of all parts; pictures and files are named in brackets.
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

/// The outcome of a call whose work on a branch failed. The branch that the error carries is merged, without its files.
/// An error that leaves the run open, such as a question that waits for a person, leaves the call open too.
impl From<Error> for ToolOutcome {
    fn from(error: Error) -> Self {
        let failed = Self::failed(format!("It failed: {error}"));
        if error.leaves_the_run_open() {
            return Self { open: Some(error), ..failed };
        }
        Self { branch: error.into_sessions().into_iter().next(), ..failed }
    }
}

/// What a tool's function may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "return text, `()`, `Json(value)`, a `ToolOutcome`, or a `Result` of one of these whose error is text or an error type"
)]
pub trait IntoOutcome {
    /// As an outcome.
    fn into_outcome(self) -> ToolOutcome;
}

/// A value that the model is shown as JSON.
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

/// The error is shown as text. Of an [`Error`], the branch that it carries is kept: `ToolOutcome` is made from it.
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
