//! The input of the encoders: everything that a request is made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::{Digest, Message, ModelInput, Parameters, RequestSpec, ToolSpec};

/// Everything that an encoder makes a request from, in memory: texts and files that the store keeps as blobs have been
/// read.
#[derive(Clone, Copy, Debug)]
pub struct RequestInput<'a> {
    /// The name of the agent that makes the request.
    pub agent: &'a str,
    /// The provider's name of the model.
    pub model: &'a str,
    /// The agent's system prompt.
    pub prompt: &'a str,
    /// The tools that the model may call.
    pub tools: &'a [ToolSpec],
    /// The other parameters of the request: limits, temperature, answer schema, tool choice.
    pub parameters: &'a Parameters,
    /// The conversation. Texts that the store keeps as blobs are inline.
    pub messages: &'a [Message],
    /// The contents of files attached to the messages, by digest.
    pub files: &'a BTreeMap<Digest, Arc<[u8]>>,
}

impl<'a> RequestInput<'a> {
    /// The input of a request to `model`, made from an agent's input, its messages (with blobs read in) and the
    /// contents of attached files.
    pub fn of(
        model: &'a str,
        shown: &ModelInput<'a>,
        messages: &'a [Message],
        files: &'a BTreeMap<Digest, Arc<[u8]>>,
    ) -> Self {
        let RequestSpec { agent, prompt, tools, parameters, .. } = **shown;
        Self { agent, model, prompt, tools, parameters, messages, files }
    }
}
