//! What waits for a person, and what was posted and not yet recorded.

use rath_core::store::{Post, Query, Which};
use rath_core::{SessionId, View};
use serde::Serialize;

use super::{Control, Question, Result};

/// One entry of the inbox.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum InboxEntry {
    /// A question that waits for an answer.
    Question {
        /// The question.
        #[serde(flatten)]
        question: Box<Question>,
        /// The title of its session.
        #[serde(skip)]
        title: Option<String>,
    },
    /// Something that was posted, and that the process that holds the session has not recorded yet.
    Post(Box<QueuedPost>),
}

/// A post that is not a record yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuedPost {
    /// The session that it was posted to.
    pub session: SessionId,
    /// The post.
    pub post: Post,
}

impl Control {
    /// What waits in all open sessions, or in one: questions for people, and posts that are not recorded yet.
    pub async fn inbox(&self, session: Option<SessionId>) -> Result<Vec<InboxEntry>> {
        let query = session.map_or_else(|| Query::all().waiting(), |id| Which::Id(id).into());
        let mut entries = Vec::new();
        for row in self.store.sessions(query).await?.into_iter().filter(|row| !row.closed) {
            let asks = View::of(&self.store, row.id, None).await?.pending().asks;
            for ask in asks {
                let at = rath_core::Point { session: row.id, seq: ask.seq };
                let question = Box::new(self.question_at(at).await?);
                entries.push(InboxEntry::Question { question, title: row.title.clone() });
            }
            let posts = self.store.posts(row.id).await?;
            let queued = |post| InboxEntry::Post(Box::new(QueuedPost { session: row.id, post }));
            entries.extend(posts.into_iter().map(queued));
        }
        Ok(entries)
    }
}
