//! The delivery of a post to a session.

use rath_core::store::{Holder, Post};
use rath_core::{Reference, SessionId};
use serde::Serialize;

/// The delivery of a post to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Delivery {
    /// The post was recorded. This is the session's new head.
    Recorded(Reference),
    /// The post is a cancellation and nothing was open in the session, so nothing was recorded.
    NothingToStop {
        /// The session's head.
        #[serde(flatten)]
        head: Reference,
        /// Always `false`, for JSON.
        stopped: bool,
    },
    /// The post waits in the session's inbox.
    Queued {
        /// The session whose inbox has the post.
        session: SessionId,
        /// The id of the post.
        #[serde(rename = "left")]
        post: String,
        /// The process that will record it. `None`: it is recorded when the session is resumed.
        holder: Option<Holder>,
    },
}

impl Delivery {
    pub(super) fn queued(post: &Post, holder: Option<Holder>) -> Self {
        Self::Queued { session: post.session, post: post.id.clone(), holder }
    }

    /// Whether a process that works on the session will record it.
    pub fn has_holder(&self) -> bool {
        matches!(self, Self::Queued { holder: Some(_), .. })
    }
}
