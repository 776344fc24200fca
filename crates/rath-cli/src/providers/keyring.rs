//! The system keyring: Secret Service on Linux, Keychain on macOS, Credential Manager on Windows.
//!
//! A [`Keyring`] reads from a [`KeyringBackend`] on first use of each key and caches the answer until the program exits.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use keyring::Entry;
use rath::model::ApiKey;

/// Service name of our entries in the keyring.
const SERVICE: &str = "rath";
/// Timeout for connecting to the keyring service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for one request. It is long because the service may ask the user for a password.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Stores API keys by provider name.
pub(crate) trait KeyringBackend: Send + Sync {
    fn get(&self, provider: &str) -> Result<Option<String>, Unavailable>;
    fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable>;
    /// Returns whether there was a key.
    fn remove(&self, provider: &str) -> Result<bool, Unavailable>;
}

/// The keyring is unavailable or locked.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable {
    why: String,
    /// Whether the keyring exists but is locked, so it may contain keys.
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
            true => write!(f, "the system keyring is locked: {}", self.why),
            false => write!(f, "the system keyring is unavailable: {}", self.why),
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

/// The keyring with a cache of its answers.
#[derive(Clone)]
pub(crate) struct Keyring {
    ring: Arc<dyn KeyringBackend>,
    cache: Arc<Mutex<Cache>>,
}

#[derive(Default)]
struct Cache {
    keys: HashMap<String, Option<ApiKey>>,
    /// Set after a failure: an unavailable keyring is not asked again.
    failure: Option<Unavailable>,
}

impl Keyring {
    /// The system's keyring. It is opened on first use.
    pub(crate) fn system() -> Self {
        Self::of(System)
    }

    pub(crate) fn of(ring: impl KeyringBackend + 'static) -> Self {
        Self { ring: Arc::new(ring), cache: Arc::default() }
    }

    /// The key of a provider, if it is stored.
    pub(crate) fn get(&self, provider: &str) -> Result<Option<ApiKey>, Unavailable> {
        let mut cache = self.cache();
        if let Some(key) = cache.keys.get(provider) {
            return Ok(key.clone());
        }
        if let Some(failure) = &cache.failure {
            return Err(failure.clone());
        }
        match self.ring.get(provider) {
            Ok(key) => {
                let key = key.filter(|key| !key.trim().is_empty()).map(ApiKey::from);
                cache.keys.insert(provider.to_owned(), key.clone());
                Ok(key)
            }
            Err(failure) => {
                cache.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// The text stored under a name that is not a provider's. Not cached.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Unavailable> {
        self.ring.get(name)
    }

    /// Why the keyring is unavailable, if an earlier request failed.
    pub(crate) fn failure(&self) -> Option<Unavailable> {
        self.cache().failure.clone()
    }

    pub(crate) fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable> {
        self.ring.set(provider, key)?;
        self.cache().keys.insert(provider.to_owned(), Some(ApiKey::from(key)));
        Ok(())
    }

    /// Removes the key of a provider. Returns whether there was one.
    pub(crate) fn remove(&self, provider: &str) -> Result<bool, Unavailable> {
        let there = self.ring.remove(provider)?;
        self.cache().keys.insert(provider.to_owned(), None);
        Ok(there)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The system's keyring.
struct System;

impl KeyringBackend for System {
    fn get(&self, provider: &str) -> Result<Option<String>, Unavailable> {
        match within(REQUEST_TIMEOUT, entry(provider)?, |entry| entry.get_password())? {
            Ok(key) => Ok(Some(key)),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set(&self, provider: &str, key: &str) -> Result<(), Unavailable> {
        let key = key.to_owned();
        Ok(within(REQUEST_TIMEOUT, entry(provider)?, move |entry| entry.set_password(&key))??)
    }

    fn remove(&self, provider: &str) -> Result<bool, Unavailable> {
        match within(REQUEST_TIMEOUT, entry(provider)?, |entry| entry.delete_credential())? {
            Ok(()) => Ok(true),
            Err(keyring::Error::NoEntry) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The keyring entry of a provider. Connects to the service first.
fn entry(provider: &str) -> Result<Entry, Unavailable> {
    let greeted = within(CONNECT_TIMEOUT, (), |()| Entry::store_status().as_ref().map_err(ToString::to_string))?;
    greeted.map_err(Unavailable::new)?;
    Ok(Entry::new(SERVICE, provider)?)
}

/// Runs `work` on a thread of its own and gives up waiting after `wait`, because the keyring service may hang.
fn within<A, T>(wait: Duration, with: A, work: impl FnOnce(A) -> T + Send + 'static) -> Result<T, Unavailable>
where
    A: Send + 'static,
    T: Send + 'static,
{
    let (done, result) = mpsc::channel();
    let thread = std::thread::Builder::new().name("keyring".into());
    thread.spawn(move || drop(done.send(work(with)))).map_err(|error| Unavailable::new(error.to_string()))?;
    let timed_out = |_| Unavailable::new(format!("no answer within {} s", wait.as_secs()));
    result.recv_timeout(wait).map_err(timed_out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A keyring in memory that counts requests.
    #[derive(Clone, Default)]
    pub(crate) struct FakeKeyring {
        pub(crate) keys: Arc<Mutex<HashMap<String, String>>>,
        pub(crate) asked: Arc<Mutex<usize>>,
        pub(crate) broken: bool,
        pub(crate) is_locked: bool,
    }

    impl FakeKeyring {
        pub(crate) fn with(provider: &str, key: &str) -> Self {
            let ring = Self::default();
            ring.keys.lock().unwrap().insert(provider.into(), key.into());
            ring
        }

        fn ask(&self) -> Result<MutexGuard<'_, HashMap<String, String>>, Unavailable> {
            *self.asked.lock().unwrap() += 1;
            match self.broken {
                true => Err(Unavailable { is_locked: self.is_locked, ..Unavailable::new("no service") }),
                false => Ok(self.keys.lock().unwrap()),
            }
        }
    }

    impl KeyringBackend for FakeKeyring {
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
    fn each_key_is_read_once_and_a_broken_keyring_is_asked_once() {
        let ring = FakeKeyring::with("anthropic", "sk-1");
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
        let broken = FakeKeyring { broken: true, ..FakeKeyring::default() };
        let keyring = Keyring::of(broken.clone());
        for provider in ["anthropic", "openai"] {
            assert!(keyring.get(provider).unwrap_err().to_string().contains("no service"));
        }
        assert_eq!(*broken.asked.lock().unwrap(), 1);
    }

    #[test]
    fn a_hanging_request_times_out() {
        let (sender, receiver) = mpsc::channel::<()>();
        let error = within(Duration::from_millis(1), receiver, |receiver| receiver.recv()).unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{error}");
        drop(sender);
    }
}
