//! Requests to models and their results.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::{BlobRef, Content};
use crate::id::{Digest, RecordId, SessionId};
use crate::injected::Injected;
use crate::kind::Kind;
use crate::model::Parameters;
use crate::state::{RecordMeta, State};
use crate::summary::join;
use crate::usage::Usage;

/// A request to a model is about to be sent. The request consists of the context view at this record's parent, the
/// injected messages, and the prompt and tools in the agent's `step_entered` record. It can be rebuilt from these byte
/// for byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequested {
    /// The name of the model.
    pub model: String,
    /// The name and version of the context view.
    #[serde(rename = "rule")]
    pub view: String,
    /// The name and version of the encoder, which turns the view into a request.
    pub encoder: String,
    /// The SHA-256 of the request.
    pub request: Digest,
    /// The parameters, if they differ from those in the agent's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    /// The previous request in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<RecordId>,
    /// The number of this attempt at the turn; `None` for the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Messages in the request that are not in the context view.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<Injected>,
    /// The agent's configuration, if the step was resumed with one that differs from its `step_entered` record. Such a
    /// configuration differs only in prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BlobRef>,
}

impl ModelRequested {
    /// The first attempt at a turn.
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

/// A model answered. The answer itself is in the `assistant` record that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponded {
    /// The name of the model, as the answer gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's stop reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Tokens and cost.
    #[serde(default)]
    pub usage: Usage,
    /// The source and version of the prices that the cost was computed with. Without prices the cost is unknown and
    /// counts as zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// The latency in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// The raw response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<BlobRef>,
}

/// A request to a model failed, or its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The error message.
    pub why: String,
    /// The HTTP status, if there was a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Whether the request is retried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
    /// Whether a retry may succeed. This does not depend on whether one is made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
    /// Whether the process that sent the request ended before it received an answer. The cost is unknown then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// The part of the answer that was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Content>,
    /// The received part of the raw response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<BlobRef>,
}

impl ModelFailed {
    /// A permanent failure: a retry would not help.
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
    fn fold(&self, at: &RecordMeta, state: &mut State) {
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
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
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if let Some(run) = state.run_mut() {
            run.model_failed(self.retried, self.lost);
        }
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.partial.iter_mut().for_each(each);
    }
}
