//! Removes API keys from streamed text.

use rath_core::Delta;

use crate::api_key::ApiKey;

/// Forwards deltas with API keys replaced. Text that may be the start of a key is held back until more text arrives.
pub(crate) struct SecretFilter<'a> {
    secrets: &'a [ApiKey],
    on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    pending: String,
    kind: fn(String) -> Delta,
}

impl<'a> SecretFilter<'a> {
    pub(crate) fn new(secrets: &'a [ApiKey], on_delta: &'a (dyn Fn(Delta) + Send + Sync)) -> Self {
        Self { secrets, on_delta, pending: String::new(), kind: Delta::Text }
    }

    pub(crate) fn push(&mut self, delta: Delta) {
        if self.secrets.is_empty() {
            return (self.on_delta)(delta);
        }
        let (kind, text): (fn(String) -> Delta, String) = match delta {
            Delta::Text(text) => (Delta::Text, text),
            Delta::Reasoning(text) => (Delta::Reasoning, text),
            Delta::Arguments(text) => (Delta::Arguments, text),
            call @ Delta::Call { .. } => {
                self.flush();
                return (self.on_delta)(call);
            }
        };
        if kind(String::new()) != (self.kind)(String::new()) {
            self.flush();
            self.kind = kind;
        }
        self.pending.push_str(&text);
        self.pending = self.secrets.iter().fold(std::mem::take(&mut self.pending), |text, secret| secret.redact(text));
        let keep = self.secrets.iter().map(|secret| secret.prefix_length_at_end_of(&self.pending)).max().unwrap_or(0);
        let rest = self.pending.split_off(self.pending.len() - keep);
        let ready = std::mem::replace(&mut self.pending, rest);
        if !ready.is_empty() {
            (self.on_delta)((self.kind)(ready));
        }
    }

    /// Forwards the text that was held back: no more will follow.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        if !text.is_empty() {
            (self.on_delta)((self.kind)(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_key_is_removed_however_it_is_split() {
        let key = "sk-a-key-of-some-length";
        let said = format!("It is {key}, s is sk-, and {key}{key}.");
        for size in 1..said.len() {
            let words = Mutex::new(String::new());
            let on_delta = |delta: Delta| match delta {
                Delta::Text(text) => words.lock().unwrap().push_str(&text),
                other => panic!("{other:?}"),
            };
            let secrets = [ApiKey::from(key)];
            let mut secret_filter = SecretFilter::new(&secrets, &on_delta);
            for piece in said.as_bytes().chunks(size) {
                secret_filter.push(Delta::Text(String::from_utf8(piece.to_vec()).unwrap()));
            }
            secret_filter.flush();
            assert_eq!(*words.lock().unwrap(), "It is [key], s is sk-, and [key][key].", "pieces of {size}");
        }
    }
}
