//! Answering questions while a run is active, such as at a terminal.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::body::Asked;
use rath_core::store::{BoxFuture, Post};
use rath_core::{Actor, ErrorKind, RecordId, Result, Session};

pub use crate::control::{Answer, Question};

/// An answer from a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HumanReply {
    /// The person.
    pub by: Actor,
    /// What the person answered.
    pub answer: Answer,
    /// The person's reason.
    pub why: Option<String>,
}

/// Receives the questions of a session and its forks, one at a time: `session.provide(QuestionHandler::new(…))`.
///
/// The handler gets each question once. If it returns `None`, the question stays in the inbox, where others can answer
/// it. They can also answer while the handler is running; the first answer counts.
#[derive(Clone)]
pub struct QuestionHandler(Arc<Inner>);

struct Inner {
    asks: Box<dyn Fn(Question) -> BoxFuture<'static, Option<HumanReply>> + Send + Sync>,
    turn: tokio::sync::Mutex<()>,
    /// Questions that the handler left in the inbox.
    left: Mutex<HashSet<RecordId>>,
}

impl QuestionHandler {
    /// Creates a handler that calls `asks` with each question.
    pub fn new<F>(asks: impl Fn(Question) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<HumanReply>> + Send + 'static,
    {
        Self(Arc::new(Inner {
            asks: Box::new(move |question| Box::pin(asks(question))),
            turn: tokio::sync::Mutex::default(),
            left: Mutex::default(),
        }))
    }

    /// The first open question of this session that the handler did not get yet.
    pub(super) async fn next(&self, session: &Session) -> Result<Option<Question>> {
        let open = {
            let left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
            let mut asks = session.state().asks.iter();
            asks.find(|ask| !ask.inherited && !left.contains(&ask.record)).cloned()
        };
        let Some(ask) = open else { return Ok(None) };
        let record = session.record_at(ask.seq).await?;
        let point = record.point();
        let bad = |why| ErrorKind::Record { point, why };
        let asked: Asked = record.body().map_err(bad)?;
        let shown = session.view().await?.content(&asked.shown).await?;
        Ok(Some(Question::new(&record, asked, shown).map_err(bad)?))
    }

    /// Calls the handler with a question, after the calls before it have returned.
    pub(super) fn put(&self, question: Question) -> BoxFuture<'static, Option<Post>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let _turn = inner.turn.lock().await;
            let asked = question.clone();
            let Some(HumanReply { by, answer, why }) = (inner.asks)(question).await else {
                inner.left.lock().unwrap_or_else(PoisonError::into_inner).insert(asked.record);
                return None;
            };
            Some(Post::new(asked.session, by, asked.posted(answer, why)))
        })
    }
}

impl fmt::Debug for QuestionHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuestionHandler")
    }
}
