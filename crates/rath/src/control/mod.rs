//! Acting on sessions from outside their run: answering questions, sending messages and events,
//! cancelling.
//!
//! A [`Control`] acts for one person or program. If another process has the session locked, the message waits in the
//! session's inbox, and that process records it at its next step. Otherwise it is recorded at once.
//!
//! ```
//! use rath::control::{Answer, Control};
//! # use rath::prelude::*;
//! # /// Rings the bell.
//! # #[tool(effect = "irreversible")] fn ring() -> &'static str { "It rang." }
//! # pollster::block_on(async {
//! # let store = InMemory::new();
//! # let model = Scripted::new("m").call("ring", serde_json::json!({})).say("Done.");
//! # let agent = Agent::new("ringer").model(model).tools(ring).tool_policy("ring", Decision::Ask);
//! # let run = || store.run("demo", Actor::program("demo"), &agent, async |session: &mut Session| { session.user("Ring.")?; Ok(()) });
//! # assert!(run().await.is_err());
//! let ada = Control::new(&store, Actor::person("ada"));
//! for question in ada.questions().await? {
//!     println!("{}", question.shown);
//!     ada.answer(&question, Answer::Yes).await?;
//! }
//! # assert_eq!(run().await?.text().await?.as_deref(), Some("Done."));
//! # Ok::<(), rath::control::Error>(())
//! # }).unwrap();
//! ```

mod cancel;
mod delivery;
mod inbox;
mod question;

use std::sync::Arc;

use rath_core::body::{QuestionKind, Verdict};
use rath_core::store::{Error as StoreError, Post, PostContent, SessionFilter};
use rath_core::{Actor, ErrorKind, OpenCall, Point, SessionId, Store, View};

pub use cancel::Cancellation;
pub use delivery::Delivery;
pub use inbox::{InboxEntry, QueuedPost};
pub use question::{Answer, Question};

use crate::inspect::RunStatus;

/// An error of acting on a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the session or its store.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
    /// The record is not a question.
    #[error("{0} is not a question")]
    NotAQuestion(Point),
    /// The answer is "always", which the question does not offer.
    #[error("{0} does not offer \"always\": answer yes or no")]
    NoAlways(Point),
    /// The session was imported, and the question was asked in another store.
    #[error("{0} was asked in another store, and cannot be answered here")]
    AskedElsewhere(Point),
    /// The answer to an approval is text instead of yes or no.
    #[error("{0} is a yes-or-no question: answer yes or no, and give details as the reason")]
    YesOrNo(Point),
    /// An event has an empty name.
    #[error("an event needs a name")]
    NoEventName,
    /// The value of an event is not JSON.
    #[error("the value of the event is not JSON: {0}")]
    NotJson(String),
    /// The value of an event is too large.
    #[error("the value of the event has {0} bytes and the limit is {EVENT_LIMIT}: store it elsewhere and send where")]
    EventTooLarge(usize),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

/// The largest value of an event, in bytes.
const EVENT_LIMIT: usize = 1024 * 1024;

/// The result type of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Acts on the sessions of a store for one person or program.
#[derive(Clone)]
pub struct Control {
    store: Arc<dyn Store>,
    by: Actor,
}

impl Control {
    /// Creates a control that acts for `by`, the actor in the records.
    pub fn new(store: &Arc<dyn Store>, by: Actor) -> Self {
        Self { store: store.clone(), by }
    }

    /// Answers a question. The first answer counts; a later one is recorded and changes nothing.
    pub async fn answer(&self, question: &Question, answer: Answer) -> Result<Delivery> {
        self.answer_because(question, answer, None).await
    }

    /// Answers a question, with a reason.
    pub async fn answer_because(&self, question: &Question, answer: Answer, why: Option<String>) -> Result<Delivery> {
        let at = question.at;
        match answer {
            Answer::Always if question.always.is_none() => return Err(Error::NoAlways(at)),
            Answer::Text(_) if question.about == QuestionKind::Approval => return Err(Error::YesOrNo(at)),
            _ => {}
        }
        // The question describes effects in the other store, not here.
        if View::of(&self.store, at.session, Some(at.seq)).await?.is_from_elsewhere() {
            return Err(Error::AskedElsewhere(at));
        }
        self.deliver(question.session, question.posted(answer, why)).await
    }

    /// Sends a user message to a session. Also returns the status of the session's run before it: the model answers
    /// only while a process works on the run, or when the run is resumed.
    pub async fn say(&self, session: SessionId, text: impl Into<String>) -> Result<(Delivery, Option<RunStatus>)> {
        let run = RunStatus::of(&self.store, &View::of(&self.store, session, None).await?).await?;
        let delivery = self.deliver(session, PostContent::Message { text: text.into() }).await?;
        Ok((delivery, run))
    }

    /// Posts an event for a workflow that waits for it, with a value as JSON text: see
    /// [`wait_for`](crate::workflow::wait_for). The event stays in the session's inbox until one wait of its name, in this
    /// session or on a branch that was forked from it, consumes it. A wait that started later consumes it too.
    pub async fn send_event(&self, session: SessionId, name: &str, json: &str) -> Result<Delivery> {
        if name.is_empty() {
            return Err(Error::NoEventName);
        }
        if let Err(why) = serde_json::from_str::<serde::de::IgnoredAny>(json) {
            return Err(Error::NotJson(why.to_string()));
        }
        if json.len() > EVENT_LIMIT {
            return Err(Error::EventTooLarge(json.len()));
        }
        let row = self.store.sessions(SessionFilter::Id(session).into()).await?.into_iter().next();
        let row = row.ok_or_else(|| StoreError::NotFound(format!("session {session}")))?;
        if row.closed {
            return Err(rath_core::Error::from(ErrorKind::Closed(session)).into());
        }
        let what = PostContent::Event { name: name.into(), value: json.into() };
        let post = Post::new(session, self.by.clone(), what);
        let queued = Delivery::queued(&post, row.holder);
        self.store.post(post).await?;
        Ok(queued)
    }

    /// Records a post, or leaves it in the inbox if another process has the session locked.
    pub async fn deliver(&self, session: SessionId, what: PostContent) -> Result<Delivery> {
        let post = Post::new(session, self.by.clone(), what);
        match self.store.open(session, self.by.clone()).await {
            // A message must follow the results of the open calls. It stays queued until the run is resumed.
            Ok(open)
                if matches!(post.what, PostContent::Message { .. })
                    && open.state().calls.iter().any(OpenCall::is_models) =>
            {
                let queued = Delivery::queued(&post, None);
                self.store.post(post).await?;
                Ok(queued)
            }
            Ok(mut session) => {
                // Earlier posts in the inbox are consumed first.
                let (before, head) = (session.consume_posts().await?, session.head());
                if let Some(why) = session.consume_post(&post)?.or(before) {
                    session.cancel(why)?;
                }
                session.publish().await?;
                Ok(match session.head() {
                    same if same == head => Delivery::NothingToStop { head, stopped: false },
                    head => Delivery::Recorded(head),
                })
            }
            Err(error) => match error.kind() {
                ErrorKind::Store(StoreError::Locked { holder, .. }) => {
                    let queued = Delivery::queued(&post, Some(holder.clone()));
                    self.store.post(post).await?;
                    Ok(queued)
                }
                _ => Err(error.into()),
            },
        }
    }
}

impl Question {
    /// The content of a post with this answer.
    pub(crate) fn posted(&self, answer: Answer, why: Option<String>) -> PostContent {
        let (asked, shown_digest) = (self.record, self.shown_digest);
        let verdict = match answer {
            Answer::Always => return PostContent::Always { asked, shown_digest, why },
            Answer::Yes => Verdict::Yes,
            Answer::No => Verdict::No,
            Answer::Text(text) => Verdict::Text(text.into()),
        };
        PostContent::Answer { asked, shown_digest, verdict, why }
    }
}
