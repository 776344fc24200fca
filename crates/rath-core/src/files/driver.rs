//! Merge drivers: rules that decide in advance which side wins at a path.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::FilePath;
use crate::body::open_enum::open_enum;

open_enum! {
    /// What a merge does with a path that both sides changed.
    pub enum Driver {
        /// Take our side.
        Ours = "ours",
        /// Take their side.
        Theirs = "theirs",
        /// Report a conflict, even if the changes could be merged by line.
        Conflict = "conflict",
    }
}

/// Path patterns, each with a [`Driver`]. The last pattern that matches a path applies. A pattern without `/` matches
/// file names in any directory; one with `/` matches whole paths. `*` does not match `/`, `**` does. `vendor/` matches
/// everything below `vendor`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, Driver)>", into = "Vec<(String, Driver)>")]
pub struct Drivers {
    rules: Vec<(String, Driver)>,
    globs: GlobSet,
}

/// An invalid path pattern.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a path pattern: {why}; write one like *.lock or docs/**/*.md")]
pub struct BadPattern {
    /// The pattern that cannot be parsed.
    pub pattern: String,
    /// Why it is invalid.
    pub why: String,
}

impl Drivers {
    /// Parses the patterns.
    pub fn new<P: Into<String>>(rules: impl IntoIterator<Item = (P, Driver)>) -> Result<Self, BadPattern> {
        let rules: Vec<(String, Driver)> =
            rules.into_iter().map(|(pattern, driver)| (pattern.into(), driver)).collect();
        let mut globs = GlobSetBuilder::new();
        for (pattern, _) in &rules {
            let bad = |why: String| BadPattern { pattern: pattern.clone(), why };
            let text = path_pattern(pattern).ok_or_else(|| bad("it is empty".into()))?;
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

    /// The patterns and drivers, in the given order.
    pub fn rules(&self) -> &[(String, Driver)] {
        &self.rules
    }

    /// The driver for this path; `None` when no pattern matches.
    pub fn of(&self, path: &FilePath) -> Option<Driver> {
        let last = self.globs.matches_candidate(&Candidate::from_bytes(path.as_bytes())).into_iter().max()?;
        Some(self.rules[last].1)
    }
}

/// Converts the pattern to one that matches whole paths.
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
