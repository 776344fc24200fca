//! Keys: from the environment, the configuration, or the keyring of the system.

use std::fmt;

use anyhow::{Context as _, Result};
use rath::Key;

use super::{Known, Named};

/// A key, and where it was.
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) from: String,
}

/// Nobody has a key.
#[derive(Debug)]
pub(crate) struct NoCredentials(String);

impl NoCredentials {
    pub(crate) fn of(provider: &Named<'_>) -> Self {
        let name = &provider.name;
        let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
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

    /// Its key. The environment is looked at first, then the configuration, then the keyring.
    pub(crate) fn key(&self) -> Result<Option<Found>> {
        if let Some(variable) = self.key_variable()
            && let Some(value) = self.settings.variable(variable).filter(|value| !value.is_empty())
        {
            let key = value.into_string().ok().with_context(|| format!("${variable} is no text"))?;
            return Ok(Some(Found { key: Key::from(key), from: format!("${variable}") }));
        }
        if let Some(secret) = &self.said.key {
            return Ok(Some(Found { key: Key::from(secret.expose()), from: "the configuration".into() }));
        }
        Ok(None)
    }

    /// Whether it answers nobody without a key.
    pub(crate) fn needs_key(&self) -> bool {
        match self.known {
            Some(known) => !known.is_here() && self.said.base_url.is_none(),
            None => self.said.key_env.is_some(),
        }
    }
}
