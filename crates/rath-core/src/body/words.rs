//! Messages of plain text, tool results, and notes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Body, ToolFinished};
use crate::blob::{BlobRef, Content};
use crate::context::ItemKind;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};
use crate::summary::join;

/// A system message: instructions for the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The instructions.
    pub text: Content,
}

/// A user message, from a person or from a program on their behalf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The message.
    pub text: Content,
    /// The id of the post that delivered it; `None` when the program itself wrote the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<String>,
    /// Attached images and documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
}

/// An image or document attached to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The content, with its media type.
    pub content: BlobRef,
    /// The file name, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlobRef { bytes, media_type, .. } = &self.content;
        match &self.name {
            Some(name) => write!(f, "[attached: {name}, {media_type}, {bytes} bytes]"),
            None => write!(f, "[attached: {media_type}, {bytes} bytes]"),
        }
    }
}

/// What the model is shown about a finished tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call, chosen by the model.
    pub call: String,
    /// The `tool_finished` record with the complete outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<RecordId>,
    /// The text shown, if it differs from the outcome or there is no `tool_finished` record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Content>,
    /// The images and files shown together with `shown`. When a context is read, this also contains those of the
    /// outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
    /// Whether the result tells the model that the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The policy rule that refused the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl ToolResult {
    /// A result for `call`, with all other fields empty.
    pub fn new(call: impl Into<String>) -> Self {
        Self { call: call.into(), finished: None, shown: None, attached: Vec::new(), failed: false, policy: None }
    }

    /// Sets the shown text and attachments from `finished`, unless a text is set already.
    pub fn show(&mut self, finished: &ToolFinished) {
        if self.shown.is_none() {
            (self.shown, self.attached) = (finished.shown(), finished.attached());
        }
    }
}

/// A note that models do not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The text of the note.
    pub text: Content,
}

impl Body for System {
    const KIND: Kind = Kind::System;
    fn summary(&self, _: SessionId) -> String {
        self.text.to_string()
    }
    fn item_kind(&self) -> Option<ItemKind> {
        Some(ItemKind::Message)
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}

impl Body for User {
    const KIND: Kind = Kind::User;
    fn summary(&self, _: SessionId) -> String {
        self.attached.iter().fold(self.text.to_string(), |text, attached| format!("{text} {attached}"))
    }
    fn item_kind(&self) -> Option<ItemKind> {
        Some(ItemKind::Message)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        state.on_user_message();
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}

impl Body for ToolResult {
    const KIND: Kind = Kind::ToolResult;
    fn summary(&self, _: SessionId) -> String {
        let shown = self.shown.as_ref().map(ToString::to_string).unwrap_or_default();
        join(&format!("[{}]{}", self.call, if self.failed { " failed" } else { "" }), &shown)
    }
    fn item_kind(&self) -> Option<ItemKind> {
        Some(ItemKind::Result(self.call.as_str().into()))
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if let Some(answered) = state.calls.iter().rposition(|open| open.id == self.call) {
            let call = state.calls.remove(answered);
            if let Some(to) = call.hand_off {
                state.hand_off(to);
            }
        }
        state.on_call_closed();
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.shown.iter_mut().for_each(each);
    }
}

impl Body for Note {
    const KIND: Kind = Kind::Note;
    fn summary(&self, _: SessionId) -> String {
        self.text.to_string()
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.text);
    }
}
