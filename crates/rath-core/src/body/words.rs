//! Conversation that is plain text, and notes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Body, ToolFinished};
use crate::blob::{BlobRef, Content};
use crate::context::Shape;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};
use crate::summary::join;

/// Standing instructions of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The instructions.
    pub text: Content,
}

/// What a person, or a program in their place, says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The message.
    pub text: Content,
    /// The post that it came as: words from outside the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<String>,
    /// What comes with it: pictures and documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attached>,
}

/// A picture or a document that comes with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its content; the media type says what it is.
    pub content: BlobRef,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlobRef { bytes, media_type, .. } = &self.content;
        match &self.name {
            Some(name) => write!(f, "[attached: {name}, {media_type}, {bytes} bytes]"),
            None => write!(f, "[attached: {media_type}, {bytes} bytes]"),
        }
    }
}

/// What the model is shown of a finished tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call, as the model gave it.
    pub call: String,
    /// The `tool_finished` record with the whole outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<RecordId>,
    /// The text shown, where it differs from the outcome or there is no such record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Content>,
    /// The pictures and files shown, where `shown` takes the place of the outcome. A reader of a context finds those of
    /// the outcome here too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attached>,
    /// Whether the model is told that the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The rule by which the call was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl ToolResult {
    /// A result of which nothing is known yet.
    pub fn new(call: impl Into<String>) -> Self {
        Self { call: call.into(), finished: None, shown: None, attached: Vec::new(), failed: false, policy: None }
    }

    /// Shows what `finished` says, unless it shows something else.
    pub fn show(&mut self, finished: &ToolFinished) {
        if self.shown.is_none() {
            (self.shown, self.attached) = (finished.shown(), finished.attached());
        }
    }
}

/// A remark that no model sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The remark.
    pub text: Content,
}

impl Body for System {
    const KIND: Kind = Kind::System;
    fn summary(&self, _: SessionId) -> String {
        self.text.to_string()
    }
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Words)
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}

impl Body for User {
    const KIND: Kind = Kind::User;
    fn summary(&self, _: SessionId) -> String {
        self.attached.iter().fold(self.text.to_string(), |text, attached| format!("{text} {attached}"))
    }
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Words)
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.somebody_spoke();
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}

impl Body for ToolResult {
    const KIND: Kind = Kind::ToolResult;
    fn summary(&self, _: SessionId) -> String {
        let shown = self.shown.as_ref().map(ToString::to_string).unwrap_or_default();
        join(&format!("[{}]{}", self.call, if self.failed { " failed" } else { "" }), &shown)
    }
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Result(self.call.as_str().into()))
    }
    fn fold(&self, _: &At, state: &mut State) {
        if let Some(answered) = state.calls.iter().rposition(|open| open.id == self.call) {
            let call = state.calls.remove(answered);
            if let Some(to) = call.hand_off {
                state.hand_off(to);
            }
        }
        state.calls_may_be_over();
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.shown.iter_mut().for_each(each);
    }
}

impl Body for Note {
    const KIND: Kind = Kind::Note;
    fn summary(&self, _: SessionId) -> String {
        self.text.to_string()
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}
