//! Providers that need no configuration.

use rath_model::chat::Dialect;

use super::Api;

/// A provider whose address and API are known.
#[derive(Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// The API it speaks.
    pub api: Api,
    /// Whose Chat Completions they are.
    pub dialect: Dialect,
    /// The variable that holds its key, by custom. Those on this machine have none.
    pub key_env: Option<&'static str>,
    /// The variable that names another address, by custom.
    pub url_env: Option<&'static str>,
    /// The model that is asked where nobody names one.
    pub model: Option<&'static str>,
    /// How names of its models begin.
    begins: &'static [&'static str],
}

const fn chat(name: &'static str, dialect: Dialect, key_env: Option<&'static str>) -> Known {
    Known { name, api: Api::OpenaiChat, dialect, key_env, url_env: None, model: None, begins: &[] }
}

/// In the order in which they are tried.
pub const KNOWN: &[Known] = &[
    Known {
        name: "anthropic",
        api: Api::Anthropic,
        dialect: Dialect::Common,
        key_env: Some("ANTHROPIC_API_KEY"),
        url_env: Some("ANTHROPIC_BASE_URL"),
        model: Some("claude-sonnet-4-5"),
        begins: &["claude-"],
    },
    Known {
        name: "openai",
        api: Api::OpenaiResponses,
        dialect: Dialect::OpenAi,
        key_env: Some("OPENAI_API_KEY"),
        url_env: Some("OPENAI_BASE_URL"),
        model: Some("gpt-5-mini"),
        begins: &["gpt-", "o1", "o3", "o4", "codex-", "chatgpt-"],
    },
    Known {
        model: Some("anthropic/claude-sonnet-4.5"),
        ..chat("openrouter", Dialect::OpenRouter, Some("OPENROUTER_API_KEY"))
    },
    Known {
        model: Some("deepseek-chat"),
        begins: &["deepseek-"],
        ..chat("deepseek", Dialect::DeepSeek, Some("DEEPSEEK_API_KEY"))
    },
    Known { url_env: Some("OLLAMA_HOST"), ..chat("ollama", Dialect::Ollama, None) },
    chat("llama-cpp", Dialect::LlamaCpp, None),
    chat("vllm", Dialect::Vllm, None),
];

impl Known {
    /// The provider of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// Who offers a model of this name.
    pub fn of_model(model: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.begins.iter().any(|begin| model.starts_with(begin)))
    }

    /// Whether it runs on the user's machine, mostly.
    pub fn is_here(&self) -> bool {
        self.key_env.is_none()
    }
}
