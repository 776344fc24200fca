//! Model providers, set up from the configuration, the environment and the system keyring.

mod credentials;
mod keyring;

use std::ffi::OsString;

use anyhow::Result;
use rath::agent_file::Resolver;
use rath::model::{ApiKey, BoxModel};
use rath::providers::{self, ConfiguredProvider, KeySource, Provider, SCRIPTED};

pub(crate) use credentials::{NoCredentials, explained};
pub(crate) use keyring::Keyring;
#[cfg(test)]
pub(crate) use keyring::tests::FakeKeyring;

use crate::config::{Entry, Origin};
use crate::settings::Settings;

/// The known providers and those of the configuration.
pub(crate) struct Providers<'a>(providers::Providers<'a>);

impl KeySource for Settings {
    fn variable(&self, name: &str) -> Option<OsString> {
        Settings::variable(self, name)
    }

    fn stored(&self, provider: &str) -> Option<ApiKey> {
        // An unavailable keyring counts as empty.
        self.keyring.get(provider).ok().flatten()
    }

    fn locked(&self) -> Option<String> {
        self.keyring.failure().filter(|failure| failure.is_locked).map(|failure| failure.to_string())
    }
}

impl<'a> Providers<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Result<Self> {
        let layers = settings.layers()?;
        let configured = |name: &String| {
            let is_of_it = |entry: &&Entry| matches!(&entry.key[..], [first, second, ..] if first == "providers" && second == name);
            let entries = || layers.entries.iter().filter(is_of_it);
            let by_user = entries().any(|entry| matches!(entry.origin, Origin::User { .. }));
            let key = entries().find(|entry| entry.key[2..] == ["key"]);
            let key_place = key.map(|entry| entry.origin.to_string());
            (by_user || layers.trusted, key_place)
        };
        let all = layers.config.providers.iter().map(|(name, spec)| {
            let (is_trusted, key_place) = configured(name);
            (name.clone(), ConfiguredProvider { spec: spec.clone(), is_trusted, key_place })
        });
        Ok(Self(providers::Providers {
            directory: settings.here.clone(),
            configured: all.collect(),
            model: layers.config.model.clone(),
            keys: settings,
        }))
    }

    /// All providers: the built-in ones, then those of the configuration.
    pub(crate) fn all(&self) -> Vec<Provider<'a>> {
        self.0.all()
    }

    /// The provider called `name`.
    pub(crate) fn named(&self, name: &str) -> Result<Provider<'a>> {
        self.0.named(name).map_err(explained)
    }

    /// The default model: the configured one, or else the first provider with a key.
    pub(crate) async fn default_model(&self) -> Result<String> {
        self.0.default_model().await.map_err(explained)
    }

    /// The model name to record. The path of a script is made absolute, so that the run can be resumed from any directory.
    pub(crate) fn lasting(settings: &Settings, name: String) -> String {
        let Some((SCRIPTED, script)) = name.split_once('/') else { return name };
        let path = settings.here.join(script);
        // Only the directory is resolved: if the file is a symbolic link, its target may change.
        let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
        let path =
            directory.zip(path.file_name()).map_or_else(|| path.clone(), |(directory, name)| directory.join(name));
        match path.to_str() {
            Some(path) => format!("{SCRIPTED}/{path}"),
            None => name,
        }
    }
}

impl Resolver for Providers<'_> {
    type Error = anyhow::Error;

    fn model(&self, name: &str, fallback: &[String]) -> Result<BoxModel> {
        self.0.model(name, fallback).map_err(explained)
    }
}
