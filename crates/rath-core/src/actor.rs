//! The author of a record.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The author of a record, and how it was authenticated.
///
/// The fields are declared in the order of canonical JSON, because the header is serialized in declaration order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// How the principal was authenticated, e.g. `os-user`, `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how_authenticated: Option<String>,
    /// The kind of actor: `person`, `agent`, `workflow`, `tool`, `program`.
    pub kind: String,
    /// The name, among actors of the same kind.
    pub name: String,
    /// The account that the actor acts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl Actor {
    /// An actor without authentication.
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

    /// Returns the actor as acting for `principal`, authenticated by the method `how`.
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
