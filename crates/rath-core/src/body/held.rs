//! What must not go.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::clock::Time;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

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
    fn summary(&self, _: SessionId) -> String {
        let sessions = self.sessions.iter().map(|session| session.short().to_string());
        let what: Vec<_> = sessions.chain(self.labels.iter().map(|label| format!("label {label}"))).collect();
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        join(&format!("{}{until}", what.join(", ")), &format!("({})", self.why))
    }
}

impl Body for Released {
    const KIND: Kind = Kind::Released;
    fn summary(&self, _: SessionId) -> String {
        join(&counted(self.holds.len() as u64, "hold"), &format!("({})", self.why))
    }
}
