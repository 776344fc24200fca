//! A request to a model and what came of it.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::{BlobRef, Content};
use crate::id::{Digest, RecordId, SessionId};
use crate::injected::Injected;
use crate::kind::Kind;
use crate::model::Parameters;
use crate::state::{At, State};
use crate::summary::join;
use crate::usage::Usage;

/// A model is about to be asked. It is shown what the context view gives at this record's parent, with what is injected,
/// and with the prompt and the tools that the agent's `step_entered` names. The request is rebuilt from that, byte for byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequested {
    /// The model.
    pub model: String,
    /// The context view, by name and version.
    #[serde(rename = "rule")]
    pub view: String,
    /// What makes the request of it, by name and version.
    pub encoder: String,
    /// SHA-256 of the request.
    pub request: Digest,
    /// What is asked for besides, where it is not what the agent's configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    /// The request before this one in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<RecordId>,
    /// Counts how often this turn was asked for, where it is not the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What is shown and the context view does not give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<Injected>,
    /// The agent's configuration, where the step was resumed with another one than it names: one whose prose differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BlobRef>,
}

impl ModelRequested {
    /// The first request of a turn: to this model, through this context view, made by this encoder.
    pub fn new(model: impl Into<String>, view: impl Into<String>, encoder: impl Into<String>, request: Digest) -> Self {
        Self {
            model: model.into(),
            view: view.into(),
            encoder: encoder.into(),
            request,
            parameters: None,
            previous: None,
            attempt: None,
            injected: Vec::new(),
            config: None,
        }
    }
}

/// A model answered. The turn itself is the `assistant` record that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponded {
    /// The model that answered, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why the answer ended, in the provider's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// What it used.
    #[serde(default)]
    pub usage: Usage,
    /// The prices that the cost was worked out with: where they are from, and their version. Without them the cost is
    /// not known, and counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// The response as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<BlobRef>,
}

/// A model did not answer, or nobody knows whether it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// What happened.
    pub why: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Whether it is asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
    /// Whether asking again may help, whether or not it is asked again here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
    /// Whether the request was sent by a process that ended before an answer: its cost is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// What had been heard of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Content>,
    /// The response as far as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<BlobRef>,
}

impl ModelFailed {
    /// A failure that is not mended by asking again.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), status: None, retried: false, transient: false, lost: false, partial: None, raw: None }
    }
}

impl Body for ModelRequested {
    const KIND: Kind = Kind::ModelRequested;
    fn summary(&self, _: SessionId) -> String {
        let again = self.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
        format!("{} is shown {}{again}", self.model, self.view)
    }
    fn fold(&self, at: &At, state: &mut State) {
        if let Some(run) = state.run_mut() {
            run.requested(at.id);
        }
    }
}

impl Body for ModelResponded {
    const KIND: Kind = Kind::ModelResponded;
    fn summary(&self, _: SessionId) -> String {
        join(self.model.as_deref().unwrap_or_default(), &self.usage.to_string())
    }
    fn fold(&self, _: &At, state: &mut State) {
        state.add_usage(self.usage);
        if let Some(run) = state.run_mut() {
            run.responded();
        }
    }
}

impl Body for ModelFailed {
    const KIND: Kind = Kind::ModelFailed;
    fn summary(&self, _: SessionId) -> String {
        join(&self.why, if self.retried { "(asked again)" } else { "" })
    }
    fn fold(&self, _: &At, state: &mut State) {
        if let Some(run) = state.run_mut() {
            run.model_failed(self.retried, self.lost);
        }
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.partial.iter_mut().for_each(each);
    }
}
