//! Looking up models by name, `PROVIDER/MODEL`: the provider, its address and its key.
//!
//! [`Providers`] contains the built-in ones ([`KNOWN`]) and those of a configuration. This module reads neither the
//! environment nor a keyring: a [`KeySource`] does.

mod client;
mod known;
mod spec;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rath_core::BoxModel;
use rath_model::{ApiKey, Fallback, Scripted};
use serde::Serialize;

pub use client::Client;
pub use known::{KNOWN, KnownProvider};
pub use spec::{DialectName, NEED_NO_API, ProviderApi, ProviderSpec, Secret};

/// The provider whose models are script files.
pub const SCRIPTED: &str = "scripted";

/// The time limit for a local server to list its models.
const HERE: Duration = Duration::from_millis(400);

/// The source of keys and addresses outside the configuration: environment and keyring.
pub trait KeySource: Send + Sync {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The key of a provider in a keyring.
    fn stored(&self, provider: &str) -> Option<ApiKey>;

    /// The reason why the keyring cannot be read, such as that it is locked.
    fn locked(&self) -> Option<String>;
}

/// The error of a model that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No provider has this name.
    #[error("unknown provider {name:?}; the providers are: {}", known.join(", "))]
    UnknownProvider {
        /// The name before the `/`.
        name: String,
        /// The providers.
        known: Vec<String>,
    },
    /// The configuration does not name the API of a provider.
    #[error("provider {0} has no API: set `api` in [providers.{0}]")]
    NoApi(String),
    /// The name does not contain a provider.
    #[error("model {0:?} has no provider: give PROVIDER/MODEL, for example ollama/{0}")]
    NoProvider(String),
    /// The name does not contain a model.
    #[error("provider {0} without a model: give {0}/MODEL")]
    NoModel(String),
    /// There is no key for a provider that needs one.
    #[error("no API key for {provider}")]
    NoKey {
        /// The name of the provider.
        provider: String,
        /// The environment variable of the key.
        variable: Option<String>,
        /// The reason why the keyring cannot be read.
        locked: Option<String>,
    },
    /// No model is named, and no provider is available.
    #[error("no model available")]
    NothingToAsk,
    /// An environment variable is not valid UTF-8.
    #[error("${0} is not valid UTF-8")]
    NotText(String),
    /// A script file cannot be read.
    #[error("{0}")]
    Script(String),
}

/// A configured provider, and whether its configuration is trusted.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredProvider {
    /// The configuration.
    pub spec: ProviderSpec,
    /// Whether it was configured by the user, or by a project that the user trusts. Others get no key from the keyring.
    pub is_trusted: bool,
    /// The position of the key in the configuration, for messages.
    pub key_place: Option<String>,
}

/// The available providers.
pub struct Providers<'a> {
    /// The directory that paths of scripts are relative to.
    pub directory: PathBuf,
    /// The configured providers, by name.
    pub configured: BTreeMap<String, ConfiguredProvider>,
    /// The configured default model.
    pub model: Option<String>,
    /// The source of keys.
    pub keys: &'a dyn KeySource,
}

/// A provider.
pub struct Provider<'a> {
    /// Its name.
    pub name: String,
    known: Option<&'static KnownProvider>,
    configured: ConfiguredProvider,
    keys: &'a dyn KeySource,
}

/// A key, and where it was found.
pub struct FoundKey {
    /// The key.
    pub key: ApiKey,
    /// Where it was found.
    pub from: KeyOrigin,
}

/// Where a key was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub enum KeyOrigin {
    /// An environment variable.
    Variable {
        /// Its name.
        name: String,
    },
    /// A configuration file.
    Configuration {
        /// The position in it.
        place: String,
    },
    /// The keyring of the system.
    Keyring,
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name } => write!(f, "${name}"),
            Self::Configuration { place } => f.write_str(place),
            Self::Keyring => f.write_str("the keyring"),
        }
    }
}

impl<'a> Providers<'a> {
    /// All providers: the built-in ones, then those of the configuration.
    pub fn all(&self) -> Vec<Provider<'a>> {
        let known = KNOWN.iter().map(|known| known.name.to_owned());
        let own = self.configured.keys().filter(|name| KnownProvider::named(name).is_none()).cloned();
        known.chain(own).filter_map(|name| self.named(&name).ok()).collect()
    }

    /// The provider of this name.
    pub fn named(&self, name: &str) -> Result<Provider<'a>, Error> {
        let (known, configured) = (KnownProvider::named(name), self.configured.get(name).cloned());
        if known.is_none() && configured.is_none() {
            let known = self.all().into_iter().map(|provider| provider.name).collect();
            return Err(Error::UnknownProvider { name: name.to_owned(), known });
        }
        let configured = configured.unwrap_or_default();
        Ok(Provider { name: name.to_owned(), known, configured, keys: self.keys })
    }

    /// The default model: the configured one, else one of the first provider with a key, else one of a local server.
    pub async fn default_model(&self) -> Result<String, Error> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        for known in KNOWN {
            if let Some(model) = known.model
                && self.named(known.name)?.key()?.is_some()
            {
                return Ok(format!("{}/{model}", known.name));
            }
        }
        for known in KNOWN.iter().filter(|known| known.is_local()) {
            let client = self.named(known.name)?.client("")?.with_timeout(HERE);
            if let Some(model) = client.models().await.ok().and_then(|models| models.into_iter().next()) {
                return Ok(format!("{}/{model}", known.name));
            }
        }
        Err(Error::NothingToAsk)
    }

    /// The model of this name. If it fails, the fallback models are tried in order.
    pub fn model(&self, name: &str, fallback: &[String]) -> Result<BoxModel, Error> {
        let first = self.one(name)?;
        let others = fallback.iter().map(|other| self.one(other)).collect::<Result<Vec<_>, _>>()?;
        Ok(if others.is_empty() { first } else { Arc::new(Fallback::shared(first, others)) })
    }

    fn one(&self, name: &str) -> Result<BoxModel, Error> {
        let (provider, model) = match name.split_once('/') {
            Some((SCRIPTED, path)) => {
                // The error names the file.
                let script = Scripted::from_file(self.directory.join(path));
                return Ok(Arc::new(script.map_err(|error| Error::Script(error.to_string()))?));
            }
            Some((provider, model)) => (provider, model),
            None => match KnownProvider::of_model(name) {
                Some(known) => (known.name, name),
                None => return Err(Error::NoProvider(name.to_owned())),
            },
        };
        if model.is_empty() {
            return Err(Error::NoModel(provider.to_owned()));
        }
        let provider = self.named(provider)?;
        if provider.needs_key() && provider.key()?.is_none() {
            return Err(provider.no_key());
        }
        Ok(provider.client(model)?.boxed())
    }
}

impl Provider<'_> {
    /// Whether the provider is built in, or configured by the user or a trusted project.
    pub fn is_trusted(&self) -> bool {
        self.known.is_some() || self.configured.is_trusted
    }

    /// The environment variable of its key.
    pub fn key_variable(&self) -> Option<&str> {
        self.configured.spec.key_env.as_deref().or(self.known.and_then(|known| known.key_env))
    }

    /// Its key: from the environment, else the configuration, else the keyring. A provider of an untrusted project gets
    /// no key from the keyring, because the project could send it to any address.
    pub fn key(&self) -> Result<Option<FoundKey>, Error> {
        if let Some(variable) = self.key_variable()
            && let Some(value) = self.keys.variable(variable).filter(|value| !value.is_empty())
        {
            let key = value.into_string().map_err(|_| Error::NotText(variable.to_owned()))?;
            return Ok(Some(FoundKey { key: ApiKey::from(key), from: KeyOrigin::Variable { name: variable.into() } }));
        }
        if let Some(secret) = &self.configured.spec.key {
            let place = self.configured.key_place.clone().unwrap_or_default();
            return Ok(Some(FoundKey { key: ApiKey::from(secret.expose()), from: KeyOrigin::Configuration { place } }));
        }
        if !self.is_trusted() {
            return Ok(None);
        }
        Ok(self.keys.stored(&self.name).map(|key| FoundKey { key, from: KeyOrigin::Keyring }))
    }

    /// The reason why the keyring cannot be read, if it cannot.
    pub fn locked_keyring(&self) -> Option<String> {
        self.keys.locked()
    }

    /// Whether requests need a key.
    pub fn needs_key(&self) -> bool {
        match self.known {
            Some(known) => !known.is_local() && self.configured.spec.base_url.is_none(),
            None => self.configured.spec.key_env.is_some(),
        }
    }

    /// The error that the provider has no key.
    pub fn no_key(&self) -> Error {
        let variable = self.key_variable().map(str::to_owned);
        Error::NoKey { provider: self.name.clone(), variable, locked: self.locked_keyring() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment, and a keyring that has a key for every provider.
    struct Keys(&'static [(&'static str, &'static str)]);

    impl KeySource for Keys {
        fn variable(&self, name: &str) -> Option<OsString> {
            self.0.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        }

        fn stored(&self, _: &str) -> Option<ApiKey> {
            Some(ApiKey::from("from the keyring"))
        }

        fn locked(&self) -> Option<String> {
            None
        }
    }

    fn providers(keys: &Keys, is_trusted: bool) -> Providers<'_> {
        let api = Some(ProviderApi::OpenaiChat);
        let spec = ProviderSpec { api, key_env: Some("MINE_KEY".into()), ..ProviderSpec::default() };
        let mine = ConfiguredProvider { spec, is_trusted, key_place: None };
        Providers { directory: "/".into(), configured: [("mine".to_owned(), mine)].into(), model: None, keys }
    }

    #[test]
    fn an_untrusted_provider_gets_no_key_from_the_keyring() {
        let from = |keys: &Keys, is_trusted| {
            let found = providers(keys, is_trusted).named("mine").unwrap().key().unwrap();
            found.map(|found| found.from)
        };
        let variable = KeyOrigin::Variable { name: "MINE_KEY".into() };
        assert_eq!(from(&Keys(&[("MINE_KEY", "sk-1")]), false), Some(variable));
        assert_eq!(from(&Keys(&[("MINE_KEY", "")]), true), Some(KeyOrigin::Keyring));
        assert_eq!(from(&Keys(&[]), false), None);
    }

    #[test]
    fn errors_say_what_is_missing() {
        let keys = Keys(&[]);
        let error = |name: &str| providers(&keys, false).model(name, &[]).err().unwrap();
        assert_eq!(error("qwen3"), Error::NoProvider("qwen3".into()));
        assert_eq!(error("mine/"), Error::NoModel("mine".into()));
        let no_key = Error::NoKey { provider: "mine".into(), variable: Some("MINE_KEY".into()), locked: None };
        assert_eq!(error("mine/m"), no_key);
        assert!(
            matches!(error("nobody/m"), Error::UnknownProvider { known, .. } if known.contains(&"mine".to_owned()))
        );
        assert!(matches!(error("scripted/not-there.toml"), Error::Script(why) if why.contains("not-there.toml")));
    }
}
