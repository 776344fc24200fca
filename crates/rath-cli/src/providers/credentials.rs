//! Adds help texts to errors about providers and their API keys.

use std::fmt;

use rath::providers::{Error, KNOWN};

use crate::expression::usage_error;

/// No API key was found. The program exits with code 4.
#[derive(Debug)]
pub(crate) struct NoCredentials(String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCredentials {}

/// Converts a provider error and adds what to do about it.
pub(crate) fn explained(error: Error) -> anyhow::Error {
    match &error {
        Error::UnknownProvider { name, .. } => usage_error(format!(
            "{error}\n  help: add one as `[providers.{name}]` in the configuration, or list the known ones with `rath models`"
        )),
        Error::NoProvider(_) => usage_error(format!("{error}\n  help: `rath models` lists the models you can use")),
        Error::NoModel(provider) => usage_error(format!("{error}\n  help: `rath models {provider}` lists its models")),
        Error::NoKey { provider, variable, locked } => {
            let variable = variable.as_ref().map(|variable| format!("set {variable}, ")).unwrap_or_default();
            let text = match locked {
                Some(locked) => format!(
                    "no API key found for {provider}, and {locked}\n  help: unlock it, {variable}or see `rath auth list`"
                ),
                None => format!(
                    "{error}\n  help: {variable}store one with `rath auth set {provider}`, or use a local model (`ollama serve`, then `-m ollama/MODEL`)"
                ),
            };
            NoCredentials(text).into()
        }
        Error::NothingToAsk => {
            let keys: Vec<_> = KNOWN.iter().filter_map(|known| known.key_env).take(2).collect();
            let text = format!(
                "{error}\n  help: set {}, store a key with `rath auth set anthropic`, or start a local model (`ollama run qwen3:4b`); `rath demo` needs none of them",
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

    use super::super::keyring::tests::FakeKeyring;
    use super::super::{Keyring, Providers};
    use rath::agent_file::Resolver as _;

    use rath::providers::KeyOrigin;

    use super::*;
    use crate::commands::Cli;
    use crate::settings::Settings;

    /// Calls `look` with the providers of the given user configuration, project configuration and keyring.
    fn with<T>(user: &str, project: &str, keyring: &FakeKeyring, look: impl FnOnce(&Providers<'_>) -> T) -> T {
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

    fn found(user: &str, project: &str, keyring: &FakeKeyring, provider: &str) -> Option<KeyOrigin> {
        let found = with(user, project, keyring, |providers| providers.named(provider).unwrap().key().unwrap());
        found.map(|found| match found.from {
            KeyOrigin::Configuration { place } => {
                KeyOrigin::Configuration { place: place.rsplit('/').next().unwrap().to_owned() }
            }
            from => from,
        })
    }

    #[test]
    fn the_keyring_is_asked_last() {
        let ring = FakeKeyring::with("mine", "sk-1");
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\n";
        assert_eq!(found(mine, "", &ring, "mine"), Some(KeyOrigin::Keyring));
        assert_eq!(*ring.asked.lock().unwrap(), 1);
        let with_key = format!("{mine}key = \"sk-2\"\n");
        let place = KeyOrigin::Configuration { place: "config.toml:4".into() };
        assert_eq!(found(&with_key, "", &ring, "mine"), Some(place));
        let with_variable = format!("{mine}key_env = \"PATH\"\n");
        assert_eq!(found(&with_variable, "", &ring, "mine"), Some(KeyOrigin::Variable { name: "PATH".into() }));
        assert_eq!(*ring.asked.lock().unwrap(), 1, "the keyring is asked only if needed");
    }

    #[test]
    fn an_unavailable_keyring_has_no_keys() {
        let broken = FakeKeyring { broken: true, ..FakeKeyring::with("vllm", "sk-1") };
        assert_eq!(found("", "", &broken, "vllm"), None);
        assert_eq!(*broken.asked.lock().unwrap(), 1);
    }

    #[test]
    fn a_locked_keyring_is_reported() {
        let open = FakeKeyring { broken: true, ..FakeKeyring::default() };
        let locked = FakeKeyring { is_locked: true, ..open.clone() };
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\nkey_env = \"UNSET_VARIABLE\"\n";
        let said = |keyring: &FakeKeyring| {
            with(mine, "", keyring, |providers| {
                let error = providers.model("mine/m", &[]).err().unwrap();
                assert!(error.is::<NoCredentials>());
                error.to_string()
            })
        };
        assert!(said(&locked).contains("is locked") && said(&locked).contains("unlock it, set UNSET_VARIABLE"));
        assert!(!said(&open).contains("locked") && said(&open).contains("rath auth set mine"));
    }

    #[test]
    fn an_untrusted_projects_provider_gets_no_key_from_the_keyring() {
        let ring = FakeKeyring::with("mine", "sk-1");
        let mine = "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1\"\n";
        assert_eq!(found("", mine, &ring, "mine"), None);
        assert_eq!(*ring.asked.lock().unwrap(), 0);
        assert_eq!(found("trust = [\"/\"]\n", mine, &ring, "mine"), Some(KeyOrigin::Keyring));
    }
}
