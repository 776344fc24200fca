//! Built-in providers, which need no configuration.

use rath_model::chat::Dialect;

use super::ProviderApi;

/// A provider whose address and API are known.
#[derive(Debug)]
pub struct KnownProvider {
    /// Its name.
    pub name: &'static str,
    /// Its API.
    pub api: ProviderApi,
    /// The dialect of Chat Completions.
    pub dialect: Dialect,
    /// The conventional environment variable of its key. `None` for local providers.
    pub key_env: Option<&'static str>,
    /// The conventional environment variable of its address.
    pub url_env: Option<&'static str>,
    /// The default model.
    pub model: Option<&'static str>,
    /// Prefixes of its model names.
    model_prefixes: &'static [&'static str],
}

const fn chat(name: &'static str, dialect: Dialect, key_env: Option<&'static str>) -> KnownProvider {
    KnownProvider {
        name,
        api: ProviderApi::OpenaiChat,
        dialect,
        key_env,
        url_env: None,
        model: None,
        model_prefixes: &[],
    }
}

/// The built-in providers, in the order in which they are tried.
pub const KNOWN: &[KnownProvider] = &[
    KnownProvider {
        name: "anthropic",
        api: ProviderApi::Anthropic,
        dialect: Dialect::OpenAiCompatible,
        key_env: Some("ANTHROPIC_API_KEY"),
        url_env: Some("ANTHROPIC_BASE_URL"),
        model: Some("claude-sonnet-4-5"),
        model_prefixes: &["claude-"],
    },
    KnownProvider {
        name: "openai",
        api: ProviderApi::OpenaiResponses,
        dialect: Dialect::OpenAi,
        key_env: Some("OPENAI_API_KEY"),
        url_env: Some("OPENAI_BASE_URL"),
        model: Some("gpt-5-mini"),
        model_prefixes: &["gpt-", "o1", "o3", "o4", "codex-", "chatgpt-"],
    },
    KnownProvider {
        model: Some("anthropic/claude-sonnet-4.5"),
        ..chat("openrouter", Dialect::OpenRouter, Some("OPENROUTER_API_KEY"))
    },
    KnownProvider {
        model: Some("deepseek-chat"),
        model_prefixes: &["deepseek-"],
        ..chat("deepseek", Dialect::DeepSeek, Some("DEEPSEEK_API_KEY"))
    },
    KnownProvider { url_env: Some("OLLAMA_HOST"), ..chat("ollama", Dialect::Ollama, None) },
    chat("llama-cpp", Dialect::LlamaCpp, None),
    chat("vllm", Dialect::Vllm, None),
];

impl KnownProvider {
    /// The provider of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// The provider of a model, by the model's name.
    pub fn of_model(model: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.model_prefixes.iter().any(|begin| model.starts_with(begin)))
    }

    /// Whether the provider usually runs on the user's machine.
    pub fn is_local(&self) -> bool {
        self.key_env.is_none()
    }
}
