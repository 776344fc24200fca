//! Models by name, `PROVIDER/MODEL`: which provider it is, where it is asked, and with which key.
//!
//! [`Providers`] are those that are known and those of the configuration. A [`Client`] asks one of them.

mod client;
mod credentials;
mod keyring;
mod known;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rath::agent_file::Resolver;
use rath::{BoxModel, Fallback, Scripted};

pub(crate) use credentials::{NoCredentials, Source};
pub(crate) use keyring::Keyring;
#[cfg(test)]
pub(crate) use keyring::tests::InMemory;
use known::Known;

use crate::config::{Entry, Layers, Origin, Provider};
use crate::expression::unclear;
use crate::settings::Settings;

/// The provider whose models are files.
const SCRIPTED: &str = "scripted";

/// How long a server on this machine may take to say that it is there.
const HERE: Duration = Duration::from_millis(400);

/// The providers that can be asked.
pub(crate) struct Providers<'a> {
    settings: &'a Settings,
    layers: Layers,
}

/// One of them.
pub(crate) struct Named<'a> {
    pub(crate) name: String,
    known: Option<&'static Known>,
    said: Provider,
    /// Whether the user or the program knows it by name, or trusts the project that does.
    pub(crate) is_own: bool,
    /// The line of the configuration that has its key.
    key_place: Option<String>,
    settings: &'a Settings,
}

impl<'a> Providers<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Result<Self> {
        Ok(Self { settings, layers: settings.layers()? })
    }

    /// All of them: those that are known, then those of the configuration.
    pub(crate) fn all(&self) -> Vec<Named<'a>> {
        let known = known::ALL.iter().map(|known| known.name.to_owned());
        let own = self.layers.config.providers.keys().filter(|name| Known::named(name).is_none()).cloned();
        known.chain(own).filter_map(|name| self.named(&name).ok()).collect()
    }

    /// One of them by name.
    pub(crate) fn named(&self, name: &str) -> Result<Named<'a>> {
        let known = Known::named(name);
        let said = self.layers.config.providers.get(name).cloned();
        if known.is_none() && said.is_none() {
            let names: Vec<_> = self.all().into_iter().map(|provider| provider.name).collect();
            return Err(unclear(format!(
                "there is no provider {name:?}; there are: {}\n  help: `[providers.{name}]` in the configuration adds one",
                names.join(", ")
            )));
        }
        let is_of_it =
            |entry: &&Entry| matches!(&entry.key[..], [first, second, ..] if first == "providers" && second == name);
        let entries = || self.layers.entries.iter().filter(is_of_it);
        let by_user = entries().any(|entry| matches!(entry.origin, Origin::User { .. }));
        let key = entries().find(|entry| entry.key[2..] == ["key"]);
        Ok(Named {
            name: name.to_owned(),
            known,
            said: said.unwrap_or_default(),
            is_own: known.is_some() || by_user || self.layers.trusted,
            key_place: key.map(|entry| entry.origin.to_string()),
            settings: self.settings,
        })
    }

    /// The model that is asked where nobody names one: the configured one, one whose key is at hand, or one on this
    /// machine.
    pub(crate) async fn usual(&self) -> Result<String> {
        if let Some(model) = &self.layers.config.model {
            return Ok(model.clone());
        }
        for known in known::ALL {
            if let Some(model) = known.model
                && self.named(known.name)?.key()?.is_some()
            {
                return Ok(format!("{}/{model}", known.name));
            }
        }
        for known in known::ALL.iter().filter(|known| known.is_here()) {
            let client = self.named(known.name)?.client("")?.impatient(HERE);
            if let Some(model) = client.models().await.ok().and_then(|models| models.into_iter().next()) {
                return Ok(format!("{}/{model}", known.name));
            }
        }
        Err(NoCredentials::of_any().into())
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

    fn one(&self, name: &str) -> Result<BoxModel> {
        let (provider, model) = match name.split_once('/') {
            Some((SCRIPTED, path)) => {
                // The error names the file.
                return Ok(Arc::new(Scripted::from_file(self.settings.here.join(path))?));
            }
            Some((provider, model)) => (provider, model),
            None => match Known::of_model(name) {
                Some(known) => (known.name, name),
                None => {
                    return Err(unclear(format!(
                        "say who offers {name:?}: PROVIDER/MODEL, for example ollama/{name}\n  help: `rath models` lists what can be reached"
                    )));
                }
            },
        };
        if model.is_empty() {
            let help = format!("`rath models {provider}` lists what it offers");
            return Err(unclear(format!("say which model: {provider}/MODEL\n  help: {help}")));
        }
        let provider = self.named(provider)?;
        if provider.needs_key() && provider.key()?.is_none() {
            return Err(NoCredentials::of(&provider).into());
        }
        Ok(provider.client(model)?.boxed())
    }
}

impl Resolver for Providers<'_> {
    type Error = anyhow::Error;

    fn model(&self, name: &str, fallback: &[String]) -> Result<BoxModel> {
        let first = self.one(name)?;
        let others = fallback.iter().map(|other| self.one(other)).collect::<Result<Vec<_>>>()?;
        Ok(if others.is_empty() { first } else { Arc::new(Fallback::shared(first, others)) })
    }
}
