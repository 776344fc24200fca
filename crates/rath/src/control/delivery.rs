//! What became of something that was said to a session.

use rath_core::store::{Holder, Post};
use rath_core::{Reference, SessionId};
use serde::Serialize;

/// What became of something that was said to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Delivery {
    /// It was recorded; the session's head is now this.
    Recorded(Reference),
    /// A cancellation of a session on which nothing was open: nothing was recorded.
    NothingToStop {
        /// The session's head.
        #[serde(flatten)]
        head: Reference,
        /// False.
        stopped: bool,
    },
    /// It waits in the session's inbox.
    Queued {
        /// The session.
        session: SessionId,
        /// The id of the post.
        #[serde(rename = "left")]
        post: String,
        /// The process that will record it; without one, whoever resumes the session records it.
        holder: Option<Holder>,
    },
}

impl Delivery {
    pub(super) fn queued(post: &Post, holder: Option<Holder>) -> Self {
        Self::Queued { session: post.session, post: post.id.clone(), holder }
    }

    /// Whether a process that works on the session will record it.
    pub fn is_with_a_holder(&self) -> bool {
        matches!(self, Self::Queued { holder: Some(_), .. })
    }
}
