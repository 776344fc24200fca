//! Acts on sessions from outside: answers what they ask, says something to them, cancels their work.
//!
//! A [`Control`] acts for one person or program. It works whether or not a process holds the session: if one does, what is
//! said waits in the session's inbox, and that process records it at its next step; if none does, it is recorded here.
//!
//! ```
//! use rath::control::{Answer, Control};
//! # use rath::prelude::*;
//! # /// Rings the bell.
//! # #[tool(effect = "irreversible")] fn ring() -> &'static str { "It rang." }
//! # pollster::block_on(async {
//! # let store = Memory::new();
//! # let model = Scripted::new("m").call("ring", serde_json::json!({})).say("Done.");
//! # let agent = Agent::new("ringer").model(model).tools(ring).policy("ring", Decision::Ask);
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

use rath_core::body::{About, Verdict};
use rath_core::store::{Error as StoreError, Post, Posted};
use rath_core::{Actor, ErrorKind, OpenCall, Point, SessionId, Store, View};

pub use cancel::Cancellation;
pub use delivery::Delivery;
pub use inbox::{InboxEntry, QueuedPost};
pub use question::{Answer, Question};

use crate::inspect::RunStatus;

/// Why a session could not be acted on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session or its store refused or failed.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
    /// The record asks nothing.
    #[error("{0} asks nothing")]
    NotAQuestion(Point),
    /// "Always" answers a question that does not offer it.
    #[error("{0} offers no \"always\": answer yes or no")]
    NoAlways(Point),
    /// The question was asked on another machine, by another user or in another store.
    #[error("{0} was asked elsewhere and is not answered here")]
    AskedElsewhere(Point),
    /// Text answers a question about whether a call may be made.
    #[error("{0} is a yes-or-no question: answer yes or no, and give details as the reason")]
    YesOrNo(Point),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

/// What actions on sessions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Acts on the sessions of a store for one person or program.
#[derive(Clone)]
pub struct Control {
    store: Arc<dyn Store>,
    by: Actor,
}

impl Control {
    /// Acts for `by`, whom the records name.
    pub fn new(store: &Arc<dyn Store>, by: Actor) -> Self {
        Self { store: store.clone(), by }
    }

    /// Answers a question. The first answer counts; a later one is recorded and changes nothing.
    pub async fn answer(&self, question: &Question, answer: Answer) -> Result<Delivery> {
        self.answer_because(question, answer, None).await
    }

    /// Answers a question and gives a reason.
    pub async fn answer_because(&self, question: &Question, answer: Answer, why: Option<String>) -> Result<Delivery> {
        let at = question.at;
        match answer {
            Answer::Always if question.always.is_none() => return Err(Error::NoAlways(at)),
            Answer::Text(_) if question.about == About::Approval => return Err(Error::YesOrNo(at)),
            _ => {}
        }
        // What was shown there says nothing about what would happen here.
        if View::of(&self.store, at.session, Some(at.seq)).await?.is_from_elsewhere() {
            return Err(Error::AskedElsewhere(at));
        }
        self.deliver(question.session, question.posted(answer, why)).await
    }

    /// Says something to a session: a user message that the model answers. Also returns where the session's run stood
    /// before, because a session that no process works on does not answer until its run is resumed.
    pub async fn say(&self, session: SessionId, text: impl Into<String>) -> Result<(Delivery, Option<RunStatus>)> {
        let run = RunStatus::of(&self.store, &View::of(&self.store, session, None).await?).await?;
        let delivery = self.deliver(session, Posted::Message { text: text.into() }).await?;
        Ok((delivery, run))
    }

    /// Records what is posted, or leaves it in the inbox if another process holds the session.
    pub async fn deliver(&self, session: SessionId, what: Posted) -> Result<Delivery> {
        let post = Post::new(session, self.by.clone(), what);
        match self.store.open(session, self.by.clone()).await {
            // A message comes after the results of the calls that the model waits for: whoever resumes the run takes it.
            Ok(open)
                if matches!(post.what, Posted::Message { .. })
                    && open.state().calls.iter().any(OpenCall::is_models) =>
            {
                let queued = Delivery::queued(&post, None);
                self.store.post(post).await?;
                Ok(queued)
            }
            Ok(mut session) => {
                // What was already in the inbox came first.
                let (before, head) = (session.take_posts().await?, session.head());
                if let Some(why) = session.take_post(&post)?.or(before) {
                    session.cancel(why)?;
                }
                session.publish().await?;
                Ok(match session.head() {
                    same if same == head => Delivery::NothingToStop { head, stopped: false },
                    head => Delivery::Recorded(head),
                })
            }
            Err(error) => match error.kind() {
                ErrorKind::Store(StoreError::Held { holder, .. }) => {
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
    /// What posting this answer says.
    pub(crate) fn posted(&self, answer: Answer, why: Option<String>) -> Posted {
        let (asked, shown_digest) = (self.record, self.shown_digest);
        let verdict = match answer {
            Answer::Always => return Posted::Always { asked, shown_digest, why },
            Answer::Yes => Verdict::Yes,
            Answer::No => Verdict::No,
            Answer::Text(text) => Verdict::Text(text.into()),
        };
        Posted::Answer { asked, shown_digest, verdict, why }
    }
}
