//! Keys: from the environment, the configuration, or the keyring of the system.

use std::fmt;

use anyhow::{Context as _, Result};
use rath::Key;
use serde::Serialize;

use super::keyring::Unavailable;
use super::{Known, Named};

/// A key, and where it was.
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) from: Source,
}

/// Where a key was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub(crate) enum Source {
    /// A variable of the environment.
    Variable { name: String },
    /// A configuration file.
    Configuration { place: String },
    /// The keyring of the system.
    Keyring,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Variable { name } => write!(f, "${name}"),
            Source::Configuration { place } => f.write_str(place),
            Source::Keyring => f.write_str("the keyring"),
        }
    }
}

/// Nobody has a key.
#[derive(Debug)]
pub(crate) struct NoCredentials(String);

impl NoCredentials {
    pub(crate) fn of(provider: &Named<'_>) -> Self {
        let name = &provider.name;
        let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
        if let Some(locked) = provider.locked_keyring() {
            return Self(format!(
                "no key for {name} is at hand, and {locked}\n  help: unlock it, {variable}see `rath auth list`"
            ));
        }
        Self(format!(
            "there is no key for {name}: {variable}keep one with `rath auth set {name}`, or use a model on this machine (`ollama serve`, then `-m ollama/MODEL`)"
        ))
    }

    /// No provider is at hand at all.
    pub(crate) fn of_any() -> Self {
        let keys: Vec<_> = super::known::ALL.iter().filter_map(|known: &Known| known.key_env).take(2).collect();
        Self(format!(
            "there is no model to ask: set {} (or `rath auth set anthropic`), or start a model on this machine with Ollama (`ollama run qwen3:4b`)\n  help: `rath demo` shows everything without either",
            keys.join(" or ")
        ))
    }
}

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCredentials {}

impl Named<'_> {
    /// The variable in which its key is looked for.
    pub(crate) fn key_variable(&self) -> Option<&str> {
        self.said.key_env.as_deref().or(self.known.and_then(|known| known.key_env))
    }

    /// Its key. The environment is looked at first, then the configuration, then the keyring. A system without a
    /// keyring has no keys there. A provider that only a stranger's project names gets none from there: it would
    /// go to whatever address the project says.
    pub(crate) fn key(&self) -> Result<Option<Found>> {
        if let Some(variable) = self.key_variable()
            && let Some(value) = self.settings.variable(variable).filter(|value| !value.is_empty())
        {
            let key = value.into_string().ok().with_context(|| format!("${variable} is no text"))?;
            return Ok(Some(Found { key: Key::from(key), from: Source::Variable { name: variable.into() } }));
        }
        if let Some(secret) = &self.said.key {
            let from = Source::Configuration { place: self.key_place.clone().unwrap_or_default() };
            return Ok(Some(Found { key: Key::from(secret.expose()), from }));
        }
        if !self.is_own {
            return Ok(None);
        }
        let key = self.settings.keyring.get(&self.name).ok().flatten();
        Ok(key.map(|key| Found { key, from: Source::Keyring }))
    }

    /// The keyring that may have its key and shows none.
    pub(crate) fn locked_keyring(&self) -> Option<Unavailable> {
        self.settings.keyring.trouble().filter(|trouble| trouble.is_locked)
    }

    /// Whether it answers nobody without a key.
    pub(crate) fn needs_key(&self) -> bool {
        match self.known {
            Some(known) => !known.is_here() && self.said.base_url.is_none(),
            None => self.said.key_env.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::keyring::tests::InMemory;
    use super::super::{Keyring, Providers};
    use rath::agent_file::Resolver as _;

    use super::*;
    use crate::commands::Cli;
    use crate::settings::Settings;

    /// A person with this configuration and this keyring, and a project that says the rest.
    fn with<T>(user: &str, project: &str, keyring: &InMemory, look: impl FnOnce(&Providers<'_>) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join(".rath");
        rath::Embedded::create(&store).unwrap();
        std::fs::write(dir.path().join("config.toml"), user).unwrap();
        std::fs::write(store.join("config.toml"), project).unwrap();
        let settings = Settings {
            here: dir.path().to_owned(),
            named_store: Some(store),
            user_config: Some(dir.path().join("config.toml")),
            keyring: Keyring::of(keyring.clone()),
            ..Settings::from_environment(&Cli::parse_from(["rath", "log"]).global)
        };
        look(&Providers::new(&settings).unwrap())
    }

    fn found(user: &str, project: &str, keyring: &InMemory, provider: &str) -> Option<Source> {
        let found = with(user, project, keyring, |providers| providers.named(provider).unwrap().key().unwrap());
        found.map(|found| match found.from {
            Source::Configuration { place } => {
                Source::Configuration { place: place.rsplit('/').next().unwrap().to_owned() }
            }
            from => from,
        })
    }

    #[test]
    fn the_keyring_comes_last() {
        let ring = InMemory::with("mine", "sk-1");
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\n";
        assert_eq!(found(mine, "", &ring, "mine"), Some(Source::Keyring));
        assert_eq!(*ring.asked.lock().unwrap(), 1);
        let with_key = format!("{mine}key = \"sk-2\"\n");
        let place = Source::Configuration { place: "config.toml:4".into() };
        assert_eq!(found(&with_key, "", &ring, "mine"), Some(place));
        let with_variable = format!("{mine}key_env = \"PATH\"\n");
        assert_eq!(found(&with_variable, "", &ring, "mine"), Some(Source::Variable { name: "PATH".into() }));
        assert_eq!(*ring.asked.lock().unwrap(), 1, "it is not asked where it need not be");
    }

    #[test]
    fn a_keyring_that_cannot_be_used_has_no_keys() {
        let broken = InMemory { broken: true, ..InMemory::with("vllm", "sk-1") };
        assert_eq!(found("", "", &broken, "vllm"), None);
        assert_eq!(*broken.asked.lock().unwrap(), 1);
    }

    #[test]
    fn a_keyring_that_is_locked_is_named() {
        let open = InMemory { broken: true, ..InMemory::default() };
        let locked = InMemory { is_locked: true, ..open.clone() };
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\nkey_env = \"NOT_SET_BY_ANYBODY\"\n";
        let said = |keyring: &InMemory| {
            with(mine, "", keyring, |providers| {
                let error = providers.model("mine/m", &[]).err().unwrap();
                assert!(error.is::<NoCredentials>());
                error.to_string()
            })
        };
        assert!(said(&locked).contains("is locked") && said(&locked).contains("unlock it, set NOT_SET_BY_ANYBODY"));
        assert!(!said(&open).contains("locked") && said(&open).contains("rath auth set mine"));
    }

    #[test]
    fn a_strangers_provider_gets_no_key_from_the_keyring() {
        let ring = InMemory::with("mine", "sk-1");
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\n";
        assert_eq!(found("", mine, &ring, "mine"), None);
        assert_eq!(*ring.asked.lock().unwrap(), 0);
        assert_eq!(found("trust = [\"/\"]\n", mine, &ring, "mine"), Some(Source::Keyring));
    }
}
