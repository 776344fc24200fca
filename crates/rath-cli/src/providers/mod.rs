//! Providers of models, as the configuration, the environment and the keyring of this user say.

mod credentials;
mod keyring;

use std::ffi::OsString;

use anyhow::Result;
use rath::agent_file::Resolver;
use rath::model::{BoxModel, Key};
use rath::providers::{self, Configured, KeySource, Provider, SCRIPTED};

pub(crate) use credentials::{NoCredentials, explained};
pub(crate) use keyring::Keyring;
#[cfg(test)]
pub(crate) use keyring::tests::InMemory;

use crate::config::{Entry, Origin};
use crate::settings::Settings;

/// The providers that can be asked.
pub(crate) struct Providers<'a>(providers::Providers<'a>);

impl KeySource for Settings {
    fn variable(&self, name: &str) -> Option<OsString> {
        Settings::variable(self, name)
    }

    fn stored(&self, provider: &str) -> Option<Key> {
        // A system without a keyring has no keys there.
        self.keyring.get(provider).ok().flatten()
    }

    fn locked(&self) -> Option<String> {
        self.keyring.trouble().filter(|trouble| trouble.is_locked).map(|trouble| trouble.to_string())
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
            let (is_own, key_place) = configured(name);
            (name.clone(), Configured { spec: spec.clone(), is_own, key_place })
        });
        Ok(Self(providers::Providers {
            directory: settings.here.clone(),
            configured: all.collect(),
            model: layers.config.model.clone(),
            keys: settings,
        }))
    }

    /// All of them: those that are known, then those of the configuration.
    pub(crate) fn all(&self) -> Vec<Provider<'a>> {
        self.0.all()
    }

    /// One of them by name.
    pub(crate) fn named(&self, name: &str) -> Result<Provider<'a>> {
        self.0.named(name).map_err(explained)
    }

    /// The model that is asked where nobody names one.
    pub(crate) async fn usual(&self) -> Result<String> {
        self.0.usual().await.map_err(explained)
    }

    /// A model's name as it is kept: a script is found from everywhere, also by whoever resumes the run elsewhere.
    pub(crate) fn lasting(settings: &Settings, name: String) -> String {
        let Some((SCRIPTED, script)) = name.split_once('/') else { return name };
        let path = settings.here.join(script);
        // The directory without links and dots; the file may be a link that is to be followed anew.
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
