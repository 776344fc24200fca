//! Models by name, `PROVIDER/MODEL`: which provider it is, where it is asked, and with which key.
//!
//! [`Providers`] are the [`KNOWN`] ones and those of a configuration. Nothing here reads the environment or a keyring: a
//! [`KeySource`] does.

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
use rath_model::{Fallback, Key, Scripted};
use serde::Serialize;

pub use client::Client;
pub use known::{KNOWN, Known};
pub use spec::{Api, DialectName, NEED_NO_API, ProviderSpec, Secret};

/// The provider whose models are files.
pub const SCRIPTED: &str = "scripted";

/// How long a server on this machine may take to say that it is there.
const HERE: Duration = Duration::from_millis(400);

/// Where keys and addresses are found besides the configuration.
pub trait KeySource: Send + Sync {
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The key of a provider in a keyring.
    fn stored(&self, provider: &str) -> Option<Key>;

    /// Why a keyring that may have keys shows none: it is locked.
    fn locked(&self) -> Option<String>;
}

/// Why a model cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No provider has this name.
    #[error("there is no provider {name:?}; there are: {}", known.join(", "))]
    UnknownProvider {
        /// The name.
        name: String,
        /// The providers.
        known: Vec<String>,
    },
    /// The configuration does not say which API a provider speaks.
    #[error("say which API {0} speaks: `api` in [providers.{0}]")]
    NoApi(String),
    /// A model without its provider.
    #[error("say who offers {0:?}: PROVIDER/MODEL, for example ollama/{0}")]
    NoProvider(String),
    /// A provider without a model.
    #[error("say which model: {0}/MODEL")]
    NoModel(String),
    /// There is no key for a provider that needs one.
    #[error("there is no key for {provider}")]
    NoKey {
        /// The provider.
        provider: String,
        /// The variable in which a key is looked for.
        variable: Option<String>,
        /// Why the keyring shows none, if it is locked.
        locked: Option<String>,
    },
    /// No model is named, and no provider can be asked.
    #[error("there is no model to ask")]
    NothingToAsk,
    /// A variable that is not text.
    #[error("${0} is no text")]
    NotText(String),
    /// A script that cannot be read.
    #[error("{0}")]
    Script(String),
}

/// What a configuration says of a provider, and how far it is trusted.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// What it says.
    pub spec: ProviderSpec,
    /// Whether the user named it, or trusts the project that does. Others get no key of a keyring.
    pub is_own: bool,
    /// Where the key is, for a person.
    pub key_place: Option<String>,
}

/// The providers that can be asked.
pub struct Providers<'a> {
    /// Where the paths of scripts begin.
    pub directory: PathBuf,
    /// Those of the configuration, by name.
    pub configured: BTreeMap<String, Configured>,
    /// The model that is asked if none is named.
    pub model: Option<String>,
    /// Where keys are found.
    pub keys: &'a dyn KeySource,
}

/// One of them.
pub struct Provider<'a> {
    /// Its name.
    pub name: String,
    known: Option<&'static Known>,
    configured: Configured,
    keys: &'a dyn KeySource,
}

/// A key, and where it was.
pub struct FoundKey {
    /// The key.
    pub key: Key,
    /// Where it was.
    pub from: KeyOrigin,
}

/// Where a key was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub enum KeyOrigin {
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: String,
    },
    /// A configuration file.
    Configuration {
        /// The place in it.
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
    /// All of them: those that are known, then those of the configuration.
    pub fn all(&self) -> Vec<Provider<'a>> {
        let known = KNOWN.iter().map(|known| known.name.to_owned());
        let own = self.configured.keys().filter(|name| Known::named(name).is_none()).cloned();
        known.chain(own).filter_map(|name| self.named(&name).ok()).collect()
    }

    /// One of them by name.
    pub fn named(&self, name: &str) -> Result<Provider<'a>, Error> {
        let (known, configured) = (Known::named(name), self.configured.get(name).cloned());
        if known.is_none() && configured.is_none() {
            let known = self.all().into_iter().map(|provider| provider.name).collect();
            return Err(Error::UnknownProvider { name: name.to_owned(), known });
        }
        let configured = configured.unwrap_or_default();
        Ok(Provider { name: name.to_owned(), known, configured, keys: self.keys })
    }

    /// The model that is asked if none is named: the configured one, one whose key is at hand, or one on this machine.
    pub async fn usual(&self) -> Result<String, Error> {
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
        for known in KNOWN.iter().filter(|known| known.is_here()) {
            let client = self.named(known.name)?.client("")?.impatient(HERE);
            if let Some(model) = client.models().await.ok().and_then(|models| models.into_iter().next()) {
                return Ok(format!("{}/{model}", known.name));
            }
        }
        Err(Error::NothingToAsk)
    }

    /// The model of this name; those of the other names are asked if it does not answer, in this order.
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
            None => match Known::of_model(name) {
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
    /// Whether the user or this library knows it by name, or the user trusts the project that does.
    pub fn is_own(&self) -> bool {
        self.known.is_some() || self.configured.is_own
    }

    /// The variable in which its key is looked for.
    pub fn key_variable(&self) -> Option<&str> {
        self.configured.spec.key_env.as_deref().or(self.known.and_then(|known| known.key_env))
    }

    /// Its key. The environment is looked at first, then the configuration, then the keyring. A provider that only a
    /// stranger's project names gets none from the keyring: it would go to whatever address the project says.
    pub fn key(&self) -> Result<Option<FoundKey>, Error> {
        if let Some(variable) = self.key_variable()
            && let Some(value) = self.keys.variable(variable).filter(|value| !value.is_empty())
        {
            let key = value.into_string().map_err(|_| Error::NotText(variable.to_owned()))?;
            return Ok(Some(FoundKey { key: Key::from(key), from: KeyOrigin::Variable { name: variable.into() } }));
        }
        if let Some(secret) = &self.configured.spec.key {
            let place = self.configured.key_place.clone().unwrap_or_default();
            return Ok(Some(FoundKey { key: Key::from(secret.expose()), from: KeyOrigin::Configuration { place } }));
        }
        if !self.is_own() {
            return Ok(None);
        }
        Ok(self.keys.stored(&self.name).map(|key| FoundKey { key, from: KeyOrigin::Keyring }))
    }

    /// Why the keyring that may have its key shows none.
    pub fn locked_keyring(&self) -> Option<String> {
        self.keys.locked()
    }

    /// Whether it answers nobody without a key.
    pub fn needs_key(&self) -> bool {
        match self.known {
            Some(known) => !known.is_here() && self.configured.spec.base_url.is_none(),
            None => self.configured.spec.key_env.is_some(),
        }
    }

    /// The error that there is no key for it.
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

        fn stored(&self, _: &str) -> Option<Key> {
            Some(Key::from("from the keyring"))
        }

        fn locked(&self) -> Option<String> {
            None
        }
    }

    fn providers(keys: &Keys, is_own: bool) -> Providers<'_> {
        let api = Some(Api::OpenaiChat);
        let spec = ProviderSpec { api, key_env: Some("MINE_KEY".into()), ..ProviderSpec::default() };
        let mine = Configured { spec, is_own, key_place: None };
        Providers { directory: "/".into(), configured: [("mine".to_owned(), mine)].into(), model: None, keys }
    }

    #[test]
    fn a_key_is_looked_for_in_order_and_a_strangers_provider_gets_none_of_the_keyring() {
        let from = |keys: &Keys, is_own| {
            let found = providers(keys, is_own).named("mine").unwrap().key().unwrap();
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
