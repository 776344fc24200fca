//! The client.

use super::back::back;
use super::decode::Decoder;
use super::dialect::Dialect;
use super::encode;
use crate::http::Http;
use crate::settings::{model, settings};
use crate::talk::Talk;
use crate::turn::Turn;

/// A model that is asked over OpenAI Chat Completions, or one of their dialects. Needs a tokio runtime.
///
/// ```
/// use rath_model::Chat;
///
/// let hosted = Chat::new("gpt-5-mini").key("the key");
/// let local = Chat::ollama("qwen3:4b");
/// let other = Chat::common("some-model", "http://localhost:1234/v1");
/// ```
#[derive(Clone, Debug)]
pub struct Chat {
    model: String,
    http: Http,
    dialect: Dialect,
}

impl Chat {
    /// The model of this name, at OpenAI.
    pub fn new(model: impl Into<String>) -> Self {
        Self::of(Dialect::OpenAi, model)
    }

    /// The model of this name, in this dialect, where that is mostly found.
    pub fn of(dialect: Dialect, model: impl Into<String>) -> Self {
        let http = Http::new(dialect.base_url(), ("authorization", "Bearer "));
        Self { model: model.into(), http, dialect }
    }

    /// A model in Ollama on this machine.
    pub fn ollama(model: impl Into<String>) -> Self {
        Self::of(Dialect::Ollama, model)
    }

    /// A model in vLLM on this machine.
    pub fn vllm(model: impl Into<String>) -> Self {
        Self::of(Dialect::Vllm, model)
    }

    /// A model in the server of llama.cpp on this machine.
    pub fn llama_cpp(model: impl Into<String>) -> Self {
        Self::of(Dialect::LlamaCpp, model)
    }

    /// A model at OpenRouter.
    pub fn openrouter(model: impl Into<String>) -> Self {
        Self::of(Dialect::OpenRouter, model)
    }

    /// A model at DeepSeek.
    pub fn deepseek(model: impl Into<String>) -> Self {
        Self::of(Dialect::DeepSeek, model)
    }

    /// A model at any other server, in what all dialects share.
    pub fn common(model: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self::of(Dialect::Common, model).base_url(base_url)
    }
}

settings!(Chat, models at "/models");
model!(
    Chat,
    Decoder,
    "/chat/completions",
    |chat: &Chat| chat.dialect.encoder(),
    |chat: &Chat, talk: &Talk<'_>| encode(talk, chat.dialect),
    |chat: &Chat, turn: &Turn| (chat.dialect.api(), back(turn, chat.dialect))
);
