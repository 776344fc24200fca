//! The configuration of a provider: its address, API and key.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The configuration of a provider.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSpec {
    /// The API of the provider. Not needed for the names in [`NEED_NO_API`].
    pub api: Option<ProviderApi>,
    /// The base URL, without the path of the API.
    pub base_url: Option<String>,
    /// The dialect of Chat Completions.
    pub dialect: Option<DialectName>,
    /// The API key.
    pub key: Option<Secret>,
    /// The environment variable with the API key.
    pub key_env: Option<String>,
    /// Headers that are sent with each request.
    pub headers: BTreeMap<String, String>,
}

/// The supported APIs of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderApi {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
}

/// Dialects of Chat Completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialectName {
    /// OpenAI.
    Openai,
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// llama.cpp.
    LlamaCpp,
    /// OpenRouter.
    Openrouter,
    /// DeepSeek.
    Deepseek,
    /// The common subset that all servers accept.
    Common,
}

/// An API key in a configuration file. It is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Secret(String);

impl Secret {
    /// The key.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl TryFrom<toml::Value> for Secret {
    type Error = &'static str;
    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        match value {
            toml::Value::String(key) if !key.is_empty() => Ok(Self(key)),
            _ => Err("a key must be a non-empty string"),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Provider names whose API is known.
pub const NEED_NO_API: &[&str] =
    &["anthropic", "openai", "openrouter", "deepseek", "ollama", "vllm", "llama-cpp", "scripted"];

impl ProviderSpec {
    /// The problem of a provider with this name: the key and a message. `None` if it is valid.
    pub fn problem(&self, name: &str) -> Option<(&'static str, &'static str)> {
        match self.api.is_none() && !NEED_NO_API.contains(&name) {
            true => Some(("api", "missing: set it to anthropic, openai-chat or openai-responses")),
            false => self.local_problem(),
        }
    }

    fn local_problem(&self) -> Option<(&'static str, &'static str)> {
        if self.key.is_some() && self.key_env.is_some() {
            return Some(("key_env", "a provider has either `key` or `key_env`, not both"));
        }
        if self.dialect.is_some() && self.api.is_some_and(|api| api != ProviderApi::OpenaiChat) {
            return Some(("dialect", "only openai-chat has dialects"));
        }
        match self.base_url.as_deref().map(authority) {
            Some(None) => Some(("base_url", "the URL must start with http:// or https://")),
            Some(Some(authority)) if authority.contains('@') => {
                Some(("base_url", "the URL must not contain a key: use `key` or `key_env`"))
            }
            _ => None,
        }
    }

    /// Whether the provider runs on this machine.
    pub fn is_local(&self) -> bool {
        let Some(authority) = self.base_url.as_deref().and_then(authority) else { return false };
        let name = authority.strip_prefix("[::1]").or_else(|| authority.strip_prefix("127.0.0.1"));
        let rest = name.or_else(|| authority.strip_prefix("localhost"));
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// The part of a URL between the scheme and the path.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    (!authority.is_empty()).then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> ProviderSpec {
        ProviderSpec { base_url: Some(url.into()), ..ProviderSpec::default() }
    }

    #[test]
    fn only_loopback_addresses_are_local() {
        for url in ["http://127.0.0.1:8099/v1", "http://localhost", "https://[::1]:80/", "http://localhost/x@y"] {
            assert!(at(url).is_local() && at(url).local_problem().is_none(), "{url}");
        }
        for url in [
            "http://127.0.0.1.example.com/",
            "http://localhost.example.com",
            "http://127.0.0.1@example.com/",
            "http://localhost:80@example.com/",
            "http://example.com#localhost",
            "http://example.com\\@localhost",
            "http://localhost:99999/",
            "HTTP://localhost",
        ] {
            assert!(!at(url).is_local(), "{url}");
        }
        assert_eq!(at("http://sk-1@example.com/").local_problem().unwrap().0, "base_url");
        assert_eq!(at("ftp://example.com/").local_problem().unwrap().0, "base_url");
    }

    #[test]
    fn keys_are_not_shown() {
        let provider: ProviderSpec = toml::from_str("key = \"sk-secret\"").unwrap();
        assert!(!format!("{provider:?}").contains("sk-secret"));
        let error = toml::from_str::<ProviderSpec>("key = 424242").unwrap_err();
        assert!(!error.message().contains("424242"), "{}", error.message());
    }
}
