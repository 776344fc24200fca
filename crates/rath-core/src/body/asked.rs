//! Questions to a person, and the answers.

use serde::{Deserialize, Deserializer, Serialize};

use super::open_enum::open_enum;
use super::{Body, Grant, UnknownValue};
use crate::blob::Content;
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{OpenAsk, RecordMeta, State};
use crate::summary::join;

/// A question to a person. An answer is only valid for the digest of exactly the text that was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What kind of question it is.
    pub about: QuestionKind,
    /// The id of the tool call that waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The text that the person is shown.
    pub shown: Content,
    /// The SHA-256 of the shown text.
    pub shown_digest: Digest,
    /// The permission that the answer "always" grants; the text shows it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Box<Grant>>,
    /// The policy rule that requires the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

open_enum! {
    /// The kinds of questions. An answer to a kind that this version does not know allows nothing.
    pub enum QuestionKind {
        /// May this call be made? Yes or no.
        Approval = "approval",
        /// Did this call happen? Yes, no, or its outcome in words.
        OutcomeUnknown = "in_doubt",
        /// A question in words, answered in words.
        Question = "question",
    }
}

/// An answer to a question. Only the first answer has an effect; later ones are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The `asked` record that this answers.
    pub asked: RecordId,
    /// The digest of the text that was shown.
    pub shown_digest: Digest,
    /// The answer.
    pub verdict: Verdict,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Yes.
    Yes,
    /// No.
    No,
    /// An answer in words.
    Text(Content),
    /// An answer that only a later version knows. It allows nothing.
    #[serde(untagged, deserialize_with = "unknown_verdict")]
    Unknown(UnknownValue),
}

fn unknown_verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::keyed(deserializer, &["yes", "no", "text"])
}

impl Asked {
    /// A question that shows the text `shown`.
    pub fn new(about: QuestionKind, call: Option<String>, shown: impl Into<String>) -> Self {
        let shown = shown.into();
        Self {
            about,
            call,
            shown_digest: Digest::of(shown.as_bytes()),
            shown: shown.into(),
            always: None,
            policy: None,
        }
    }
}

impl Body for Asked {
    const KIND: Kind = Kind::Asked;
    fn summary(&self, _: SessionId) -> String {
        let about = match self.about {
            QuestionKind::Approval => "may this be done?",
            QuestionKind::OutcomeUnknown => "did this happen?",
            QuestionKind::Question => "",
            QuestionKind::Unknown(_) => return join(&format!("({})", self.about), &self.shown.to_string()),
        };
        join(about, &self.shown.to_string())
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        if let Some(call) = self.call.as_ref().and_then(|id| state.calls.iter_mut().rev().find(|open| open.id == *id)) {
            (call.asked, call.answered) = (Some(self.about), None);
        }
        state.asks.push(OpenAsk {
            record: at.id,
            seq: at.seq,
            about: self.about,
            call: self.call.clone(),
            shown_digest: self.shown_digest,
            always: self.always.clone(),
            inherited: false,
        });
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.shown);
    }
}

impl Body for Answered {
    const KIND: Kind = Kind::Answered;
    fn summary(&self, _: SessionId) -> String {
        let verdict = match &self.verdict {
            Verdict::Yes => "yes".to_owned(),
            Verdict::No => "no".to_owned(),
            Verdict::Text(text) => text.to_string(),
            Verdict::Unknown(answer) => answer.to_string(),
        };
        join(&verdict, &self.why.as_ref().map(|why| format!("({why})")).unwrap_or_default())
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        let bound = |ask: &OpenAsk| ask.record == self.asked && ask.shown_digest == self.shown_digest;
        // A second answer finds no open question and changes nothing.
        let Some(position) = state.asks.iter().position(bound) else { return };
        let ask = state.asks.remove(position);
        if let Some(call) = ask.call.and_then(|id| state.calls.iter_mut().rev().find(|open| open.id == id)) {
            call.answered = Some(at.seq);
        }
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        if let Verdict::Text(text) = &mut self.verdict {
            each(text);
        }
    }
}
