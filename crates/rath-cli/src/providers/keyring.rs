//! The keyring of the system: Secret Service on Linux, Keychain on macOS, Credential Manager on Windows.
//!
//! A [`Keyring`] asks a [`Ring`] when it must, and remembers the answers as long as the program runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use keyring::Entry;
use rath::Key;

/// What our keys are filed under.
const SERVICE: &str = "rath";
/// How long the service may take to say that it is there.
const GREETING: Duration = Duration::from_secs(2);
/// How long it may take for one key: it may have to ask the person for a password.
const ANSWER: Duration = Duration::from_secs(30);

/// Keeps keys of providers, by name.
pub(crate) trait Ring: Send + Sync {
    fn get(&self, provider: &str) -> Result<Option<String>, Unavailable>;
    fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable>;
    /// Whether there was one.
    fn remove(&self, provider: &str) -> Result<bool, Unavailable>;
}

/// The keyring cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable {
    why: String,
    /// Whether it is there and may have keys, but shows none.
    pub(crate) is_locked: bool,
}

impl Unavailable {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_locked: false }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_locked {
            true => write!(f, "the keyring of this system is locked: {}", self.why),
            false => write!(f, "the keyring of this system cannot be used: {}", self.why),
        }
    }
}

impl std::error::Error for Unavailable {}

impl From<keyring::Error> for Unavailable {
    fn from(error: keyring::Error) -> Self {
        let is_locked = matches!(error, keyring::Error::NoStorageAccess(_));
        Self { is_locked, ..Self::new(error.to_string()) }
    }
}

/// A keyring, and what is known of it.
#[derive(Clone)]
pub(crate) struct Keyring {
    ring: Arc<dyn Ring>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    keys: HashMap<String, Option<Key>>,
    /// One that cannot be used is not asked again.
    trouble: Option<Unavailable>,
}

impl Keyring {
    /// That of this system. It is not looked for before it is asked.
    pub(crate) fn of_system() -> Self {
        Self::of(System)
    }

    pub(crate) fn of(ring: impl Ring + 'static) -> Self {
        Self { ring: Arc::new(ring), known: Arc::default() }
    }

    /// The key of a provider, if it has one.
    pub(crate) fn get(&self, provider: &str) -> Result<Option<Key>, Unavailable> {
        let mut known = self.known();
        if let Some(key) = known.keys.get(provider) {
            return Ok(key.clone());
        }
        if let Some(trouble) = &known.trouble {
            return Err(trouble.clone());
        }
        match self.ring.get(provider) {
            Ok(key) => {
                let key = key.filter(|key| !key.trim().is_empty()).map(Key::from);
                known.keys.insert(provider.to_owned(), key.clone());
                Ok(key)
            }
            Err(trouble) => {
                known.trouble = Some(trouble.clone());
                Err(trouble)
            }
        }
    }

    /// The text that is kept under a name which is no provider's. It is asked for each time.
    pub(crate) fn kept(&self, name: &str) -> Result<Option<String>, Unavailable> {
        self.ring.get(name)
    }

    /// Why it cannot be used, where that was found out.
    pub(crate) fn trouble(&self) -> Option<Unavailable> {
        self.known().trouble.clone()
    }

    pub(crate) fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable> {
        self.ring.set(provider, key)?;
        self.known().keys.insert(provider.to_owned(), Some(Key::from(key)));
        Ok(())
    }

    /// Removes the key of a provider. Says whether there was one.
    pub(crate) fn remove(&self, provider: &str) -> Result<bool, Unavailable> {
        let there = self.ring.remove(provider)?;
        self.known().keys.insert(provider.to_owned(), None);
        Ok(there)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one that the system has.
struct System;

impl Ring for System {
    fn get(&self, provider: &str) -> Result<Option<String>, Unavailable> {
        match within(ANSWER, entry(provider)?, |entry| entry.get_password())? {
            Ok(key) => Ok(Some(key)),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable> {
        let key = key.to_owned();
        Ok(within(ANSWER, entry(provider)?, move |entry| entry.set_password(&key))??)
    }

    fn remove(&self, provider: &str) -> Result<bool, Unavailable> {
        match within(ANSWER, entry(provider)?, |entry| entry.delete_credential())? {
            Ok(()) => Ok(true),
            Err(keyring::Error::NoEntry) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The place of a provider's key, once the service has answered.
fn entry(provider: &str) -> Result<Entry, Unavailable> {
    let greeted = within(GREETING, (), |()| Entry::store_status().as_ref().map_err(ToString::to_string))?;
    greeted.map_err(Unavailable::new)?;
    Ok(Entry::new(SERVICE, provider)?)
}

/// Does what may hang, and waits no longer than this for it.
fn within<A, T>(wait: Duration, with: A, work: impl FnOnce(A) -> T + Send + 'static) -> Result<T, Unavailable>
where
    A: Send + 'static,
    T: Send + 'static,
{
    let (done, result) = mpsc::channel();
    let thread = std::thread::Builder::new().name("keyring".into());
    thread.spawn(move || drop(done.send(work(with)))).map_err(|error| Unavailable::new(error.to_string()))?;
    let late = |_| Unavailable::new(format!("it does not answer within {} seconds", wait.as_secs()));
    result.recv_timeout(wait).map_err(late)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A keyring in memory that counts how often it is asked.
    #[derive(Clone, Default)]
    pub(crate) struct InMemory {
        pub(crate) keys: Arc<Mutex<HashMap<String, String>>>,
        pub(crate) asked: Arc<Mutex<usize>>,
        pub(crate) broken: bool,
        pub(crate) is_locked: bool,
    }

    impl InMemory {
        pub(crate) fn with(provider: &str, key: &str) -> Self {
            let ring = Self::default();
            ring.keys.lock().unwrap().insert(provider.into(), key.into());
            ring
        }

        fn ask(&self) -> Result<MutexGuard<'_, HashMap<String, String>>, Unavailable> {
            *self.asked.lock().unwrap() += 1;
            match self.broken {
                true => Err(Unavailable { is_locked: self.is_locked, ..Unavailable::new("nobody is there") }),
                false => Ok(self.keys.lock().unwrap()),
            }
        }
    }

    impl Ring for InMemory {
        fn get(&self, provider: &str) -> Result<Option<String>, Unavailable> {
            Ok(self.ask()?.get(provider).cloned())
        }

        fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable> {
            self.ask()?.insert(provider.into(), key.into());
            Ok(())
        }

        fn remove(&self, provider: &str) -> Result<bool, Unavailable> {
            Ok(self.ask()?.remove(provider).is_some())
        }
    }

    #[test]
    fn each_key_is_asked_for_once_and_a_broken_keyring_once() {
        let ring = InMemory::with("anthropic", "sk-1");
        let keyring = Keyring::of(ring.clone());
        for _ in 0..3 {
            assert!(keyring.get("anthropic").unwrap().is_some());
            assert!(keyring.get("openai").unwrap().is_none());
        }
        assert_eq!(*ring.asked.lock().unwrap(), 2);
        keyring.set("openai", "sk-2").unwrap();
        assert!(keyring.get("openai").unwrap().is_some());
        assert!(keyring.remove("anthropic").unwrap());
        assert!(!keyring.remove("anthropic").unwrap());
        assert!(keyring.get("anthropic").unwrap().is_none());
        assert_eq!(*ring.keys.lock().unwrap(), HashMap::from([("openai".into(), "sk-2".into())]));
        let broken = InMemory { broken: true, ..InMemory::default() };
        let keyring = Keyring::of(broken.clone());
        for provider in ["anthropic", "openai"] {
            assert!(keyring.get(provider).unwrap_err().to_string().contains("nobody is there"));
        }
        assert_eq!(*broken.asked.lock().unwrap(), 1);
    }

    #[test]
    fn what_hangs_is_not_waited_for() {
        let (hold, held) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(1), held, |held| held.recv()).unwrap_err();
        assert!(late.to_string().contains("does not answer"), "{late}");
        drop(hold);
    }
}
