//! A permission that a person gives once, for all calls like one.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{Body, Effect, UnknownValue};
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};

/// How many permissions a line holds. What comes after is on the record and asked about again.
pub const MOST_GRANTS: usize = 256;

/// A person allowed a call and all that are like it. The actor is who did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The question that said what this would allow.
    pub asked: RecordId,
    /// What is allowed.
    pub allows: Grant,
}

/// Calls that need not be asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The tool.
    pub tool: String,
    /// The least safe effect that was asked about.
    pub effect: Effect,
    /// Which calls of it.
    #[serde(flatten)]
    pub scope: Scope,
}

/// Which calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum Scope {
    /// Those with exactly these arguments.
    Same {
        /// SHA-256 of the arguments' canonical JSON.
        arguments: Digest,
    },
    /// One plain command that begins with these words.
    Command {
        /// The words.
        words: Vec<String>,
    },
    /// Those on files in a directory of the workspace, or below it.
    Below {
        /// The directory, from the top of the workspace.
        directory: String,
    },
    /// Those of a rule of a later version. It covers no call here.
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
    fn fold(&self, _: &At, state: &mut State) {
        if let Err(place) = state.granted.binary_search(&self.allows)
            && state.granted.len() < MOST_GRANTS
        {
            state.granted.insert(place, self.allows.clone());
        }
    }
}
