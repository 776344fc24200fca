//! The client of a provider.

use std::sync::Arc;
use std::time::Duration;

use rath_core::{BoxModel, Failure};
use rath_model::chat::Dialect;
use rath_model::{Anthropic, Chat, Responses};

use super::{DialectName, Error, KnownProvider, Provider, ProviderApi, ProviderSpec};

/// The client of one provider, by its API.
pub enum Client {
    /// Anthropic Messages.
    Anthropic(Anthropic),
    /// OpenAI Chat Completions.
    Chat(Chat),
    /// OpenAI Responses.
    Responses(Responses),
}

/// Applies an expression to the client of each API.
macro_rules! each {
    ($client:expr, $of:ident => $then:expr) => {
        match $client {
            Client::Anthropic($of) => Client::Anthropic($then),
            Client::Chat($of) => Client::Chat($then),
            Client::Responses($of) => Client::Responses($then),
        }
    };
}

impl Client {
    /// The client as a model.
    pub fn boxed(self) -> BoxModel {
        match self {
            Client::Anthropic(client) => Arc::new(client),
            Client::Chat(client) => Arc::new(client),
            Client::Responses(client) => Arc::new(client),
        }
    }

    /// Requests the names of the provider's models.
    pub async fn models(&self) -> Result<Vec<String>, Failure> {
        match self {
            Client::Anthropic(client) => client.models().await,
            Client::Chat(client) => client.models().await,
            Client::Responses(client) => client.models().await,
        }
    }

    /// Limits the connection time and the total time of each request.
    #[must_use]
    pub fn with_timeout(self, wait: Duration) -> Self {
        each!(self, client => client.connect_timeout(wait).total_timeout(wait))
    }
}

impl Provider<'_> {
    /// The provider's API.
    pub fn api(&self) -> Result<ProviderApi, Error> {
        match self.configured.spec.api.or(self.known.map(|known| known.api)) {
            Some(api) => Ok(api),
            None => Err(Error::NoApi(self.name.clone())),
        }
    }

    /// The client for this model.
    pub fn client(&self, model: &str) -> Result<Client, Error> {
        let client = match self.api()? {
            ProviderApi::Anthropic => Client::Anthropic(Anthropic::new(model)),
            ProviderApi::OpenaiResponses => Client::Responses(Responses::new(model)),
            ProviderApi::OpenaiChat => Client::Chat(Chat::of(self.dialect(), model)),
        };
        let client = match self.base_url() {
            Some(url) => each!(client, client => client.base_url(url)),
            None => client,
        };
        let client = match self.key()? {
            Some(found) => each!(client, client => client.key(found.key)),
            None => client,
        };
        Ok(self
            .configured
            .spec
            .headers
            .iter()
            .fold(client, |client, (name, value)| each!(client, client => client.header(name, value))))
    }

    /// The base URL, if it is not the default one.
    pub fn base_url(&self) -> Option<String> {
        let said = self.configured.spec.base_url.clone();
        said.or_else(|| {
            let known = self.known?;
            let url = self.keys.variable(known.url_env?)?.into_string().ok().filter(|url| !url.is_empty())?;
            match known.dialect {
                // It is a host and a port.
                Dialect::Ollama => Some(ollama_url(&url)),
                _ => Some(url),
            }
        })
    }

    /// The configured address, for display. `None` if it contains credentials.
    pub fn address(&self) -> Option<String> {
        self.base_url().filter(|url| !url.contains('@'))
    }

    /// Whether it runs on this machine.
    pub fn is_local(&self) -> bool {
        match self.base_url() {
            Some(url) => ProviderSpec { base_url: Some(url), ..ProviderSpec::default() }.is_local(),
            None => self.known.is_some_and(KnownProvider::is_local),
        }
    }

    fn dialect(&self) -> Dialect {
        match (self.configured.spec.dialect, self.known) {
            (Some(name), _) => match name {
                DialectName::Openai => Dialect::OpenAi,
                DialectName::Ollama => Dialect::Ollama,
                DialectName::Vllm => Dialect::Vllm,
                DialectName::LlamaCpp => Dialect::LlamaCpp,
                DialectName::Openrouter => Dialect::OpenRouter,
                DialectName::Deepseek => Dialect::DeepSeek,
                DialectName::Common => Dialect::OpenAiCompatible,
            },
            (None, Some(known)) => known.dialect,
            (None, None) => Dialect::OpenAiCompatible,
        }
    }
}

/// `OLLAMA_HOST` is `HOST`, `HOST:PORT` or an address; a server that listens everywhere is asked here.
fn ollama_url(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.trim_end_matches('/').trim_end_matches("/v1");
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (rest, "11434"),
    };
    let name = if matches!(name, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { name };
    format!("{scheme}://{name}:{port}/v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_ollama_become_addresses() {
        for (host, url) in [
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":8080", "http://127.0.0.1:8080/v1"),
            ("box:1234", "http://box:1234/v1"),
            ("https://box:443/", "https://box:443/v1"),
            ("http://box:1/v1", "http://box:1/v1"),
        ] {
            assert_eq!(ollama_url(host), url);
        }
    }
}
