//! Keys, which nobody sees.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// A provider's key. It is never printed or written anywhere but into the header of a request.
#[derive(Clone)]
pub struct Key(SecretString);

/// Shorter words are no secrets: `ollama`, `none`.
const SHORTEST: usize = 12;

impl Key {
    /// Those of these words that are long enough to be secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Key> {
        self.expose().split_whitespace().filter(|word| word.len() >= SHORTEST).map(Key::from)
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The text without the key, should somebody have sent it back.
    pub(crate) fn hide_in(&self, text: String) -> String {
        match self.is_in(text.as_bytes()) {
            true => text.replace(self.expose(), "[key]"),
            false => text,
        }
    }

    /// Whether the key is in these bytes.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.expose().len() >= SHORTEST && memchr::memmem::find(bytes, self.expose().as_bytes()).is_some()
    }

    /// How many bytes at the end of a text may be the beginning of the key.
    pub(crate) fn begins_at_end_of(&self, text: &str) -> usize {
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

    /// The bytes without the key.
    pub(crate) fn cut_out_of(&self, bytes: &[u8]) -> Vec<u8> {
        let key = self.expose().as_bytes();
        let (mut left, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for at in memchr::memmem::find_iter(bytes, key) {
            left.extend_from_slice(&bytes[from..at]);
            left.extend_from_slice(b"[key]");
            from = at + key.len();
        }
        left.extend_from_slice(&bytes[from..]);
        left
    }
}

impl<T: Into<String>> From<T> for Key {
    fn from(key: T) -> Self {
        Self(SecretString::from(key.into().trim()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
