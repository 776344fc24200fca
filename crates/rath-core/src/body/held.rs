//! Legal holds.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::clock::Time;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

/// A legal hold: neither erasure nor retention may remove what it covers, until it is released or expires. The record
/// is in the store's operator session; the actor is the person who placed the hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The covered sessions. Every session that one of them is based on is covered too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
    /// Labels, as NAME or NAME=VALUE. The sessions with such a label are covered, and every session that one of them is
    /// based on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The reason.
    pub why: String,
    /// When the hold expires; `None` when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Legal holds were released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The `held` records.
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
