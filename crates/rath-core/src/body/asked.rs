//! Questions to people, and their answers.

use serde::{Deserialize, Deserializer, Serialize};

use super::open_enum::open_enum;
use super::{Body, Grant, UnknownValue};
use crate::blob::Content;
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{At, OpenAsk, State};
use crate::summary::join;

/// A person is asked. An answer binds to the digest of exactly what is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What it is about.
    pub about: About,
    /// The call that waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// What is shown.
    pub shown: Content,
    /// SHA-256 of what is shown.
    pub shown_digest: Digest,
    /// What "always" allows from then on; it is shown as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Box<Grant>>,
    /// The rule for which a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

open_enum! {
    /// What a question is about. An answer to one that this version does not know allows nothing.
    pub enum About {
        /// May this call be made? Yes or no.
        Approval = "approval",
        /// Did this call happen? Yes, no, or its outcome in words.
        InDoubt = "in_doubt",
        /// A question in words, answered in words.
        Question = "question",
    }
}

/// A person answered. The first answer counts; a late one is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The question.
    pub asked: RecordId,
    /// The digest of what was shown.
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
    /// In words.
    Text(Content),
    /// An answer of a later version. It allows nothing.
    #[serde(untagged, deserialize_with = "unknown_verdict")]
    Unknown(UnknownValue),
}

fn unknown_verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::keyed(deserializer, &["yes", "no", "text"])
}

impl Asked {
    /// Asks with `shown`.
    pub fn new(about: About, call: Option<String>, shown: impl Into<String>) -> Self {
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
            About::Approval => "may this be done?",
            About::InDoubt => "did this happen?",
            About::Question => "",
            About::Unknown(_) => return join(&format!("({})", self.about), &self.shown.to_string()),
        };
        join(about, &self.shown.to_string())
    }
    fn fold(&self, at: &At, state: &mut State) {
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
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
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
    fn fold(&self, at: &At, state: &mut State) {
        let bound = |ask: &OpenAsk| ask.record == self.asked && ask.shown_digest == self.shown_digest;
        // A second answer to the same question finds none open, and changes nothing.
        let Some(position) = state.asks.iter().position(bound) else { return };
        let ask = state.asks.remove(position);
        if let Some(call) = ask.call.and_then(|id| state.calls.iter_mut().rev().find(|open| open.id == id)) {
            call.answered = Some(at.seq);
        }
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        if let Verdict::Text(text) = &mut self.verdict {
            each(text);
        }
    }
}
