//! Records that were imported: from another store, another machine or another user's account.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{RecordMeta, State};
use crate::summary::counted;

/// The records before this one were written elsewhere. Their placement, permissions and answers do not apply here: a
/// person grants those again on this machine.
///
/// On the operator session the record lists the imported sessions and is written before they are imported. On an
/// imported session it follows the imported records and names that list; it is written when the session is first opened
/// for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The origin of the records, as a phrase such as `a bundle`.
    pub from: String,
    /// On the operator session: the imported sessions.
    #[serde(rename = "lines", default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<ArrivedSession>,
    /// On a session: the record of the operator session that lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<RecordId>,
}

/// A session with imported records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedSession {
    /// The id of the imported session.
    pub session: SessionId,
    /// The sequence number of the last imported record.
    pub to: u64,
}

impl Arrived {
    /// A record lists at most this many sessions.
    const MAX_LISTED: usize = 2000;

    /// The records that list these sessions, at most 2,000 in each.
    pub fn list(from: &str, sessions: &[ArrivedSession]) -> impl Iterator<Item = Self> {
        let record =
            move |sessions: &[ArrivedSession]| Self { from: from.into(), sessions: sessions.to_vec(), listed: None };
        sessions.chunks(Self::MAX_LISTED).map(record)
    }
}

impl Body for Arrived {
    const KIND: Kind = Kind::Arrived;
    fn summary(&self, _: SessionId) -> String {
        let Self { from, sessions, .. } = self;
        match sessions.len() as u64 {
            0 => format!("from {from}: earlier placement, permissions and answers do not apply here"),
            some => format!("{} from {from}", counted(some, "session")),
        }
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if self.sessions.is_empty() {
            state.revoke_authority();
        }
    }
}
