//! The client of Chat Completions, in all dialects.

use super::back::back;
use super::decode::Decoder;
use super::dialect::Dialect;
use super::encode;
use crate::http::Http;
use crate::request_input::RequestInput;
use crate::settings::{model, settings};
use crate::turn::ProviderTurn;

/// A client of OpenAI Chat Completions and its dialects. Needs a tokio runtime.
///
/// ```
/// use rath_model::Chat;
///
/// let hosted = Chat::new("gpt-5-mini").key("the key");
/// let local = Chat::ollama("qwen3:4b");
/// let other = Chat::openai_compatible("some-model", "http://localhost:1234/v1");
/// ```
#[derive(Clone, Debug)]
pub struct Chat {
    model: String,
    http: Http,
    dialect: Dialect,
}

impl Chat {
    /// A client for this model at OpenAI.
    pub fn new(model: impl Into<String>) -> Self {
        Self::of(Dialect::OpenAi, model)
    }

    /// A client for this model in a dialect, at the dialect's default address.
    pub fn of(dialect: Dialect, model: impl Into<String>) -> Self {
        let http = Http::new(dialect.base_url(), ("authorization", "Bearer "));
        Self { model: model.into(), http, dialect }
    }

    /// A client for a model in Ollama on this machine.
    pub fn ollama(model: impl Into<String>) -> Self {
        Self::of(Dialect::Ollama, model)
    }

    /// A client for a model in vLLM on this machine.
    pub fn vllm(model: impl Into<String>) -> Self {
        Self::of(Dialect::Vllm, model)
    }

    /// A client for a model in the llama.cpp server on this machine.
    pub fn llama_cpp(model: impl Into<String>) -> Self {
        Self::of(Dialect::LlamaCpp, model)
    }

    /// A client for a model at OpenRouter.
    pub fn openrouter(model: impl Into<String>) -> Self {
        Self::of(Dialect::OpenRouter, model)
    }

    /// A client for a model at DeepSeek.
    pub fn deepseek(model: impl Into<String>) -> Self {
        Self::of(Dialect::DeepSeek, model)
    }

    /// A client for a model at any other server with an OpenAI-compatible API.
    pub fn openai_compatible(model: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self::of(Dialect::OpenAiCompatible, model).base_url(base_url)
    }
}

settings!(Chat, models at "/models");
model!(
    Chat,
    Decoder,
    "/chat/completions",
    |chat: &Chat| chat.dialect.encoder(),
    |chat: &Chat, request_input: &RequestInput<'_>| encode(request_input, chat.dialect),
    |chat: &Chat| chat.dialect.schema_support(&chat.model),
    |chat: &Chat, turn: &ProviderTurn| (chat.dialect.api(), back(turn, chat.dialect))
);
