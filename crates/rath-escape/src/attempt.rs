//! Attempts to escape from the sandbox, and their results.

use std::fmt;
use std::io;

use crate::facts::Facts;

/// The result of an attempt: what it achieved, or why it failed.
pub(crate) type Tried = Result<String, Failed>;

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The sandbox refused it.
    Refused(String),
    /// This machine lacks what it needs.
    CannotTry(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Refused(error.to_string())
    }
}

pub(crate) fn refused(how: impl Into<String>) -> Failed {
    Failed::Refused(how.into())
}

pub(crate) fn cannot_try(why: impl Into<String>) -> Failed {
    Failed::CannotTry(why.into())
}

/// An attempt to escape.
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    about: &'static str,
    harmless: bool,
    go: fn(&Facts) -> Tried,
}

/// An attempt that does no harm without a sandbox.
pub(crate) const fn harmless(name: &'static str, about: &'static str, go: fn(&Facts) -> Tried) -> Attempt {
    Attempt { name, about, harmless: true, go }
}

/// An attempt that must not be made without a sandbox.
pub(crate) const fn harmful(name: &'static str, about: &'static str, go: fn(&Facts) -> Tried) -> Attempt {
    Attempt { name, about, harmless: false, go }
}

impl Attempt {
    pub(crate) fn make(&self, facts: &Facts) -> Tried {
        if !self.harmless && facts.text("harm").ok() != Some("yes") {
            return Err(cannot_try("this could harm a machine without a sandbox; say harm=yes"));
        }
        (self.go)(facts)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let harm = if self.harmless { "harmless" } else { "harmful" };
        write!(f, "{}\t{}\t{harm}", self.name, self.about)
    }
}
