//! Somebody who can be asked while a run goes on: a person at the terminal.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::body::Asked;
use rath_core::store::{BoxFuture, Post};
use rath_core::{Actor, ErrorKind, RecordId, Result, Session};

pub use crate::control::{Answer, Question};

/// An answer, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Who.
    pub by: Actor,
    /// What.
    pub answer: Answer,
    /// The reason.
    pub why: Option<String>,
}

/// Is asked what a session and its forks ask, one question at a time: `session.equip(Asker::new(…))`.
///
/// Each question is put once. `None` leaves it in the inbox, where others can answer it, also while it is being asked
/// here; the first answer counts.
#[derive(Clone)]
pub struct Asker(Arc<Inner>);

struct Inner {
    asks: Box<dyn Fn(Question) -> BoxFuture<'static, Option<Response>> + Send + Sync>,
    turn: tokio::sync::Mutex<()>,
    /// Questions that were left in the inbox.
    left: Mutex<HashSet<RecordId>>,
}

impl Asker {
    /// Asks with `asks`.
    pub fn new<F>(asks: impl Fn(Question) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Response>> + Send + 'static,
    {
        Self(Arc::new(Inner {
            asks: Box::new(move |question| Box::pin(asks(question))),
            turn: tokio::sync::Mutex::default(),
            left: Mutex::default(),
        }))
    }

    /// The first question that is open on this line and was not put yet.
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

    /// Puts a question, after those that are being asked.
    pub(super) fn put(&self, question: Question) -> BoxFuture<'static, Option<Post>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let _turn = inner.turn.lock().await;
            let asked = question.clone();
            let Some(Response { by, answer, why }) = (inner.asks)(question).await else {
                inner.left.lock().unwrap_or_else(PoisonError::into_inner).insert(asked.record);
                return None;
            };
            Some(Post::new(asked.session, by, asked.posted(answer, why)))
        })
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}
