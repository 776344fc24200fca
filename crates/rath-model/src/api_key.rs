//! API keys, and removing them from text.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// A provider's API key. It is never printed, and never written anywhere except into the header of a request.
#[derive(Clone)]
pub struct ApiKey(SecretString);

/// Minimum length of a secret, in bytes. Shorter values are placeholders such as `ollama` or `none`.
const SHORTEST: usize = 12;

impl ApiKey {
    /// Splits the value at white space (as in `Bearer KEY`) and returns the parts that are long enough to be secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = ApiKey> {
        self.expose().split_whitespace().filter(|word| word.len() >= SHORTEST).map(ApiKey::from)
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Replaces the key in the text with `[key]`.
    pub(crate) fn redact(&self, text: String) -> String {
        match self.is_in(text.as_bytes()) {
            true => text.replace(self.expose(), "[key]"),
            false => text,
        }
    }

    /// Whether the bytes contain the key.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.expose().len() >= SHORTEST && memchr::memmem::find(bytes, self.expose().as_bytes()).is_some()
    }

    /// The length of the longest suffix of the text, in bytes, that is a proper prefix of the key.
    pub(crate) fn prefix_length_at_end_of(&self, text: &str) -> usize {
        let key = self.expose();
        if key.len() < SHORTEST {
            return 0;
        }
        let longest = text.len().min(key.len() - 1);
        let fits = |length: &usize| {
            let at = text.len() - length;
            text.is_char_boundary(at) && key.starts_with(&text[at..])
        };
        (1..=longest).rev().find(fits).unwrap_or(0)
    }

    /// Replaces the key in the bytes with `[key]`.
    pub(crate) fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let key = self.expose().as_bytes();
        let (mut redacted, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for at in memchr::memmem::find_iter(bytes, key) {
            redacted.extend_from_slice(&bytes[from..at]);
            redacted.extend_from_slice(b"[key]");
            from = at + key.len();
        }
        redacted.extend_from_slice(&bytes[from..]);
        redacted
    }
}

impl<T: Into<String>> From<T> for ApiKey {
    fn from(key: T) -> Self {
        Self(SecretString::from(key.into().trim()))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
