//! Providers that need no configuration.

use rath::Dialect;

use crate::config::Api;

/// A provider whose address and API are known.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) api: Api,
    pub(crate) dialect: Dialect,
    /// The variable that holds its key, by custom. Those on this machine have none.
    pub(crate) key_env: Option<&'static str>,
    /// The variable that names another address, by custom.
    pub(crate) url_env: Option<&'static str>,
    /// The model that is asked where nobody names one.
    pub(crate) model: Option<&'static str>,
    /// How names of its models begin.
    begins: &'static [&'static str],
}

const fn chat(name: &'static str, dialect: Dialect, key_env: Option<&'static str>) -> Known {
    Known { name, api: Api::OpenaiChat, dialect, key_env, url_env: None, model: None, begins: &[] }
}

/// In the order in which they are tried.
pub(crate) const ALL: &[Known] = &[
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
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|known| known.name == name)
    }

    /// Who offers a model of this name.
    pub(crate) fn of_model(model: &str) -> Option<&'static Self> {
        ALL.iter().find(|known| known.begins.iter().any(|begin| model.starts_with(begin)))
    }

    /// Whether it runs on the user's machine, mostly.
    pub(crate) fn is_here(&self) -> bool {
        self.key_env.is_none()
    }
}
