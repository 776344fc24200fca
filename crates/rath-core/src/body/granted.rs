//! A permission that a person grants once for all similar calls.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{Body, Effect, UnknownValue};
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};

/// The maximum number of permissions in a session's state. Further ones are recorded, but have no effect: the person is
/// asked again.
pub const MAX_GRANTS: usize = 256;

/// A person allowed a call and all similar ones. The actor is that person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The `asked` record that showed the permission.
    pub asked: RecordId,
    /// The permission.
    pub allows: Grant,
}

/// A permission for calls: no question is asked about them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The name of the tool.
    pub tool: String,
    /// The least safe effect that the question was about. Calls with a less safe one are not covered.
    pub effect: Effect,
    /// Which calls of the tool.
    #[serde(flatten)]
    pub scope: Scope,
}

/// Which calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum Scope {
    /// Calls with exactly these arguments.
    Same {
        /// SHA-256 of the arguments' canonical JSON.
        arguments: Digest,
    },
    /// Calls that run one plain command that starts with these words.
    Command {
        /// The words that the command starts with.
        words: Vec<String>,
    },
    /// Calls on files below a directory of the workspace.
    Below {
        /// The directory, relative to the root of the workspace.
        directory: String,
    },
    /// A scope that only a later version knows. It covers no call in this version.
    #[serde(untagged, deserialize_with = "unknown_scope")]
    Unknown(UnknownValue),
}

fn unknown_scope<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "scope", &["same", "command", "below"])
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Scope::Same { .. } => write!(f, "{} with exactly these arguments", self.tool),
            Scope::Command { words } => write!(f, "{} \"{} …\"", self.tool, words.join(" ")),
            Scope::Below { directory } => write!(f, "{} below {directory}/", self.tool),
            Scope::Unknown(scope) => write!(f, "{} ({scope})", self.tool),
        }
    }
}

impl Body for Granted {
    const KIND: Kind = Kind::Granted;
    fn summary(&self, _: SessionId) -> String {
        format!("always: {}", self.allows)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if let Err(index) = state.granted.binary_search(&self.allows)
            && state.granted.len() < MAX_GRANTS
        {
            state.granted.insert(index, self.allows.clone());
        }
    }
}
