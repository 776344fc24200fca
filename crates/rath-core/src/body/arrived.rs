//! Records that came from elsewhere: another store, another machine or another user's account.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::{RecordId, SessionId};
use crate::kind::Kind;
use crate::state::{At, State};
use crate::summary::counted;

/// The records before this one were made elsewhere. What they say about place, permissions and answers does not count
/// here: a person gives those here.
///
/// On the operator session the record lists what came, and is written before it comes. On a session it stands behind what
/// came and names that list; it is written when the session is first opened to go on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Where the records come from, in words.
    pub from: String,
    /// On the operator session: the sessions that came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<ArrivedLine>,
    /// On a session: the record of the operator session that lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<RecordId>,
}

/// A session of which records came from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedLine {
    /// The session.
    pub session: SessionId,
    /// The last record that came.
    pub to: u64,
}

impl Arrived {
    /// One record names at most this many sessions.
    const MOST: usize = 2000;

    /// The records that list these sessions.
    pub fn list(from: &str, lines: &[ArrivedLine]) -> impl Iterator<Item = Self> {
        lines.chunks(Self::MOST).map(move |lines| Self { from: from.into(), lines: lines.to_vec(), listed: None })
    }
}

impl Body for Arrived {
    const KIND: Kind = Kind::Arrived;
    fn summary(&self, _: SessionId) -> String {
        let Self { from, lines, .. } = self;
        match lines.len() as u64 {
            0 => format!("from {from}: place, permissions and answers of before do not count here"),
            some => format!("{} from {from}", counted(some, "session")),
        }
    }
    fn fold(&self, _: &At, state: &mut State) {
        if self.lines.is_empty() {
            state.arrive();
        }
    }
}
