//! Which calls are made, asked about, or refused.

use std::collections::BTreeMap;

use serde::Serialize;

/// What is done when a model wants to call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is made.
    #[default]
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused, and the model is told why.
    Deny(String),
}

/// Decisions by tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Policy(BTreeMap<String, Decision>);

impl Policy {
    pub(super) fn set(&mut self, tool: String, decision: Decision) {
        self.0.insert(tool, decision);
    }

    pub(super) fn of(&self, tool: &str) -> &Decision {
        self.0.get(tool).unwrap_or(&Decision::Allow)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
