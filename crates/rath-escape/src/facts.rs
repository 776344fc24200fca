//! Facts about the host, passed by the harness.

use std::path::PathBuf;

use crate::attempt::{Failed, cannot_try};

/// A text that is in each secret planted by the harness.
pub(crate) const MARK: &str = "rath-planted-secret";

/// A text on the command line of the process that the harness runs outside.
pub(crate) const OUTSIDER_MARK: &str = "rath-outsider";

/// Facts by name.
pub(crate) struct Facts(Vec<(String, String)>);

impl Facts {
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Self {
        let pair = |word: String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(words.filter_map(pair).collect())
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, Failed> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| cannot_try(format!("nothing is known of {name}")))
    }

    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, Failed> {
        self.text(name).map(PathBuf::from)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, Failed> {
        self.text(name)?.parse().map_err(|_| cannot_try(format!("{name} is not a number")))
    }
}
