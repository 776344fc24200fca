//! Open questions, open waits, and posts that are not recorded yet.

use std::collections::BTreeSet;

use rath_core::store::{Post, Query, Scan, SessionFilter};
use rath_core::{Kind, SessionId, View};
use serde::Serialize;

use super::{Control, Question, Result};
use crate::inspect::{WaitingFor, waits};

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
    /// A wait for a time or an event.
    Wait {
        /// The session that waits.
        session: SessionId,
        /// The wait.
        #[serde(flatten)]
        wait: Box<WaitingFor>,
        /// The title of its session.
        #[serde(skip)]
        title: Option<String>,
    },
    /// A post that is not recorded yet.
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
    /// The inbox of all open sessions, or of one: open questions, posts that are not recorded yet, and open waits.
    pub async fn inbox(&self, session: Option<SessionId>) -> Result<Vec<InboxEntry>> {
        let query = session.map_or_else(|| Query::all().waiting(), |id| SessionFilter::Id(id).into());
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
        let waiting = match session {
            Some(session) => BTreeSet::from([session]),
            None => self.sessions_with_waits().await?,
        };
        for id in waiting {
            let rows = self.store.sessions(SessionFilter::Id(id).into()).await?;
            for row in rows.into_iter().filter(|row| !row.closed) {
                let view = View::of(&self.store, id, None).await?;
                let entry = |wait| InboxEntry::Wait { session: id, wait: Box::new(wait), title: row.title.clone() };
                entries.extend(waits(id, &view).into_iter().map(entry));
            }
        }
        Ok(entries)
    }

    /// The sessions that have waited for something.
    async fn sessions_with_waits(&self) -> Result<BTreeSet<SessionId>> {
        let (mut sessions, mut scan) = (BTreeSet::new(), Scan::all().kinds(&[Kind::Awaited]));
        loop {
            let page = self.store.scan(scan).await?;
            sessions.extend(page.records.iter().map(rath_core::Record::session));
            if !page.more {
                return Ok(sessions);
            }
            scan = Scan::store(page.cursor).kinds(&[Kind::Awaited]);
        }
    }
}
