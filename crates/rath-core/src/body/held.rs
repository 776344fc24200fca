//! What must not go.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::clock::Time;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;

/// Neither erasure nor retention touches what this covers, until it is released or its time is over. Stands on the
/// store's operator session; the actor is who placed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Sessions, each with everything that it stands on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
    /// Labels, NAME or NAME=VALUE: the sessions that have one, each with everything that it stands on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The reason.
    pub why: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Holds end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Their `held` records.
    pub holds: Vec<RecordId>,
    /// The reason.
    pub why: String,
}

impl Body for Held {
    const KIND: Kind = Kind::Held;
}

impl Body for Released {
    const KIND: Kind = Kind::Released;
}
