//! What a model is shown, read: what an encoder makes a request of.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::{Asking, Digest, Message, Parameters, Shown, ToolSpec};

/// What a model is shown, at hand: what an encoder makes a request of.
#[derive(Clone, Copy, Debug)]
pub struct Talk<'a> {
    /// The agent that asks.
    pub agent: &'a str,
    /// The model that is asked.
    pub model: &'a str,
    /// The agent's prompt.
    pub prompt: &'a str,
    /// The tools it may call.
    pub tools: &'a [ToolSpec],
    /// What is asked for besides.
    pub parameters: &'a Parameters,
    /// The conversation, its long texts read.
    pub messages: &'a [Message],
    /// What comes with them, by digest.
    pub files: &'a BTreeMap<Digest, Arc<[u8]>>,
}

impl<'a> Talk<'a> {
    /// What is shown to `model`: these messages, whose long texts are read, and the files that come with them.
    pub fn of(
        model: &'a str,
        shown: &Shown<'a>,
        messages: &'a [Message],
        files: &'a BTreeMap<Digest, Arc<[u8]>>,
    ) -> Self {
        let Asking { agent, prompt, tools, parameters, .. } = **shown;
        Self { agent, model, prompt, tools, parameters, messages, files }
    }
}
