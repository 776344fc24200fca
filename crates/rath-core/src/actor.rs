//! Who made a record.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who made a record, and how we know.
///
/// The fields stand in the order of canonical JSON; the header is written from them as they stand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// How the principal was established, e.g. `os-user`, `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how_authenticated: Option<String>,
    /// What it is: `person`, `agent`, `workflow`, `tool`, `program`.
    pub kind: String,
    /// Its name among its kind.
    pub name: String,
    /// The account it acts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl Actor {
    /// An actor of `kind` called `name`, not authenticated.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { how_authenticated: None, kind: kind.into(), name: name.into(), principal: None }
    }

    /// A person.
    pub fn person(name: impl Into<String>) -> Self {
        Self::new("person", name)
    }

    /// An agent.
    pub fn agent(name: impl Into<String>) -> Self {
        Self::new("agent", name)
    }

    /// A program that uses the library.
    pub fn program(name: impl Into<String>) -> Self {
        Self::new("program", name)
    }

    /// The same actor, acting for `principal`, as established by `how`.
    #[must_use]
    pub fn authenticated(mut self, principal: impl Into<String>, how: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
        self.how_authenticated = Some(how.into());
        self
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
