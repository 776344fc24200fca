//! Words as they come, without keys.

use rath_core::Delta;

use crate::key::Key;

/// Hands on what is heard. What may be the beginning of a key waits for what follows.
pub(crate) struct Hiding<'a> {
    secrets: &'a [Key],
    heard: &'a (dyn Fn(Delta) + Send + Sync),
    held: String,
    kind: fn(String) -> Delta,
}

impl<'a> Hiding<'a> {
    pub(crate) fn new(secrets: &'a [Key], heard: &'a (dyn Fn(Delta) + Send + Sync)) -> Self {
        Self { secrets, heard, held: String::new(), kind: Delta::Text }
    }

    pub(crate) fn tell(&mut self, delta: Delta) {
        if self.secrets.is_empty() {
            return (self.heard)(delta);
        }
        let (kind, text): (fn(String) -> Delta, String) = match delta {
            Delta::Text(text) => (Delta::Text, text),
            Delta::Reasoning(text) => (Delta::Reasoning, text),
            Delta::Arguments(text) => (Delta::Arguments, text),
            call @ Delta::Call { .. } => {
                self.flush();
                return (self.heard)(call);
            }
        };
        if kind(String::new()) != (self.kind)(String::new()) {
            self.flush();
            self.kind = kind;
        }
        self.held.push_str(&text);
        self.held = self.secrets.iter().fold(std::mem::take(&mut self.held), |held, secret| secret.hide_in(held));
        let keep = self.secrets.iter().map(|secret| secret.begins_at_end_of(&self.held)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        let ready = std::mem::replace(&mut self.held, rest);
        if !ready.is_empty() {
            (self.heard)((self.kind)(ready));
        }
    }

    /// Nothing follows.
    pub(crate) fn flush(&mut self) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            (self.heard)((self.kind)(held));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_key_in_any_pieces_is_heard_by_nobody() {
        let key = "sk-a-key-of-some-length";
        let said = format!("It is {key}, s is sk-, and {key}{key}.");
        for size in 1..said.len() {
            let words = Mutex::new(String::new());
            let heard = |delta: Delta| match delta {
                Delta::Text(text) => words.lock().unwrap().push_str(&text),
                other => panic!("{other:?}"),
            };
            let secrets = [Key::from(key)];
            let mut hiding = Hiding::new(&secrets, &heard);
            for piece in said.as_bytes().chunks(size) {
                hiding.tell(Delta::Text(String::from_utf8(piece.to_vec()).unwrap()));
            }
            hiding.flush();
            assert_eq!(*words.lock().unwrap(), "It is [key], s is sk-, and [key][key].", "pieces of {size}");
        }
    }
}
