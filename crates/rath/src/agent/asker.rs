//! Somebody who can be asked while a run goes on: a person at the terminal.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::body::{About, Asked, Grant, Verdict};
use rath_core::store::{BoxFuture, Post, Posted};
use rath_core::{Actor, Digest, ErrorKind, RecordId, Result, Session, SessionId};

/// A question, as a person is shown it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The session that asks.
    pub session: SessionId,
    /// The place of its `asked` record.
    pub seq: u64,
    /// That record.
    pub record: RecordId,
    /// What it is about.
    pub about: About,
    /// What is shown. The answer binds to exactly this.
    pub shown: String,
    /// What "always" allows, where that can be said.
    pub always: Option<Grant>,
    shown_digest: Digest,
}

/// What a person answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Yes, and to all that the question says "always" allows.
    Always,
    /// In words.
    Words(String),
}

/// An answer, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Who.
    pub by: Actor,
    /// What.
    pub given: Given,
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
        let asked: Asked = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        Ok(Some(Question {
            session: session.id(),
            seq: ask.seq,
            record: ask.record,
            about: ask.about,
            shown: session.view().await?.content(&asked.shown).await?,
            always: ask.always.map(|grant| *grant),
            shown_digest: ask.shown_digest,
        }))
    }

    /// Puts a question, after those that are being asked.
    pub(super) fn put(&self, question: Question) -> BoxFuture<'static, Option<Post>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let _turn = inner.turn.lock().await;
            let (session, asked, shown_digest) = (question.session, question.record, question.shown_digest);
            let Some(Response { by, given, why }) = (inner.asks)(question).await else {
                inner.left.lock().unwrap_or_else(PoisonError::into_inner).insert(asked);
                return None;
            };
            let answer = |verdict, why| Posted::Answer { asked, shown_digest, verdict, why };
            let what = match given {
                Given::Yes => answer(Verdict::Yes, why),
                Given::No => answer(Verdict::No, why),
                Given::Words(words) => answer(Verdict::Text(words.into()), why),
                Given::Always => Posted::Always { asked, shown_digest, why },
            };
            Some(Post::new(session, by, what))
        })
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}
