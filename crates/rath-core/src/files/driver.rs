//! Paths for which it is decided beforehand whose side wins.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::Name;
use crate::body::open_enum::open_enum;

open_enum! {
    /// What becomes of a path that both sides changed.
    pub enum Driver {
        /// Our side, whole.
        Ours = "ours",
        /// Their side, whole.
        Theirs = "theirs",
        /// A conflict, also where the lines would fit together.
        Conflict = "conflict",
    }
}

/// Patterns of paths, each with a [`Driver`]; the last that matches counts. A pattern without `/` is of file names in
/// any directory, one with `/` is of whole paths; `*` stays in a directory, `**` does not; `vendor/` is all below.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, Driver)>", into = "Vec<(String, Driver)>")]
pub struct Drivers {
    rules: Vec<(String, Driver)>,
    globs: GlobSet,
}

/// A pattern that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a pattern of paths: {why}; write one like *.lock or docs/**/*.md")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

impl Drivers {
    /// Reads the patterns.
    pub fn new<P: Into<String>>(rules: impl IntoIterator<Item = (P, Driver)>) -> Result<Self, BadPattern> {
        let rules: Vec<(String, Driver)> =
            rules.into_iter().map(|(pattern, driver)| (pattern.into(), driver)).collect();
        let mut globs = GlobSetBuilder::new();
        for (pattern, _) in &rules {
            let bad = |why: String| BadPattern { pattern: pattern.clone(), why };
            let text = path_pattern(pattern).ok_or_else(|| bad("it names nothing".into()))?;
            let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build();
            globs.add(glob.map_err(|error| bad(error.kind().to_string()))?);
        }
        let all = |error: globset::Error| BadPattern {
            pattern: error.glob().unwrap_or_default().into(),
            why: error.kind().to_string(),
        };
        let globs = globs.build().map_err(all)?;
        Ok(Self { rules, globs })
    }

    /// The patterns, as they were given.
    pub fn rules(&self) -> &[(String, Driver)] {
        &self.rules
    }

    /// What was decided for this path.
    pub fn of(&self, path: &Name) -> Option<Driver> {
        let last = self.globs.matches_candidate(&Candidate::from_bytes(path.as_bytes())).into_iter().max()?;
        Some(self.rules[last].1)
    }
}

/// The pattern as one of whole paths.
fn path_pattern(pattern: &str) -> Option<String> {
    let (inner, below) = match pattern.strip_suffix('/') {
        Some(directory) => (directory, "/**"),
        None => (pattern, ""),
    };
    let inner = match inner.strip_prefix('/') {
        Some(rooted) => rooted.to_owned(),
        None if inner.contains('/') || inner.is_empty() => inner.to_owned(),
        None => format!("**/{inner}"),
    };
    (!inner.is_empty()).then(|| inner + below)
}

impl PartialEq for Drivers {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Drivers {}

impl TryFrom<Vec<(String, Driver)>> for Drivers {
    type Error = BadPattern;

    fn try_from(rules: Vec<(String, Driver)>) -> Result<Self, BadPattern> {
        Self::new(rules)
    }
}

impl From<Drivers> for Vec<(String, Driver)> {
    fn from(drivers: Drivers) -> Self {
        drivers.rules
    }
}
