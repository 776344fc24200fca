//! What to do where a model cannot be asked.

use std::fmt;

use rath::providers::{Error, KNOWN};

use crate::expression::unclear;

/// Nobody has a key.
#[derive(Debug)]
pub(crate) struct NoCredentials(String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCredentials {}

/// The error with what to do about it.
pub(crate) fn explained(error: Error) -> anyhow::Error {
    match &error {
        Error::UnknownProvider { name, .. } => {
            unclear(format!("{error}\n  help: `[providers.{name}]` in the configuration adds one"))
        }
        Error::NoProvider(_) => unclear(format!("{error}\n  help: `rath models` lists what can be reached")),
        Error::NoModel(provider) => unclear(format!("{error}\n  help: `rath models {provider}` lists what it offers")),
        Error::NoKey { provider, variable, locked } => {
            let variable = variable.as_ref().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
            let text = match locked {
                Some(locked) => format!(
                    "no key for {provider} is at hand, and {locked}\n  help: unlock it, {variable}see `rath auth list`"
                ),
                None => format!(
                    "{error}: {variable}keep one with `rath auth set {provider}`, or use a model on this machine (`ollama serve`, then `-m ollama/MODEL`)"
                ),
            };
            NoCredentials(text).into()
        }
        Error::NothingToAsk => {
            let keys: Vec<_> = KNOWN.iter().filter_map(|known| known.key_env).take(2).collect();
            let text = format!(
                "{error}: set {} (or `rath auth set anthropic`), or start a model on this machine with Ollama (`ollama run qwen3:4b`)\n  help: `rath demo` shows everything without either",
                keys.join(" or ")
            );
            NoCredentials(text).into()
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::keyring::tests::InMemory;
    use super::super::{Keyring, Providers};
    use rath::agent_file::Resolver as _;

    use rath::providers::KeyOrigin;

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

    fn found(user: &str, project: &str, keyring: &InMemory, provider: &str) -> Option<KeyOrigin> {
        let found = with(user, project, keyring, |providers| providers.named(provider).unwrap().key().unwrap());
        found.map(|found| match found.from {
            KeyOrigin::Configuration { place } => {
                KeyOrigin::Configuration { place: place.rsplit('/').next().unwrap().to_owned() }
            }
            from => from,
        })
    }

    #[test]
    fn the_keyring_comes_last() {
        let ring = InMemory::with("mine", "sk-1");
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\n";
        assert_eq!(found(mine, "", &ring, "mine"), Some(KeyOrigin::Keyring));
        assert_eq!(*ring.asked.lock().unwrap(), 1);
        let with_key = format!("{mine}key = \"sk-2\"\n");
        let place = KeyOrigin::Configuration { place: "config.toml:4".into() };
        assert_eq!(found(&with_key, "", &ring, "mine"), Some(place));
        let with_variable = format!("{mine}key_env = \"PATH\"\n");
        assert_eq!(found(&with_variable, "", &ring, "mine"), Some(KeyOrigin::Variable { name: "PATH".into() }));
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
        assert_eq!(found("trust = [\"/\"]\n", mine, &ring, "mine"), Some(KeyOrigin::Keyring));
    }
}
